use std::path::PathBuf;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

use crate::net::tls::{TlsError, read_file};

/// The encryption of connections to a management server. For each new connection, the client reads
/// the files with the root certificates, the client certificate and the private key again.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct XdsTls {
    /// The file with the root certificates for the management server (PEM); `None` for the roots of
    /// the system.
    pub roots: Option<PathBuf>,
    /// The files with the client certificate and its private key (PEM).
    pub identity: Option<(PathBuf, PathBuf)>,
    /// The name that the management server's certificate must contain; `None` for the host of its
    /// address.
    pub server_name: Option<String>,
}

impl XdsTls {
    pub(super) fn on(&self, endpoint: Endpoint) -> Result<Endpoint, String> {
        let config = self.config().map_err(|error| error.to_string())?;
        endpoint.tls_config(config).map_err(|error| super::client::with_causes(&error))
    }

    fn config(&self) -> Result<ClientTlsConfig, TlsError> {
        let mut config = ClientTlsConfig::new();
        config = match &self.roots {
            None => config.with_native_roots(),
            Some(file) => {
                let pem = read_file(file)?;
                let roots = CertificateDer::pem_slice_iter(&pem).collect::<Result<Vec<_>, _>>();
                if !roots.is_ok_and(|roots| !roots.is_empty()) {
                    return Err(TlsError::in_file(file, "there is no certificate in it (PEM)"));
                }
                config.ca_certificate(Certificate::from_pem(pem))
            }
        };
        if let Some((certificate, key)) = &self.identity {
            config = config.identity(Identity::from_pem(read_file(certificate)?, read_file(key)?));
        }
        if let Some(name) = &self.server_name {
            config = config.domain_name(name);
        }
        Ok(config)
    }
}
