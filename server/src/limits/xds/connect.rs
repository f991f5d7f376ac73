use std::error::Error;
use std::future::ready;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::transport::Uri;
use tower_service::Service;

use super::settings::CONNECT_TIMEOUT;
use crate::net::listener::Stream;

/// The idle time after which TCP keepalive probes begin. The client detects a lost server after
/// this time and three [`KEEPALIVE_INTERVAL`]s.
const KEEPALIVE: Duration = Duration::from_secs(30);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);

/// A connector that connects only once, because a channel of tonic would otherwise reconnect
/// immediately after its connection has ended, without the configured waits.
pub(super) struct Once(Option<(HttpConnector, OwnedSemaphorePermit)>);

/// A notification that a connection has ended.
pub(super) struct End(Arc<Semaphore>);

impl End {
    pub(super) async fn wait(&self) {
        // The error does not occur, because the semaphore is never closed.
        let _ = self.0.acquire().await;
    }
}

impl Once {
    /// Creates a connector, and the notification that its connection has ended. The notification
    /// also completes if no connection is established.
    pub(super) fn new() -> (Self, End) {
        let mut connector = HttpConnector::new();
        connector.enforce_http(false);
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
        connector.set_keepalive(Some(KEEPALIVE));
        connector.set_keepalive_interval(Some(KEEPALIVE_INTERVAL));
        connector.set_keepalive_retries(Some(3));
        let place = Arc::new(Semaphore::new(1));
        let once = Arc::clone(&place).try_acquire_owned().ok().map(|place| (connector, place));
        (Self(once), End(place))
    }
}

type Connected = Result<TokioIo<Stream>, Box<dyn Error + Send + Sync>>;

impl Service<Uri> for Once {
    type Response = TokioIo<Stream>;
    type Error = Box<dyn Error + Send + Sync>;
    type Future = Pin<Box<dyn Future<Output = Connected> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        match self.0.take() {
            Some((mut connector, place)) => Box::pin(async move {
                let stream = connector.call(uri).await?.into_inner();
                Ok(TokioIo::new(Stream::plain(stream).with_place(place)))
            }),
            None => Box::pin(ready(Err("the connection has ended".into()))),
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn the_end_is_that_of_the_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let uri: Uri = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        let (mut once, end) = Once::new();
        let stream = once.call(uri.clone()).await.unwrap();
        assert!(once.call(uri).await.is_err());
        assert!(end.wait().now_or_never().is_none());
        drop(stream);
        end.wait().await;
    }

    #[tokio::test]
    async fn a_connection_that_is_not_made_has_ended() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let uri: Uri = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        drop(listener);
        let (mut once, end) = Once::new();
        assert!(once.call(uri).await.is_err());
        end.wait().await;
    }
}
