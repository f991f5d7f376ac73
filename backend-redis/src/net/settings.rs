use std::fmt;
use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "tls")]
use redis::TlsCertificates;
use redis::{Client, ConnectionAddr, ConnectionInfo, RedisError};
use tidegate_core::{Clock, Error, ErrorKind};

use super::links::Links;
use super::source::{Source, Target};

/// What the builders of all stores on Redis have in common.
#[derive(Clone)]
pub struct Settings {
    /// The ACL user and its password, instead of those in the URL.
    pub user: Option<(String, String)>,
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
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            user: None,
            prefix: "tidegate".to_owned(),
            connections: 1,
            connect_timeout: Duration::from_secs(1),
            response_timeout: Duration::from_millis(500),
            clock: None,
            #[cfg(feature = "tls")]
            root_certificates: None,
        }
    }
}

impl Settings {
    /// The same server, with the user of these settings if they name one.
    #[must_use]
    pub fn with_user(&self, info: ConnectionInfo) -> ConnectionInfo {
        let Some((name, password)) = &self.user else { return info };
        let settings = info.redis_settings().clone().set_username(name).set_password(password);
        info.set_redis_settings(settings)
    }

    /// What connects to a server.
    ///
    /// # Errors
    ///
    /// If it cannot be connected to like that, as with certificates but without encryption.
    #[cfg(feature = "tls")]
    pub fn client(&self, info: ConnectionInfo) -> Result<Client, RedisError> {
        choose_cryptography();
        match self.certificates() {
            Some(certificates) => Client::build_with_tls(info, certificates),
            None => Client::open(info),
        }
    }

    /// What connects to a server.
    ///
    /// # Errors
    ///
    /// If it cannot be connected to like that.
    #[cfg(not(feature = "tls"))]
    pub fn client(&self, info: ConnectionInfo) -> Result<Client, RedisError> {
        Client::open(info)
    }

    /// The certificates to trust, if not the system's.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn certificates(&self) -> Option<TlsCertificates> {
        let root_cert = self.root_certificates.clone()?;
        Some(TlsCertificates { client_tls: None, root_cert: Some(root_cert) })
    }

    /// The connections to a server; none is made yet.
    #[must_use]
    pub fn links(&self, target: Target) -> Links {
        // Also of Sentinels that are not encrypted, as the server that they name may be.
        #[cfg(feature = "tls")]
        choose_cryptography();
        let source = Source {
            target,
            connect_timeout: self.connect_timeout,
            response_timeout: self.response_timeout,
        };
        Links::new(source, self.connections)
    }
}

/// Whether connections to there are encrypted.
#[must_use]
pub fn is_encrypted(info: &ConnectionInfo) -> bool {
    matches!(info.addr(), ConnectionAddr::TcpTls { .. })
}

/// Without a choice rustls would panic; what the application has chosen already stays.
#[cfg(feature = "tls")]
fn choose_cryptography() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // Somebody else may just have chosen: then there is a choice.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
}

/// The error of a setting that connections cannot be made with.
#[must_use]
pub fn unusable(what: &str, error: RedisError) -> Error {
    // The URL itself may hold a password.
    Error::new(ErrorKind::InvalidCall, format!("the {what} cannot be used: {error}"))
        .with_source(error)
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
