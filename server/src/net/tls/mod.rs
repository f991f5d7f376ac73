//! Encrypted connections (feature `tls`): certificates from files, which are loaded again when they change, and clients
//! that have to show one.

#[cfg(feature = "top")]
mod client;
mod config;
mod contents;
mod error;
mod expiry;
mod handshake;
mod names;
mod reload;
mod stats;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use rustls::ServerConfig;
use tokio::net::TcpStream;

#[cfg(feature = "top")]
pub(crate) use client::client_config;
use contents::Contents;
pub(crate) use contents::read as read_file;
pub use error::TlsError;
pub use handshake::Handshake;
use stats::TlsStats;

/// What is spoken over a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// gRPC, over HTTP/2.
    Grpc,
    /// JSON, health and metrics, over HTTP/1.1.
    Http,
    /// The protocol of Redis.
    Resp,
    /// The page, over HTTP/1.1.
    Page,
}

impl Protocol {
    /// The label of metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Grpc => "grpc",
            Self::Http => "http",
            Self::Resp => "resp",
            Self::Page => "page",
        }
    }

    /// What the handshake agrees on (ALPN), with clients that ask for it.
    fn alpn(self) -> Vec<Vec<u8>> {
        match self {
            Self::Grpc => vec![b"h2".to_vec()],
            Self::Http | Self::Page => vec![b"http/1.1".to_vec()],
            Self::Resp => vec![],
        }
    }
}

/// The files and rules of a listener.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TlsSettings {
    /// The certificate of the server, followed by those between it and its root, if there are any (PEM).
    pub certificate: PathBuf,
    /// Its private key (PEM).
    pub key: PathBuf,
    /// The roots of clients' certificates (PEM). With them, a client has to show a certificate that one of them has
    /// signed.
    pub client_roots: Option<PathBuf>,
    /// A DNS name or an IP address that a client's certificate has to be for.
    pub client_name: Option<String>,
    /// How long a handshake may take.
    pub handshake_timeout: Duration,
}

impl TlsSettings {
    /// A certificate and its key; any client may connect.
    #[must_use]
    pub fn new(certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        Self {
            certificate: certificate.into(),
            key: key.into(),
            client_roots: None,
            client_name: None,
            handshake_timeout: Duration::from_secs(10),
        }
    }
}

/// The encryption of a listener. Clones share it.
#[derive(Clone)]
pub struct Tls(Arc<Inner>);

struct Inner {
    protocol: Protocol,
    settings: TlsSettings,
    current: ArcSwap<Loaded>,
    stats: TlsStats,
}

/// What new connections get.
struct Loaded {
    contents: Contents,
    config: Arc<ServerConfig>,
    /// When the certificate expires; `None` if that cannot be read.
    expires: Option<SystemTime>,
}

impl Tls {
    /// Loads the files. Metrics go to the recorder of [`metrics`] that is installed now.
    ///
    /// # Errors
    ///
    /// If a file cannot be read or is not valid, if the key belongs to another certificate, or if clients have to have
    /// a name and there are no roots to verify it by.
    pub fn open(protocol: Protocol, settings: TlsSettings) -> Result<Self, TlsError> {
        let loaded = Loaded::new(protocol, &settings, Contents::read(&settings)?)?;
        let stats = TlsStats::new(protocol);
        stats.expires(loaded.expires);
        Ok(Self(Arc::new(Inner {
            protocol,
            settings,
            current: ArcSwap::from_pointee(loaded),
            stats,
        })))
    }

    /// Loads the files whenever they have changed, and calls `report` with the outcome. Files that are not valid change
    /// nothing. Connections that exist are not touched.
    ///
    /// As with limits, the contents are read and compared, twice: so a change is seen behind any
    /// link, such as those of a Secret of Kubernetes, and it is in force within three
    /// [intervals](crate::net::watch::INTERVAL).
    ///
    /// Never returns: drop the future to end it.
    pub async fn follow(&self, report: impl Fn(Result<(), TlsError>)) {
        reload::follow(&self.0, report).await;
    }

    /// What is wrong with the certificate, but no reason not to use it.
    #[must_use]
    pub fn warning(&self) -> Option<String> {
        let expires = self.0.current.load().expires?;
        let ago = SystemTime::now().duration_since(expires).ok()?;
        let file = self.0.settings.certificate.display();
        let hours = ago.as_secs() / 3_600;
        Some(format!("{file}: the certificate has expired {hours} hours ago"))
    }

    /// The handshake of a connection, by the certificate that is in force now.
    pub(crate) fn handshake(&self, stream: TcpStream) -> Handshake {
        let config = Arc::clone(&self.0.current.load().config);
        Handshake::new(stream, config, self.clone())
    }
}

impl Loaded {
    fn new(
        protocol: Protocol,
        settings: &TlsSettings,
        contents: Contents,
    ) -> Result<Self, TlsError> {
        let (config, expires) = config::server_config(protocol, settings, &contents)?;
        Ok(Self { contents, config: Arc::new(config), expires })
    }
}

/// Without the key.
impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls")
            .field("protocol", &self.0.protocol)
            .field("settings", &self.0.settings)
            .finish_non_exhaustive()
    }
}
