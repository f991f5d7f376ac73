//! Encryption: which certificates are trusted.

#[cfg(feature = "tls")]
pub use with::Tls;

#[cfg(feature = "tls")]
mod with {
    use std::fmt;
    use std::io;
    use std::sync::Arc;

    use redis::RedisError;
    use rustls::crypto::{CryptoProvider, ring};
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, ServerName};
    use rustls::{ClientConfig, RootCertStore};
    use tokio::net::TcpStream;
    use tokio_rustls::TlsConnector;

    use crate::connection::stream::Socket;

    /// What encrypts the connections of a store, if any of them is to be encrypted.
    #[derive(Clone)]
    pub struct Tls(TlsConnector);

    impl Tls {
        /// Trusts these root certificates (PEM), or those that the system trusts.
        ///
        /// # Errors
        ///
        /// If they cannot be read.
        pub fn new(roots: Option<&[u8]>) -> Result<Self, RedisError> {
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
                .with_root_certificates(roots)
                .with_no_client_auth();
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
