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

/// What the builders of all stores on Redis have in common.
#[derive(Clone)]
pub struct Settings {
    /// The ACL user, instead of that in the URL.
    pub user: Option<String>,
    /// The password, instead of that in the URL.
    pub password: Option<String>,
    /// The provider of the user and the password of each login, instead of the two above.
    pub credentials: Option<CredentialsProvider>,
    /// What all keys begin with.
    pub prefix: String,
    /// How many connections to use in turn, per server.
    pub connections: usize,
    /// How long connecting may take.
    pub connect_timeout: Duration,
    /// How long to wait for an answer.
    pub response_timeout: Duration,
    /// Only in tests: the clock that counts instead of the server's.
    pub clock: Option<Arc<dyn Clock>>,
    /// The certificates to trust instead of the system's (PEM).
    #[cfg(feature = "tls")]
    pub root_certificates: Option<Vec<u8>>,
    /// This client's certificate and its key (PEM), where servers want one.
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
    /// The same server, with the user of these settings if they name one.
    #[must_use]
    pub fn with_user(&self, info: ConnectionInfo) -> ConnectionInfo {
        with_login(info, self.user.as_deref(), self.password.as_deref())
    }

    /// What encrypts the connections to these servers, if any of them is to be encrypted.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfig`] if a URL asks for certificates not to be verified, or if certificates cannot
    /// be read.
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

    /// Whether there are certificates, which only encrypted connections use.
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

    /// The connections to a server; none is made yet.
    #[must_use]
    pub fn pool(&self, target: Target, tls: Option<Tls>) -> ConnectionPool {
        let credentials = self.credentials.clone();
        let access = Access { tls, credentials, response_timeout: self.response_timeout };
        let source = Source { target, access, connect_timeout: self.connect_timeout };
        ConnectionPool::new(source, self.connections)
    }
}

/// The same server, with this user and this password if they are given.
pub(crate) fn with_login(
    info: ConnectionInfo,
    user: Option<&str>,
    password: Option<&str>,
) -> ConnectionInfo {
    let mut settings = info.redis_settings().clone();
    if let Some(user) = user {
        settings = settings.set_username(user);
    }
    if let Some(password) = password {
        settings = settings.set_password(password);
    }
    info.set_redis_settings(settings)
}

/// Whether connections to there are encrypted.
#[must_use]
pub fn is_encrypted(info: &ConnectionInfo) -> bool {
    matches!(info.addr(), ConnectionAddr::TcpTls { .. })
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the user, who has a password.
        f.debug_struct("Settings")
            .field("prefix", &self.prefix)
            .field("connections", &self.connections)
            .field("connect_timeout", &self.connect_timeout)
            .field("response_timeout", &self.response_timeout)
            .finish_non_exhaustive()
    }
}
