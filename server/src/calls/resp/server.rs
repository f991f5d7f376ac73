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

/// The settings of RESP: the bounds of connections, and the login.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RespSettings {
    /// The login that clients need, or `None` if they need no login.
    pub login: Option<Login>,
    /// The maximum number of concurrent connections. Further connections receive an error and are
    /// closed.
    pub max_connections: usize,
    /// The maximum time without a command. After this time, the server closes the connection.
    pub idle_timeout: Duration,
    /// The maximum time from the first to the last byte of a command.
    pub command_timeout: Duration,
    /// The maximum time in which a client must accept the replies to its commands.
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

/// Serves connections until `shutdown` completes. Each connection then answers the commands that
/// have arrived, and ends.
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
    shared.guards.settled().await;
}

/// Serves a single connection over any stream, for example a stream in memory.
///
/// # Errors
///
/// Returns an error if the connection fails.
pub async fn serve_stream(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    calls: Arc<Calls>,
    settings: RespSettings,
) -> io::Result<()> {
    let (_running, stopped) = watch::channel(false);
    connection::serve(stream, Arc::new(Shared::new(calls, settings)), stopped).await
}
