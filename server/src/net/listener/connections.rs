use std::sync::Arc;

use bytes::Bytes;
use metrics::{Counter, Gauge};
use tokio::io::AsyncWriteExt;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use super::{ACCEPT_PAUSE, Listener, Stream};

/// The maximum number of connections of a listener, and the metrics of these connections.
pub(crate) struct Connections {
    pub(crate) max: usize,
    /// The number of open connections.
    pub(crate) open: Gauge,
    /// The number of refused connections.
    pub(crate) refused: Counter,
    /// The bytes that are sent to a refused client. They are not sent on encrypted connections,
    /// because a refusal should not cost a handshake.
    pub(crate) refusal: Bytes,
}

impl Connections {
    /// Serves the connections of a listener until `shutdown` completes. Then sends `true` to the
    /// receiver of each connection, and waits until all connections have ended.
    pub(crate) async fn serve<S>(
        self,
        listener: Listener,
        serve: impl Fn(Stream, watch::Receiver<bool>) -> S,
        shutdown: impl Future<Output = ()>,
    ) where
        S: Future<Output: Send> + Send + 'static,
    {
        let places = Arc::new(Semaphore::new(self.max.min(Semaphore::MAX_PERMITS)));
        let (stop, stopped) = watch::channel(false);
        let mut connections = JoinSet::new();
        tokio::pin!(shutdown);
        loop {
            let stream = tokio::select! {
                (stream, _) = listener.next() => stream,
                Some(_) = connections.join_next() => continue,
                () = &mut shutdown => break,
            };
            let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
                self.refused.increment(1);
                if !listener.is_encrypted() {
                    refuse(stream, self.refusal.clone());
                }
                continue;
            };
            let counted = Counted::new(&self.open);
            let served = serve(stream, stopped.clone());
            connections.spawn(async move {
                // The error is ignored, because an error of a client's connection is not an error
                // of the server.
                let _ = served.await;
                drop((counted, place));
            });
        }
        drop(listener);
        stop.send_replace(true);
        while connections.join_next().await.is_some() {}
    }
}

/// Spawns a task that sends the refusal. The task ends if the client does not accept the refusal
/// within [`ACCEPT_PAUSE`].
fn refuse(mut stream: Stream, refusal: Bytes) {
    tokio::spawn(async move {
        let _ = tokio::time::timeout(ACCEPT_PAUSE, stream.write_all(&refusal)).await;
    });
}

/// A guard that counts a connection as open until it is dropped.
struct Counted(Gauge);

impl Counted {
    fn new(open: &Gauge) -> Self {
        open.increment(1.0);
        Self(open.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.decrement(1.0);
    }
}
