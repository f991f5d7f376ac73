//! Creates root certificates, and certificates that the roots sign.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{BasicConstraints, Certificate, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};

pub(crate) struct Root {
    certificate: Certificate,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key (PEM).
#[derive(Clone)]
pub(crate) struct Issued {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl Root {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // All roots have the same name and differ only in their keys.
        params.distinguished_name.push(DnType::CommonName, "root");
        let key = KeyPair::generate().unwrap();
        Self { certificate: params.self_signed(&key).unwrap(), issuer: Issuer::new(params, key) }
    }

    /// Creates an intermediate authority that this root has signed. Also returns its certificate
    /// (PEM).
    pub(crate) fn intermediate(&self) -> (Self, String) {
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "intermediate");
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let pem = certificate.pem();
        (Self { certificate, issuer: Issuer::new(params, key) }, pem)
    }

    pub(crate) fn pem(&self) -> String {
        self.certificate.pem()
    }

    pub(crate) fn issue(&self, name: &str) -> Issued {
        self.issue_with(name, |_| {})
    }

    pub(crate) fn issue_with(&self, name: &str, change: impl Fn(&mut CertificateParams)) -> Issued {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Issued { certificate: certificate.pem(), key: key.serialize_pem() }
    }

    pub(crate) fn store(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.der().clone()).unwrap();
        roots
    }

    /// Returns the configuration of a client that trusts this root and presents `identity`.
    pub(crate) fn client(&self, identity: Option<&Issued>) -> ClientConfig {
        self.client_of(identity, rustls::ALL_VERSIONS)
    }

    pub(crate) fn client_of(
        &self,
        identity: Option<&Issued>,
        versions: &[&'static SupportedProtocolVersion],
    ) -> ClientConfig {
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(self.store());
        match identity {
            Some(identity) => {
                let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).unwrap();
                builder.with_client_auth_cert(vec![identity.der()], key).unwrap()
            }
            None => builder.with_no_client_auth(),
        }
    }
}

impl Issued {
    pub(crate) fn der(&self) -> CertificateDer<'static> {
        CertificateDer::from_pem_slice(self.certificate.as_bytes()).unwrap()
    }
}

/// A directory like a mounted Kubernetes Secret: the files are links into `..data`, which is a link
/// to a folder. A swap points `..data` to another folder.
pub(crate) struct Files {
    directory: tempfile::TempDir,
}

impl Files {
    pub(crate) fn new(certificate: &str, key: &str, roots: &str) -> Self {
        let files = Self { directory: tempfile::tempdir().unwrap() };
        files.swap(certificate, key, roots);
        for name in ["tls.crt", "tls.key", "ca.crt"] {
            let target = Path::new("..data").join(name);
            std::os::unix::fs::symlink(target, files.path(name)).unwrap();
        }
        files
    }

    pub(crate) fn issued(issued: &Issued, roots: &str) -> Self {
        Self::new(&issued.certificate, &issued.key, roots)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Replaces all files atomically.
    pub(crate) fn swap(&self, certificate: &str, key: &str, roots: &str) {
        let folder = tempfile::Builder::new().prefix("..").tempdir_in(self.directory.path());
        let folder = folder.unwrap().keep();
        for (name, text) in [("tls.crt", certificate), ("tls.key", key), ("ca.crt", roots)] {
            std::fs::write(folder.join(name), text).unwrap();
        }
        std::os::unix::fs::symlink(folder.file_name().unwrap(), self.path("..new")).unwrap();
        std::fs::rename(self.path("..new"), self.path("..data")).unwrap();
    }
}
