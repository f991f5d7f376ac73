//! Why the reading of an input ended before its end.

use std::{fmt, io};

/// An input that could not be read to its end. The message names the input and, where there is
/// one, the line.
#[derive(Debug)]
pub struct Error {
    inner: Box<Inner>,
}

#[derive(Debug)]
struct Inner {
    kind: ErrorKind,
    message: String,
    source: Option<io::Error>,
}

/// What sort of error it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// An input that cannot be opened, read or decompressed.
    Unreadable,
    /// An input in none of the known formats.
    UnknownFormat,
    /// A field that the options name, or that is needed, and that the input does not have.
    UnknownField,
    /// No field of the input is known to be the subject, and the options name none.
    UnknownSubject,
    /// Times that are plain numbers in a unit that is not plain from their size.
    UnclearUnit,
    /// A malformed line, where the options are strict.
    Malformed,
    /// More subjects than can be told apart.
    TooManySubjects,
}

impl Error {
    pub(super) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { inner: Box::new(Inner { kind, message: message.into(), source: None }) }
    }

    pub(super) fn with_source(
        kind: ErrorKind,
        message: impl Into<String>,
        source: io::Error,
    ) -> Self {
        let message = message.into();
        Self { inner: Box::new(Inner { kind, message, source: Some(source) }) }
    }

    /// The same error, with the place where it arose in front of its message.
    pub(super) fn at(mut self, place: impl fmt::Display) -> Self {
        self.inner.message = format!("{place}: {}", self.inner.message);
        self
    }

    /// What sort of error it is.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.inner.kind
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.inner.message)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.inner.source.as_ref().map(|source| source as _)
    }
}
