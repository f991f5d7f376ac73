use std::path::PathBuf;
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::net::tls::client_config;

/// The encryption of a connection to a page whose URL begins with `https://`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TopTls {
    /// The file with the root certificates (PEM). If it is `None`, the roots of the system are
    /// used.
    pub roots: Option<PathBuf>,
    /// The files with the certificate of the client and its private key (PEM).
    pub identity: Option<(PathBuf, PathBuf)>,
    /// The expected name in the certificate of the server. If it is `None`, the host of the URL is
    /// expected.
    pub server_name: Option<String>,
}

/// Encrypts connections to one server.
#[derive(Clone)]
pub(super) struct Connector {
    connector: TlsConnector,
    server_name: ServerName<'static>,
}

impl Connector {
    /// Reads the certificates and keys.
    pub(super) fn new(tls: &TopTls, host: &str) -> Result<Self, String> {
        let name = tls.server_name.as_deref().unwrap_or(host);
        let server_name = ServerName::try_from(name.to_owned())
            .map_err(|_| format!("`{name}` is not a DNS name or an IP address"))?;
        let identity = tls.identity.as_ref().map(|(certificate, key)| (&**certificate, &**key));
        let config: ClientConfig =
            client_config(tls.roots.as_deref(), identity).map_err(|error| error.to_string())?;
        Ok(Self { connector: TlsConnector::from(Arc::new(config)), server_name })
    }

    pub(super) async fn connect(&self, tcp: TcpStream) -> std::io::Result<TlsStream<TcpStream>> {
        self.connector.connect(self.server_name.clone(), tcp).await
    }
}

impl std::fmt::Debug for Connector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connector").field("server_name", &self.server_name).finish_non_exhaustive()
    }
}
