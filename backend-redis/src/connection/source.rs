//! Where connections come from: one server, or whichever one Sentinel names.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, ConnectionAddr, ConnectionInfo, ErrorKind, RedisError, RedisResult,
};
use tokio::net::TcpStream;
#[cfg(unix)]
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::multiplexed::LiveConnection;
use super::race::first_success;
use super::sentinel::SentinelGroup;
use super::stream::{Socket, Stream, configure};
use super::tls::Tls;

/// Where to connect to, and how long that and an answer may take.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) target: Target,
    pub(super) access: Access,
    /// How long connecting may take, asking the Sentinels included.
    pub(super) connect_timeout: Duration,
}

/// How to talk to any server.
#[derive(Debug)]
pub(super) struct Access {
    pub(super) tls: Option<Tls>,
    /// How long to wait for an answer.
    pub(super) response_timeout: Duration,
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

/// What carries the bytes of a connection. It ends when the connection does.
pub(super) type Driver = Pin<Box<dyn Future<Output = ()> + Send>>;

impl Source {
    /// A new connection, to what is the primary now.
    ///
    /// # Errors
    ///
    /// If there is none in time.
    pub(super) async fn connect(&self) -> RedisResult<(LiveConnection, Driver)> {
        let connect = async {
            match &self.target {
                Target::Server(server) => self.access.connect(server).await,
                Target::Sentinel { sentinels, name, server } => {
                    SentinelGroup { access: &self.access, sentinels, name, server }.connect().await
                }
            }
        };
        timeout(self.connect_timeout, connect).await.unwrap_or_else(|_| {
            Err(RedisError::from(io::Error::new(
                io::ErrorKind::TimedOut,
                format!("no connection within {:?}", self.connect_timeout),
            )))
        })
    }
}

impl Access {
    /// Connects to a server and logs in.
    pub(super) async fn connect(
        &self,
        server: &ConnectionInfo,
    ) -> RedisResult<(LiveConnection, Driver)> {
        let stream = Stream::new(self.open(server.addr()).await?);
        let activity = stream.activity();
        let config = AsyncConnectionConfig::new().set_response_timeout(Some(self.response_timeout));
        let login = server.redis_settings();
        let (connection, driver) =
            MultiplexedConnection::new_with_config(login, stream, config).await?;
        Ok((LiveConnection::new(connection, activity), Box::pin(driver)))
    }

    async fn open(&self, address: &ConnectionAddr) -> RedisResult<Socket> {
        match (address, &self.tls) {
            (ConnectionAddr::Tcp(host, port), _) => Ok(Socket::Tcp(dial(host, *port).await?)),
            #[cfg(feature = "tls")]
            (ConnectionAddr::TcpTls { host, port, .. }, Some(tls)) => {
                Ok(tls.encrypt(host, dial(host, *port).await?).await?)
            }
            #[cfg(unix)]
            (ConnectionAddr::Unix(path), _) => Ok(Socket::Unix(UnixStream::connect(path).await?)),
            _ => Err(RedisError::from((
                ErrorKind::InvalidClientConfig,
                "such addresses are not supported here",
                address.to_string(),
            ))),
        }
    }
}

/// Connects to a host at any of its addresses.
async fn dial(host: &str, port: u16) -> io::Result<TcpStream> {
    let addresses = tokio::net::lookup_host((host, port)).await?;
    let stream = first_success(addresses.map(TcpStream::connect)).await.unwrap_or_else(|| {
        Err(io::Error::new(io::ErrorKind::NotFound, format!("{host} has no address")))
    })?;
    configure(&stream)?;
    Ok(stream)
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
