use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use super::connection;
use super::session::Shared;
use crate::calls::Calls;
use crate::listener::{ACCEPT_PAUSE, Listener, Stream};
use crate::login::Login;

/// The bounds of connections, and the login that they need.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RespSettings {
    /// The login that clients need; `None` for none.
    pub login: Option<Login>,
    /// The maximum number of connections at the same time. Others get an error, and are closed.
    pub max_connections: usize,
    /// After which time without a command a connection ends.
    pub idle_timeout: Duration,
    /// How long a command may take from its first byte to its last one.
    pub command_timeout: Duration,
    /// How long a client may take to accept the replies to what it has sent.
    pub write_timeout: Duration,
}

impl Default for RespSettings {
    fn default() -> Self {
        Self {
            login: None,
            max_connections: 10_000,
            idle_timeout: Duration::from_secs(600),
            command_timeout: Duration::from_secs(30),
            write_timeout: Duration::from_secs(30),
        }
    }
}

/// Serves until `shutdown` is ready; then each connection ends once the commands that have come are answered.
pub async fn serve(
    listener: impl Into<Listener>,
    calls: Arc<Calls>,
    settings: RespSettings,
    shutdown: impl Future<Output = ()>,
) {
    let listener = listener.into();
    let places = Arc::new(Semaphore::new(settings.max_connections.min(Semaphore::MAX_PERMITS)));
    let shared = Arc::new(Shared::new(calls, settings));
    let (stop, stopped) = watch::channel(false);
    let mut connections = JoinSet::new();
    tokio::pin!(shutdown);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
            () = &mut shutdown => break,
        };
        let Ok((stream, _)) = accepted else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        match Arc::clone(&places).try_acquire_owned() {
            Ok(place) => {
                let (shared, stopped) = (Arc::clone(&shared), stopped.clone());
                connections.spawn(async move {
                    let connected = Connected::new(&shared);
                    // A client that is gone is no error of the server.
                    let _ = connection::serve(stream, Arc::clone(&shared), stopped).await;
                    drop((connected, place));
                });
            }
            Err(_) => {
                shared.stats.refused_connections.increment(1);
                // The reason is not worth a handshake.
                if !listener.is_encrypted() {
                    refuse(stream, &shared);
                }
            }
        }
    }
    drop(listener);
    stop.send_replace(true);
    while connections.join_next().await.is_some() {}
}

/// Serves one connection of any kind, such as one in memory.
///
/// # Errors
///
/// If the connection fails.
pub async fn serve_stream(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    calls: Arc<Calls>,
    settings: RespSettings,
) -> io::Result<()> {
    let (_running, stopped) = watch::channel(false);
    connection::serve(stream, Arc::new(Shared::new(calls, settings)), stopped).await
}

/// Says why, if that can be done without waiting.
fn refuse(mut stream: Stream, shared: &Shared) {
    let max = shared.settings.max_connections;
    let message = format!("-ERR max number of clients reached: {max}\r\n");
    tokio::spawn(async move {
        let _ = tokio::time::timeout(ACCEPT_PAUSE, stream.write_all(message.as_bytes())).await;
    });
}

/// Counts a connection for as long as it lives.
struct Connected<'s>(&'s Shared);

impl<'s> Connected<'s> {
    fn new(shared: &'s Shared) -> Self {
        shared.clients.fetch_add(1, Ordering::Relaxed);
        shared.stats.connections.increment(1.0);
        Self(shared)
    }
}

impl Drop for Connected<'_> {
    fn drop(&mut self) {
        self.0.clients.fetch_sub(1, Ordering::Relaxed);
        self.0.stats.connections.decrement(1.0);
    }
}
