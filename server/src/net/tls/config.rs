//! Creates the rustls configuration from the contents of files.

use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ServerConfig, WebPkiClientVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{Error, InconsistentKeys, RootCertStore};

use super::contents::Contents;
use super::names::NamedClients;
use super::{Protocol, TlsError, TlsSettings, expiry};

/// Returns the configuration of connections and the time at which the certificate expires. The time
/// is `None` if it cannot be read.
pub(super) fn server_config(
    protocol: Protocol,
    settings: &TlsSettings,
    contents: &Contents,
) -> Result<(ServerConfig, Option<SystemTime>), TlsError> {
    // If the program has installed a cryptography provider, this function uses it instead of
    // `ring`.
    let provider = CryptoProvider::get_default().cloned();
    let provider = provider.unwrap_or_else(|| Arc::new(ring::default_provider()));
    let certified = certified_key(&provider, settings, contents)?;
    let expires = certified.cert.first().and_then(|certificate| expiry::not_after(certificate));
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsError::new(error.to_string()))?;
    let builder = match verifier(&provider, settings, contents)? {
        Some(verifier) => builder.with_client_cert_verifier(verifier),
        None => builder.with_no_client_auth(),
    };
    let mut config = builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
    config.alpn_protocols = protocol.alpn();
    Ok((config, expires))
}

pub(super) fn certified_key(
    provider: &CryptoProvider,
    settings: &TlsSettings,
    contents: &Contents,
) -> Result<CertifiedKey, TlsError> {
    let (file, key_file) = (&settings.certificate, &settings.key);
    let chain = certificates(file, &contents.certificate)?;
    let key = PrivateKeyDer::from_pem_slice(&contents.key).map_err(|error| {
        let why = match error {
            pem::Error::NoItemsFound if is_encrypted(&contents.key) => "the key needs a passphrase",
            pem::Error::NoItemsFound => "there is no private key in it (PEM)",
            _ => NOT_PEM,
        };
        TlsError::in_file(key_file, why)
    })?;
    let key = provider.key_provider.load_private_key(key);
    let key = key.map_err(|_| TlsError::in_file(key_file, "the private key is not valid"))?;
    let certified = CertifiedKey::new(chain, key);
    match certified.keys_match() {
        Ok(()) | Err(Error::InconsistentKeys(InconsistentKeys::Unknown)) => Ok(certified),
        Err(Error::InconsistentKeys(_)) => {
            let why =
                format!("the private key does not belong to the certificate in {}", file.display());
            Err(TlsError::in_file(key_file, why))
        }
        Err(error) => Err(not_a_certificate(file, &error)),
    }
}

const NOT_PEM: &str = "it is not PEM: a section has no end, or is not base64";

fn is_encrypted(pem: &[u8]) -> bool {
    String::from_utf8_lossy(pem).contains("ENCRYPTED PRIVATE KEY")
}

fn not_a_certificate(file: &Path, error: &Error) -> TlsError {
    TlsError::in_file(file, format!("the certificate is not valid: {error}"))
}

fn certificates(file: &Path, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let chain = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
    let chain = chain.map_err(|_| TlsError::in_file(file, NOT_PEM))?;
    if chain.is_empty() {
        return Err(TlsError::in_file(file, "there is no certificate in it (PEM)"));
    }
    Ok(chain)
}

/// Returns the root certificates of a file.
pub(super) fn root_certificates(file: &Path, pem: &[u8]) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(file, pem)? {
        roots.add(certificate).map_err(|error| not_a_certificate(file, &error))?;
    }
    Ok(roots)
}

/// Returns the verifier of client certificates, or `None` if clients need no certificate.
fn verifier(
    provider: &Arc<CryptoProvider>,
    settings: &TlsSettings,
    contents: &Contents,
) -> Result<Option<Arc<dyn ClientCertVerifier>>, TlsError> {
    let name = settings.client_name.as_deref().map(|name| {
        ServerName::try_from(name.to_owned()).map_err(|_| {
            TlsError::new(format!("`{name}` is not a DNS name or an IP address of clients"))
        })
    });
    let name = name.transpose()?;
    let (Some(file), Some(pem)) = (&settings.client_roots, &contents.client_roots) else {
        return match name {
            Some(_) => {
                let why =
                    "a name of clients is required, but there are no root certificates of clients";
                Err(TlsError::new(why))
            }
            None => Ok(None),
        };
    };
    let roots = Arc::new(root_certificates(file, pem)?);
    let verifier = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(provider)).build();
    let verifier = verifier.map_err(|error| TlsError::in_file(file, error))?;
    Ok(Some(match name {
        Some(name) => Arc::new(NamedClients::new(verifier, name)),
        None => verifier,
    }))
}
