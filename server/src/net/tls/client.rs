//! TLS for connections that this program opens.

use std::path::Path;
use std::sync::Arc;

use rustls::crypto::{CryptoProvider, ring};
use rustls::sign::SingleCertAndKey;
use rustls::{ClientConfig, RootCertStore};

use super::config::{certified_key, root_certificates};
use super::contents::{Contents, read};
use super::{TlsError, TlsSettings};

/// Returns the configuration for connections to a server. The server's certificate must be signed
/// by a root in the file `roots`, or by a root of the system if there is no file. `identity`
/// contains the client certificate and its key.
///
/// # Errors
///
/// Returns an error that names the file and the reason.
pub(crate) fn client_config(
    roots: Option<&Path>,
    identity: Option<(&Path, &Path)>,
) -> Result<ClientConfig, TlsError> {
    let roots = match roots {
        Some(file) => root_certificates(file, &read(file)?)?,
        None => system_roots()?,
    };
    let provider = CryptoProvider::get_default().cloned();
    let provider = provider.unwrap_or_else(|| Arc::new(ring::default_provider()));
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsError::new(error.to_string()))?
        .with_root_certificates(roots);
    let Some((certificate, key)) = identity else { return Ok(builder.with_no_client_auth()) };
    let settings = TlsSettings::new(certificate, key);
    let certified = certified_key(&provider, &settings, &Contents::read(&settings)?)?;
    Ok(builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(certified))))
}

/// Returns the root certificates of the system. Certificates that cannot be read are ignored if
/// there are others.
fn system_roots() -> Result<RootCertStore, TlsError> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let why = found.errors.first().map(ToString::to_string).unwrap_or_default();
        return Err(TlsError::new(format!("the system has no root certificates: {why}")));
    }
    Ok(roots)
}
