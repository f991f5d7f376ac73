//! Encryption: which certificates are trusted, and why a connection could not be encrypted.

#[cfg(not(feature = "tls"))]
use redis::RedisError;
#[cfg(feature = "tls")]
pub use with::Tls;
#[cfg(feature = "tls")]
pub(super) use with::{of_login, of_tls};

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

    /// What encrypts the connections of a store, if any of them is to be encrypted.
    #[derive(Clone)]
    pub struct Tls(TlsConnector);

    impl Tls {
        /// Trusts these root certificates (PEM), or those that the system trusts, and shows servers the client's
        /// certificate, if there is one, given with its key (PEM).
        ///
        /// # Errors
        ///
        /// If they cannot be read.
        pub fn new(roots: Option<&[u8]>, client: Option<(&[u8], &[u8])>) -> io::Result<Self> {
            let roots = match roots {
                Some(pem) => given(pem)?,
                None => of_the_system()?,
            };
            // What the application has chosen counts.
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

    /// Why a server's connection could not be encrypted.
    pub(in crate::connection) fn of_tls(peer: &Peer, error: &io::Error) -> ConnectError {
        let unavailable = ErrorKind::Unavailable;
        let (kind, why) = match error.get_ref().and_then(|inner| inner.downcast_ref()) {
            Some(rustls::Error::InvalidCertificate(error)) => {
                (ErrorKind::Misconfigured, of_certificate(error))
            }
            Some(rustls::Error::AlertReceived(alert)) => of_alert(*alert),
            Some(rustls::Error::InvalidMessage(_)) => {
                (unavailable, "it does not answer in TLS; does it do without (`redis://`)?")
            }
            Some(_) => (unavailable, "the connection cannot be encrypted"),
            None => (
                unavailable,
                "it closed the connection before it was encrypted; does it do without TLS (`redis://`)?",
            ),
        };
        let message = format!("cannot connect to {peer}: {why}");
        ConnectError::new(kind, message).because(printable(error))
    }

    /// Why a server ended an encrypted connection before it let this client in, if it is for the encryption:
    /// from TLS 1.3 on, a client learns only then that its certificate was refused.
    pub(in crate::connection) fn of_login(peer: &Peer, error: &RedisError) -> Option<ConnectError> {
        let cause = error.source()?.downcast_ref::<Arc<dyn StdError + Send + Sync>>()?;
        let cause = cause.downcast_ref::<io::Error>()?;
        cause.get_ref()?.downcast_ref::<rustls::Error>()?;
        Some(of_tls(peer, cause))
    }

    fn of_certificate(error: &CertificateError) -> &'static str {
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

    /// What a server that ends the handshake says.
    fn of_alert(alert: AlertDescription) -> (ErrorKind, &'static str) {
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
                (ErrorKind::Misconfigured, "it refuses this client's certificate, or wants one")
            }
            _ => (ErrorKind::Unavailable, "it refuses the encryption"),
        }
    }

    fn given(pem: &[u8]) -> io::Result<RootCertStore> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(pem) {
            roots.add(certificate.map_err(io::Error::other)?).map_err(io::Error::other)?;
        }
        if roots.is_empty() {
            return Err(io::Error::other("there is no certificate among the root certificates"));
        }
        Ok(roots)
    }

    /// Those that cannot be read are left out, as long as there are others.
    fn of_the_system() -> io::Result<RootCertStore> {
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

/// Encrypts nothing: without the feature `tls`, no URL asks for it.
#[cfg(not(feature = "tls"))]
#[derive(Debug, Clone)]
pub struct Tls(());

/// Without the feature `tls`, no connection fails for its encryption.
#[cfg(not(feature = "tls"))]
pub(super) fn of_login(_: &Peer, _: &RedisError) -> Option<ConnectError> {
    None
}
