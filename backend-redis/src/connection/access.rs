//! The steps of connecting to one server: the socket, TLS, and the login.

use std::io;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use redis::aio::{MultiplexedConnection, SendError};
use redis::{AsyncConnectionConfig, ConnectionAddr, ConnectionInfo, ProtocolVersion, PushInfo};
use tidegate_core::ErrorKind;
use tokio::net::TcpStream;
#[cfg(unix)]
use tokio::net::UnixStream;

use super::credentials::CredentialsProvider;
use super::error::{self, ConnectError, Peer};
use super::live::{Driver, LiveConnection};
use super::race::first_success;
use super::stream::{Socket, Stream, configure};
use super::tls::{self, Tls};
use super::wake_ups;

/// The settings that are used for connecting to every server.
#[derive(Debug, Clone)]
pub(super) struct Access {
    pub(super) tls: Option<Tls>,
    /// The provider of the credentials for servers. Sentinels have a separate login.
    pub(super) credentials: Option<CredentialsProvider>,
    pub(super) response_timeout: Duration,
    /// The receiver of the messages on a connection for wake-ups.
    pub(super) wakes: Option<Weak<wake_ups::Shared>>,
}

/// The last step that an attempt to connect to one server has reached.
#[derive(Debug, Default)]
pub(super) struct Progress(AtomicU8);

impl Progress {
    const HAS_CONNECTED: u8 = 1;
    const IS_ENCRYPTED: u8 = 2;
    const NEEDS_CREDENTIALS: u8 = 3;

    fn reach(&self, stage: u8) {
        self.0.store(stage, Ordering::Relaxed);
    }

    /// Describes, for an error message, the step that an attempt to connect did not complete in
    /// time.
    pub(super) fn missing(&self, address: &ConnectionAddr) -> &'static str {
        let encrypts = matches!(address, ConnectionAddr::TcpTls { .. });
        match self.0.load(Ordering::Relaxed) {
            Self::HAS_CONNECTED if encrypts => {
                ": it accepts connections, but gave no answer in TLS; is it without TLS (`redis://`)?"
            }
            Self::HAS_CONNECTED | Self::IS_ENCRYPTED => {
                ": it accepts connections, but gave no answer to the login"
            }
            Self::NEEDS_CREDENTIALS => ": the credentials provider gave no answer",
            _ => "",
        }
    }
}

impl Access {
    /// Connects to the server `peer`, and logs in with the credentials of the provider. Without a
    /// provider, the login uses the credentials of the URL. Errors contain the name of `peer`.
    pub(super) async fn connect_to_server(
        &self,
        peer: &Peer,
        server: &ConnectionInfo,
        progress: &Progress,
    ) -> Result<(LiveConnection, Driver), ConnectError> {
        let Some(provider) = &self.credentials else {
            return self.connect(peer, server, progress).await;
        };
        let socket = self.open(peer, server.addr(), progress).await?;
        progress.reach(Progress::NEEDS_CREDENTIALS);
        let credentials = provider.credentials().await.map_err(|error| {
            let message = format!("cannot connect to {peer}: the credentials provider failed");
            ConnectError::new(ErrorKind::Unavailable, message).because(error)
        })?;
        progress.reach(Progress::IS_ENCRYPTED);
        let server = credentials.apply_to(server.clone());
        self.log_in(peer, &server, socket, credentials.renewal()).await
    }

    /// Connects to the server or Sentinel `peer`, and logs in with the credentials of the URL.
    /// Errors contain the name of `peer`.
    pub(super) async fn connect(
        &self,
        peer: &Peer,
        server: &ConnectionInfo,
        progress: &Progress,
    ) -> Result<(LiveConnection, Driver), ConnectError> {
        let socket = self.open(peer, server.addr(), progress).await?;
        progress.reach(Progress::IS_ENCRYPTED);
        self.log_in(peer, server, socket, None).await
    }

    async fn log_in(
        &self,
        peer: &Peer,
        server: &ConnectionInfo,
        socket: Socket,
        renew_after: Option<Duration>,
    ) -> Result<(LiveConnection, Driver), ConnectError> {
        let stream = Stream::new(socket);
        let activity = stream.activity();
        let mut config =
            AsyncConnectionConfig::new().set_response_timeout(Some(self.response_timeout));
        let mut login = server.redis_settings().clone();
        if let Some(receiver) = self.wakes.clone() {
            login = login.set_protocol(ProtocolVersion::RESP3);
            config = config.set_push_sender(move |push: PushInfo| {
                let receiver = receiver.upgrade().ok_or(SendError)?;
                receiver.receive(&push);
                Ok::<(), SendError>(())
            });
        }
        let connected = MultiplexedConnection::new_with_config(&login, stream, config).await;
        let (connection, driver) = connected.map_err(|error| {
            let encryption = tls::login_error(peer, &error);
            error::login_error(peer, &activity.head(), &error, encryption)
        })?;
        if let Some(refused) = error::missing_login(peer, &activity.head()) {
            return Err(refused);
        }
        let address = Arc::from(&*peer.address);
        Ok((LiveConnection::new(connection, activity, address, renew_after), Box::pin(driver)))
    }

    async fn open(
        &self,
        peer: &Peer,
        address: &ConnectionAddr,
        progress: &Progress,
    ) -> Result<Socket, ConnectError> {
        match (address, &self.tls) {
            (ConnectionAddr::Tcp(host, port), _) => {
                let stream = dial(peer, host, *port).await?;
                progress.reach(Progress::HAS_CONNECTED);
                Ok(Socket::Tcp(stream))
            }
            #[cfg(feature = "tls")]
            (ConnectionAddr::TcpTls { host, port, .. }, Some(tls)) => {
                let stream = dial(peer, host, *port).await?;
                progress.reach(Progress::HAS_CONNECTED);
                tls.encrypt(host, stream).await.map_err(|error| tls::encryption_error(peer, &error))
            }
            #[cfg(unix)]
            (ConnectionAddr::Unix(path), _) => {
                let stream = UnixStream::connect(path).await.map_err(|error| {
                    ConnectError::from_io(peer, error::unreachable(&error), &error)
                })?;
                progress.reach(Progress::HAS_CONNECTED);
                Ok(Socket::Unix(stream))
            }
            _ => {
                let message =
                    format!("cannot connect to {peer}: addresses of this type are not supported");
                Err(ConnectError::new(ErrorKind::Misconfigured, message))
            }
        }
    }
}

/// Connects to a host at the first of its addresses that accepts the connection.
async fn dial(peer: &Peer, host: &str, port: u16) -> Result<TcpStream, ConnectError> {
    let addresses = tokio::net::lookup_host((host, port))
        .await
        .map_err(|error| ConnectError::from_io(peer, "its host name cannot be resolved", &error))?;
    let stream = first_success(addresses.map(TcpStream::connect))
        .await
        .unwrap_or_else(|| Err(io::Error::other("the host has no address")));
    let stream = stream.and_then(|stream| configure(&stream).map(|()| stream));
    stream.map_err(|error| ConnectError::from_io(peer, error::unreachable(&error), &error))
}
