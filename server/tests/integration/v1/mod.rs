//! Tests calls as plain JSON over HTTP.

mod access;
mod calls;
mod description;
pub(crate) mod schema;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tidegate_core::{ManualClock, Store, Timestamp};
use tidegate_memory::MemoryStore;
use tidegate_server::calls::Calls;
use tidegate_server::calls::v1::{OPENAPI, routes};
use tidegate_server::net::access::Access;
use tidegate_server::net::http::{HttpSettings, serve};
use tokio::net::TcpListener;

use crate::http::client::{Answer, Client};
use crate::scene::START;

pub(crate) const JSON: &str = "Content-Type: application/json\r\n";

pub(crate) struct Server {
    clock: ManualClock,
    pub(crate) address: SocketAddr,
}

impl Server {
    pub(crate) async fn start() -> Self {
        let clock = ManualClock::new(Timestamp::from_micros(START * 1_000_000));
        let store = MemoryStore::builder().clock(clock.clone()).build();
        Self { clock, ..Self::with(Arc::new(store), Access::Open, HttpSettings::default()).await }
    }

    pub(crate) async fn with(
        store: Arc<dyn Store>,
        access: Access,
        settings: HttpSettings,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let routes = routes(Arc::new(Calls::new(store)), access);
        tokio::spawn(serve(listener, routes, settings, std::future::pending()));
        Self { clock: ManualClock::default(), address }
    }

    pub(crate) async fn client(&self) -> Client {
        Client::connect(self.address).await
    }

    /// Posts a body to the route of a verb, and returns the answer. Fails if the OpenAPI document
    /// does not describe the answer.
    async fn post(&self, verb: &str, body: &str) -> Answer {
        self.post_with(verb, JSON, body).await
    }

    async fn post_with(&self, verb: &str, fields: &str, body: &str) -> Answer {
        let path = format!("/v1/{verb}");
        let answer = self.client().await.call("POST", &path, fields, body).await;
        schema::check(&path, "post", &answer);
        answer
    }

    pub(crate) async fn ask(&self, verb: &str, body: Value) -> (u16, Value) {
        let answer = self.post(verb, &body.to_string()).await;
        (answer.status, answer.json())
    }

    fn advance(&self, millis: u64) {
        self.clock.advance(Duration::from_millis(millis));
    }
}

fn document() -> Value {
    serde_json::from_str(OPENAPI).unwrap()
}
