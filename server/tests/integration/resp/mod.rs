//! Tests the protocol of Redis over sockets.

mod bounds;
mod clients;
mod login;
mod own;
mod pipelines;
mod stores;
mod throttle;
mod transactions;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::{Clock, ManualClock, Store, Timestamp};
use tidegate_memory::MemoryStore;
use tidegate_server::calls::Calls;
use tidegate_server::calls::resp::{RespSettings, serve};
use tidegate_server::net::login::Login;
use tidegate_test_servers::{Client, Reply};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::scene::START;

pub(crate) struct Server {
    clock: ManualClock,
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

impl Server {
    pub(crate) async fn start() -> Self {
        Self::with(RespSettings::default()).await
    }

    async fn with(settings: RespSettings) -> Self {
        let clock = ManualClock::new(Timestamp::from_micros(START * 1_000_000));
        let store = MemoryStore::builder().clock(clock.clone()).build();
        Self::on(Arc::new(store), clock, settings).await
    }

    async fn on(store: Arc<dyn Store>, clock: ManualClock, settings: RespSettings) -> Self {
        let calls = Arc::new(Calls::new(store));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(serve(listener, calls, settings, async {
            let _ = stopped.await;
        }));
        Self { clock, address, stop: Some(stop), task }
    }

    pub(crate) async fn client(&self) -> Client {
        Client::connect(self.address.port()).await.unwrap()
    }

    async fn stream(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        stream
    }

    /// Sends bytes on a new connection. Returns the answer until the end of the connection.
    async fn answer(&self, bytes: &[u8]) -> String {
        let mut stream = self.stream().await;
        // The server can answer and close the connection before it has read all bytes.
        let _ = stream.write_all(bytes).await;
        rest(&mut stream).await
    }

    fn now_micros(&self) -> u64 {
        self.clock.now().as_micros()
    }

    fn advance(&self, millis: u64) {
        self.clock.advance(Duration::from_millis(millis));
    }

    fn stop(&mut self) {
        let _ = self.stop.take().map(|stop| stop.send(()));
    }
}

async fn rest(stream: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    let read = stream.read_to_end(&mut answer);
    // If the server closed the socket before it received all bytes, the connection can end with a
    // reset.
    let _ = tokio::time::timeout(Duration::from_secs(60), read).await.unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

fn with_login() -> RespSettings {
    let mut settings = RespSettings::default();
    settings.login = Some(Login { user: "default".into(), password: "s3cret".into() });
    settings
}

/// Sends a command whose arguments are separated by spaces. Returns its reply as a text in one
/// line.
async fn ask(client: &mut Client, line: &str) -> String {
    let words: Vec<&str> = line.split(' ').map(|word| word.trim_matches('\'')).collect();
    show(&client.call(&words).await.unwrap())
}

/// Sends a command whose arguments can contain spaces. Returns its reply as a text in one line.
pub(crate) async fn call(client: &mut Client, arguments: &[&str]) -> String {
    show(&client.call(arguments).await.unwrap())
}

fn show(reply: &Reply) -> String {
    match reply {
        Reply::List(replies) => {
            let replies: Vec<String> = replies.iter().map(show).collect();
            format!("[{}]", replies.join(" "))
        }
        Reply::Nil => "nil".to_owned(),
        Reply::Error(text) => format!("-{text}"),
        other => other.text(),
    }
}
