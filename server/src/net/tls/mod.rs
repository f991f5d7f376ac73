//! Encrypted connections. Certificates are read from files, and read again when
//! the files change. Clients can be required to present a certificate.

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

pub(crate) use client::client_config;
use contents::Contents;
pub(crate) use contents::read as read_file;
pub use error::TlsError;
pub use handshake::Handshake;
use stats::TlsStats;

/// The protocol of a connection.
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
    /// Returns the name of the protocol in the labels of metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Grpc => "grpc",
            Self::Http => "http",
            Self::Resp => "resp",
            Self::Page => "page",
        }
    }

    /// Returns the names of the protocol for the TLS handshake (ALPN). They are used if the
    /// client supports ALPN.
    fn alpn(self) -> Vec<Vec<u8>> {
        match self {
            Self::Grpc => vec![b"h2".to_vec()],
            Self::Http | Self::Page => vec![b"http/1.1".to_vec()],
            Self::Resp => vec![],
        }
    }
}

/// The certificate files of a listener, and its rules for the certificates of clients.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TlsSettings {
    /// The file with the certificate of the server, followed by intermediate certificates (PEM).
    pub certificate: PathBuf,
    /// The file with the private key of the certificate (PEM).
    pub key: PathBuf,
    /// The file with the root certificates for clients (PEM). If it is set, each client must
    /// present a certificate that is signed by one of the roots.
    pub client_roots: Option<PathBuf>,
    /// A DNS name or an IP address that a client's certificate must contain.
    pub client_name: Option<String>,
    /// The timeout of a handshake.
    pub handshake_timeout: Duration,
}

impl TlsSettings {
    /// Creates settings with a certificate and its key. Any client can connect.
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

/// The encryption of a listener. Clones share the same state.
#[derive(Clone)]
pub struct Tls(Arc<Inner>);

struct Inner {
    protocol: Protocol,
    settings: TlsSettings,
    current: ArcSwap<Loaded>,
    stats: TlsStats,
}

/// The configuration for new connections.
struct Loaded {
    contents: Contents,
    config: Arc<ServerConfig>,
    /// The time at which the certificate expires, or `None` if it cannot be read.
    expires: Option<SystemTime>,
}

impl Tls {
    /// Loads the files. The metrics of TLS belong to the recorder of [`metrics`] that is installed
    /// when this function is called.
    ///
    /// # Errors
    ///
    /// Returns an error if a file cannot be read or is not valid, or if the key belongs to
    /// another certificate. Also returns an error if a client name is required without root
    /// certificates of clients.
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

    /// Loads the files whenever they have changed, and calls `report` with the result. If a file
    /// is not valid, the previous certificates stay in use. Existing connections are not
    /// affected.
    ///
    /// This function reads the files at each [interval](crate::net::watch::INTERVAL) and compares
    /// their contents. Therefore it detects changes through all links, such as the links of a
    /// Kubernetes Secret. A change is in force within three intervals.
    ///
    /// This function never returns; drop the future to stop it.
    pub async fn follow(&self, report: impl Fn(Result<(), TlsError>)) {
        reload::follow(&self.0, report).await;
    }

    /// Returns a warning if the certificate has expired. The server uses an expired certificate
    /// nevertheless.
    #[must_use]
    pub fn warning(&self) -> Option<String> {
        let expires = self.0.current.load().expires?;
        let ago = SystemTime::now().duration_since(expires).ok()?;
        let file = self.0.settings.certificate.display();
        let hours = ago.as_secs() / 3_600;
        Some(format!("{file}: the certificate expired {hours} hours ago"))
    }

    /// Creates the handshake of a connection. The handshake uses the certificate that is loaded
    /// now.
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

/// Formats the value without the key.
impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls")
            .field("protocol", &self.0.protocol)
            .field("settings", &self.0.settings)
            .finish_non_exhaustive()
    }
}
