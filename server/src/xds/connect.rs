use std::error::Error;
use std::future::ready;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tonic::transport::Uri;
use tower_service::Service;

use super::settings::CONNECT_TIMEOUT;

/// A lost peer is noticed after this time and three [`KEEPALIVE_INTERVAL`]s.
const KEEPALIVE: Duration = Duration::from_secs(30);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);

/// Connects once. A channel of tonic connects again by itself, without a wait, whenever its connection has ended: the
/// waits between connections would have no effect.
pub(super) struct Once(Option<HttpConnector>);

impl Once {
    pub(super) fn new() -> Self {
        let mut connector = HttpConnector::new();
        connector.enforce_http(false);
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
        connector.set_keepalive(Some(KEEPALIVE));
        connector.set_keepalive_interval(Some(KEEPALIVE_INTERVAL));
        connector.set_keepalive_retries(Some(3));
        Self(Some(connector))
    }
}

type Connected = Result<TokioIo<TcpStream>, Box<dyn Error + Send + Sync>>;

impl Service<Uri> for Once {
    type Response = TokioIo<TcpStream>;
    type Error = Box<dyn Error + Send + Sync>;
    type Future = Pin<Box<dyn Future<Output = Connected> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        match self.0.take() {
            Some(mut connector) => Box::pin(async move { Ok(connector.call(uri).await?) }),
            None => Box::pin(ready(Err("the connection has ended".into()))),
        }
    }
}
