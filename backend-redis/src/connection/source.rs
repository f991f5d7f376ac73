//! Where connections come from: one server, or whichever one Sentinel names.

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

/// Where to connect to, and how long that and an answer may take.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) target: Target,
    pub(super) access: Access,
    /// How long connecting may take, asking the Sentinels included.
    pub(super) connect_timeout: Duration,
}

/// Where to connect to.
pub enum Target {
    /// This server.
    Server(ConnectionInfo),
    /// Whichever server the Sentinels say is the primary.
    Sentinel {
        /// The Sentinels.
        sentinels: Vec<ConnectionInfo>,
        /// The name of the group.
        name: String,
        /// The servers, but for their addresses.
        server: ConnectionInfo,
    },
}

impl Source {
    /// A new connection, to what is the primary now.
    ///
    /// # Errors
    ///
    /// If there is none in time.
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

    /// Returns new credentials, or `None` if the provider does not return any in time.
    pub(super) async fn credentials(&self) -> Option<Credentials> {
        let provider = self.access.credentials.as_ref()?;
        timeout(self.connect_timeout, provider.credentials()).await.ok()?.ok()
    }

    /// Returns the server's URL. A server of a Sentinel group is at another address.
    pub(super) fn server(&self) -> &ConnectionInfo {
        match &self.target {
            Target::Server(server) | Target::Sentinel { server, .. } => server,
        }
    }

    /// The error of an attempt that took too long, whatever it was at.
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
                    sentinels.iter().map(|it| error::server_name(it.addr())).collect();
                write!(
                    f,
                    "the primary of `{name}`, of which the Sentinels at {} know",
                    urls.join(", ")
                )
            }
        }
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Neither passwords nor much else: this ends up in logs.
        match self {
            Self::Server(server) => write!(f, "Server({})", server.addr()),
            Self::Sentinel { name, .. } => write!(f, "Sentinel({name})"),
        }
    }
}
