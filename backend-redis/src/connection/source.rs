//! The target of connections: one server, or the primary of a Sentinel group.

use std::fmt;
use std::time::Duration;

use redis::ConnectionInfo;
use tidegate_core::ErrorKind;
use tokio::time::timeout;

use super::access::{Access, Progress};
use super::credentials::Credentials;
use super::error::{self, ConnectError, Peer};
use super::live::{Driver, LiveConnection};
use super::sentinel::SentinelGroup;

#[derive(Debug, Clone)]
pub(super) struct Source {
    pub(super) target: Target,
    pub(super) access: Access,
    /// The maximum time for connecting, including the queries to the Sentinels.
    pub(super) connect_timeout: Duration,
}

#[derive(Clone)]
pub enum Target {
    Server(ConnectionInfo),
    Sentinel {
        sentinels: Vec<ConnectionInfo>,
        name: String,
        /// The settings for connecting to the servers of the group. The address in these settings
        /// is not used, because a Sentinel reports the address of the primary.
        server: ConnectionInfo,
    },
}

impl Source {
    /// Connects to the server, or to the current primary of the Sentinel group. Returns an error if
    /// no connection is established within the timeout.
    pub(super) async fn connect(&self) -> Result<(LiveConnection, Driver), ConnectError> {
        let progress = Progress::default();
        let connect = async {
            match &self.target {
                Target::Server(server) => {
                    let peer = Peer::new("Redis", server.addr());
                    self.access.connect_to_server(&peer, server, &progress).await
                }
                Target::Sentinel { sentinels, name, server } => {
                    SentinelGroup { access: &self.access, sentinels, name, server }.connect().await
                }
            }
        };
        let connected = timeout(self.connect_timeout, connect).await;
        connected.unwrap_or_else(|_| Err(self.not_in_time(&progress)))
    }

    /// Returns new credentials of the provider. Returns `None` if there is no provider, or if the
    /// provider fails or times out.
    pub(super) async fn credentials(&self) -> Option<Credentials> {
        let provider = self.access.credentials.as_ref()?;
        timeout(self.connect_timeout, provider.credentials()).await.ok()?.ok()
    }

    /// Returns the settings for connecting to the server. For a Sentinel group, these settings do
    /// not contain the address of the primary.
    pub(super) fn server(&self) -> &ConnectionInfo {
        match &self.target {
            Target::Server(server) | Target::Sentinel { server, .. } => server,
        }
    }

    /// Returns the error of an attempt to connect that took too long. The message does not name the
    /// step that took too long.
    pub(super) fn no_connection_in_time(&self) -> ConnectError {
        self.not_in_time(&Progress::default())
    }

    fn not_in_time(&self, progress: &Progress) -> ConnectError {
        let missing = match &self.target {
            Target::Server(server) => progress.missing(server.addr()),
            Target::Sentinel { .. } => "",
        };
        let message =
            format!("no connection to {} within {:?}{missing}", self.target, self.connect_timeout);
        ConnectError::new(ErrorKind::Unavailable, message)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server(server) => Peer::new("Redis", server.addr()).fmt(f),
            Self::Sentinel { sentinels, name, .. } => {
                let urls: Vec<_> =
                    sentinels.iter().map(|url| error::server_name(url.addr())).collect();
                write!(f, "the primary of `{name}` (Sentinels at {})", urls.join(", "))
            }
        }
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Logs can contain the output, so it omits the user and the password.
        match self {
            Self::Server(server) => write!(f, "Server({})", server.addr()),
            Self::Sentinel { name, .. } => write!(f, "Sentinel({name})"),
        }
    }
}
