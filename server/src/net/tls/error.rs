use std::fmt;
use std::path::Path;

/// The reason why certificates cannot be used. The message names the file and contains no part of a
/// key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsError(String);

impl TlsError {
    pub(super) fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }

    pub(crate) fn in_file(file: &Path, why: impl fmt::Display) -> Self {
        Self(format!("{}: {why}", file.display()))
    }
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for TlsError {}
