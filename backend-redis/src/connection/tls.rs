//! TLS: the trusted certificates, and the reason why a connection could not be encrypted.

#[cfg(not(feature = "tls"))]
use redis::RedisError;
#[cfg(feature = "tls")]
pub use with::Tls;
#[cfg(feature = "tls")]
pub(super) use with::{encryption_error, login_error};

#[cfg(not(feature = "tls"))]
use super::error::{ConnectError, Peer};

#[cfg(feature = "tls")]
mod with {
    use std::error::Error as StdError;
    use std::fmt;
    use std::io;
    use std::sync::Arc;

    use redis::RedisError;
    use rustls::crypto::{CryptoProvider, ring};
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
    use rustls::{AlertDescription, CertificateError, ClientConfig, RootCertStore};
    use tidegate_core::ErrorKind;
    use tokio::net::TcpStream;
    use tokio_rustls::TlsConnector;

    use crate::connection::error::{ConnectError, Peer, printable};
    use crate::connection::stream::Socket;

    #[derive(Clone)]
    pub struct Tls(TlsConnector);

    impl Tls {
        /// Creates settings that trust the root certificates `roots` (PEM), or the root
        /// certificates of the system. If `client` is set, the client presents this certificate and
        /// proves it by this key (both PEM).
        pub fn new(roots: Option<&[u8]>, client: Option<(&[u8], &[u8])>) -> io::Result<Self> {
            let roots = match roots {
                Some(pem) => roots_from_pem(pem)?,
                None => system_roots()?,
            };
            // If the application has installed a cryptography provider for the whole process, the
            // store uses this provider.
            let provider = CryptoProvider::get_default().cloned();
            let provider = provider.unwrap_or_else(|| Arc::new(ring::default_provider()));
            let config = ClientConfig::builder_with_provider(provider)
                .with_safe_default_protocol_versions()
                .map_err(io::Error::other)?
                .with_root_certificates(roots);
            let config = match client {
                Some((chain, key)) => {
                    let chain = CertificateDer::pem_slice_iter(chain).collect::<Result<_, _>>();
                    let chain: Vec<_> = chain.map_err(io::Error::other)?;
                    let key = PrivateKeyDer::from_pem_slice(key).map_err(io::Error::other)?;
                    config.with_client_auth_cert(chain, key).map_err(io::Error::other)?
                }
                None => config.with_no_client_auth(),
            };
            Ok(Self(TlsConnector::from(Arc::new(config))))
        }

        pub(in crate::connection) async fn encrypt(
            &self,
            host: &str,
            stream: TcpStream,
        ) -> io::Result<Socket> {
            let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
            Ok(Socket::Tls(Box::new(self.0.connect(name, stream).await?)))
        }
    }

    /// Returns the error of a connection that could not be encrypted.
    pub(in crate::connection) fn encryption_error(peer: &Peer, error: &io::Error) -> ConnectError {
        let unavailable = ErrorKind::Unavailable;
        let (kind, why) = match error.get_ref().and_then(|inner| inner.downcast_ref()) {
            Some(rustls::Error::InvalidCertificate(error)) => {
                (ErrorKind::Misconfigured, certificate_error(error))
            }
            Some(rustls::Error::AlertReceived(alert)) => alert_error(*alert),
            Some(rustls::Error::InvalidMessage(_)) => {
                (unavailable, "it does not answer in TLS; is it without TLS (`redis://`)?")
            }
            Some(_) => (unavailable, "the connection cannot be encrypted"),
            None => (
                unavailable,
                "it closed the connection before it was encrypted; is it without TLS (`redis://`)?",
            ),
        };
        let message = format!("cannot connect to {peer}: {why}");
        ConnectError::new(kind, message).because(printable(error))
    }

    /// Returns the error of a login that failed because of TLS. With TLS 1.3, a client learns only
    /// during the login that the server refused the client's certificate.
    pub(in crate::connection) fn login_error(
        peer: &Peer,
        error: &RedisError,
    ) -> Option<ConnectError> {
        let cause = error.source()?.downcast_ref::<Arc<dyn StdError + Send + Sync>>()?;
        let cause = cause.downcast_ref::<io::Error>()?;
        cause.get_ref()?.downcast_ref::<rustls::Error>()?;
        Some(encryption_error(peer, cause))
    }

    fn certificate_error(error: &CertificateError) -> &'static str {
        match error {
            CertificateError::UnknownIssuer => "its certificate is not trusted",
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                "its certificate is for another name"
            }
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                "its certificate has expired"
            }
            _ => "its certificate is not valid",
        }
    }

    /// Returns the kind and the description of the error for an alert with which a server ended the
    /// handshake.
    fn alert_error(alert: AlertDescription) -> (ErrorKind, &'static str) {
        match alert {
            AlertDescription::CertificateRequired
            | AlertDescription::NoCertificate
            | AlertDescription::BadCertificate
            | AlertDescription::UnknownCA
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::AccessDenied => {
                (ErrorKind::Misconfigured, "it refuses this client's certificate or requires one")
            }
            _ => (ErrorKind::Unavailable, "it refuses the encryption"),
        }
    }

    fn roots_from_pem(pem: &[u8]) -> io::Result<RootCertStore> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(pem) {
            roots.add(certificate.map_err(io::Error::other)?).map_err(io::Error::other)?;
        }
        if roots.is_empty() {
            return Err(io::Error::other("the root certificates contain no certificate"));
        }
        Ok(roots)
    }

    /// Returns the root certificates of the system. Certificates that cannot be read are ignored.
    /// If no certificate can be read, returns the first error.
    fn system_roots() -> io::Result<RootCertStore> {
        let found = rustls_native_certs::load_native_certs();
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(found.certs);
        match found.errors.into_iter().next() {
            Some(error) if roots.is_empty() => Err(io::Error::other(error)),
            _ => Ok(roots),
        }
    }

    impl fmt::Debug for Tls {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("Tls")
        }
    }
}

/// A placeholder for builds without the feature `tls`, in which no URL can use TLS.
#[cfg(not(feature = "tls"))]
#[derive(Debug, Clone)]
pub struct Tls(());

/// Returns `None`, because without the feature `tls` no login fails because of TLS.
#[cfg(not(feature = "tls"))]
pub(super) fn login_error(_: &Peer, _: &RedisError) -> Option<ConnectError> {
    None
}
