use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;

use super::connection;
use super::session::Shared;
use crate::calls::Calls;
use crate::net::listener::{Connections, Listener, TurnBytes};
use crate::net::login::Login;

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
    let max = settings.max_connections;
    let shared = Arc::new(Shared::new(calls, settings));
    let connections = Connections {
        max,
        open: shared.stats.connections.clone(),
        refused: shared.stats.refused_connections.clone(),
        refusal: format!("-ERR max number of clients reached: {max}\r\n").into(),
    };
    let serve = |stream, stopped| connection::serve(stream, Arc::clone(&shared), stopped);
    let listener = listener.into().with_turn_bytes(TurnBytes::PIPELINES);
    connections.serve(listener, serve, shutdown).await;
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
