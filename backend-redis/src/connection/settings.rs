use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::{ConnectionAddr, ConnectionInfo};
use tidegate_core::{Clock, Error, ErrorKind};

use super::access::Access;
use super::credentials::CredentialsProvider;
#[cfg(feature = "tls")]
use super::error::printable;
use super::error::server_name;
use super::pool::ConnectionPool;
use super::source::{Source, Target};
use super::tls::Tls;
use super::url::with_login;

/// The settings that the builders of all stores on Redis have in common.
#[derive(Clone)]
pub struct Settings {
    pub user: Option<String>,
    pub password: Option<String>,
    /// The provider of the user and the password for each login. The provider replaces `user` and
    /// `password`.
    pub credentials: Option<CredentialsProvider>,
    pub prefix: String,
    /// The number of connections per server. Calls use the connections in turn.
    pub connections: usize,
    pub connect_timeout: Duration,
    pub response_timeout: Duration,
    pub clock: Option<Arc<dyn Clock>>,
    /// The root certificates (PEM) that the store trusts, instead of the system's certificates.
    #[cfg(feature = "tls")]
    pub root_certificates: Option<Vec<u8>>,
    /// The client's certificate and its key (PEM), for servers that authenticate clients.
    #[cfg(feature = "tls")]
    pub client_certificate: Option<(Vec<u8>, Vec<u8>)>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            user: None,
            password: None,
            credentials: None,
            prefix: "tidegate".to_owned(),
            connections: 1,
            connect_timeout: Duration::from_secs(1),
            response_timeout: Duration::from_millis(500),
            clock: None,
            #[cfg(feature = "tls")]
            root_certificates: None,
            #[cfg(feature = "tls")]
            client_certificate: None,
        }
    }
}

impl Settings {
    /// Returns `info` with the user and the password of the settings, if they are set.
    #[must_use]
    pub fn with_user(&self, info: ConnectionInfo) -> ConnectionInfo {
        with_login(info, self.user.as_deref(), self.password.as_deref())
    }

    /// Returns the encryption for connections to `servers`, or `None` if no server uses TLS.
    /// Returns [`ErrorKind::InvalidConfig`] if a URL disables the verification of certificates, or
    /// if certificates cannot be read.
    pub fn tls<'a>(
        &self,
        servers: impl IntoIterator<Item = &'a ConnectionInfo>,
    ) -> Result<Option<Tls>, Error> {
        let mut is_needed = false;
        for server in servers {
            if let ConnectionAddr::TcpTls { insecure, .. } = server.addr() {
                is_needed = true;
                if *insecure {
                    let at = server_name(server.addr());
                    let message = format!(
                        "the URL of {at} ends in `#insecure`: certificates are always verified"
                    );
                    return Err(Error::new(ErrorKind::InvalidConfig, message));
                }
            }
        }
        if is_needed { self.encryption().map(Some) } else { Ok(None) }
    }

    /// Returns `true` if certificates are set. Only encrypted connections use certificates.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn has_certificates(&self) -> bool {
        self.root_certificates.is_some() || self.client_certificate.is_some()
    }

    #[cfg(feature = "tls")]
    fn encryption(&self) -> Result<Tls, Error> {
        let roots = self.root_certificates.as_deref();
        let client = self.client_certificate.as_ref().map(|(chain, key)| (&chain[..], &key[..]));
        Tls::new(roots, client).map_err(|error| {
            let message = "the certificates cannot be used";
            Error::new(ErrorKind::InvalidConfig, message).with_source(printable(&error))
        })
    }

    #[cfg(not(feature = "tls"))]
    fn encryption(&self) -> Result<Tls, Error> {
        let message = "encryption needs the feature `tls` of `tidegate-redis`";
        Err(Error::new(ErrorKind::InvalidConfig, message))
    }

    #[must_use]
    pub fn pool(&self, target: Target, tls: Option<Tls>) -> ConnectionPool {
        let credentials = self.credentials.clone();
        let response_timeout = self.response_timeout;
        let access = Access { tls, credentials, response_timeout, wakes: None };
        let source = Source { target, access, connect_timeout: self.connect_timeout };
        ConnectionPool::new(source, self.connections)
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Logs can contain the output, so it omits the user and the password.
        f.debug_struct("Settings")
            .field("prefix", &self.prefix)
            .field("connections", &self.connections)
            .field("connect_timeout", &self.connect_timeout)
            .field("response_timeout", &self.response_timeout)
            .finish_non_exhaustive()
    }
}
