//! Reads the files of certificates and keys.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::{TlsError, TlsSettings};

/// The maximum size of a file in bytes. A Kubernetes Secret can have at most 1 MiB.
const MAX_BYTES: u64 = 1 << 20;

/// The contents of the certificate and key files of a listener.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Contents {
    pub(super) certificate: Vec<u8>,
    pub(super) key: Vec<u8>,
    pub(super) client_roots: Option<Vec<u8>>,
}

impl Contents {
    pub(super) fn read(settings: &TlsSettings) -> Result<Self, TlsError> {
        Ok(Self {
            certificate: read(&settings.certificate)?,
            key: read(&settings.key)?,
            client_roots: settings.client_roots.as_deref().map(read).transpose()?,
        })
    }
}

pub(crate) fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    let failed = |error| TlsError::in_file(path, format!("the file cannot be read: {error}"));
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(failed)?;
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(TlsError::in_file(path, format!("the file has more than {MAX_BYTES} bytes")));
    }
    Ok(bytes)
}
