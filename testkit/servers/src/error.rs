//! The error type of this crate.

use std::{error, fmt, io};

/// The error of a server that could not be started or reached, or of a command that has failed.
///
/// The type has no variants, because a test does not handle an error, but fails. The message says
/// what to do. The `Debug` output contains the message and the cause, so that the panic message of
/// `unwrap` is readable.
pub struct Error {
    message: String,
    source: Option<io::Error>,
}

impl Error {
    pub(super) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), source: None }
    }

    /// Creates an error for a failed system call. `attempt` describes the attempted action.
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
