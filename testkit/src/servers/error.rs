//! What goes wrong with a server.

use std::{error, fmt, io};

/// A server could not be started, reached or told.
///
/// It is opaque: a test that meets it fails, and its message says what to do. `Debug` prints that message
/// and its causes too, so that `unwrap` shows it as it is meant to be read.
pub struct Error {
    message: String,
    source: Option<io::Error>,
}

impl Error {
    pub(super) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), source: None }
    }

    /// A failed action of the system, and what was attempted.
    pub(super) fn io(attempt: impl Into<String>, source: io::Error) -> Self {
        Self { message: attempt.into(), source: Some(source) }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match &self.source {
            Some(source) => write!(f, ": {source}"),
            None => Ok(()),
        }
    }
}

impl error::Error for Error {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        self.source.as_ref().map(|source| source as _)
    }
}
