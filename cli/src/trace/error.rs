//! The errors that end the reading of an input.

use std::{fmt, io};

/// An error that ends the reading of an input. The message names the input and, if there is one,
/// the line.
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

/// The kind of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// An input cannot be opened, read or decompressed.
    Unreadable,
    /// The format of an input is unknown.
    UnknownFormat,
    /// An input does not have a field that the options name or that the reader needs.
    UnknownField,
    /// No field of the input is known to be the subject, and the options do not name a field.
    UnknownSubject,
    /// Times are plain numbers, and their unit cannot be derived from their size.
    UnclearUnit,
    /// A line is malformed, and the options are strict.
    Malformed,
    /// There are too many subjects.
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

    /// Returns this error with a prefix before its message, such as the name of the input.
    pub(super) fn at(mut self, place: impl fmt::Display) -> Self {
        self.inner.message = format!("{place}: {}", self.inner.message);
        self
    }

    /// Returns the kind of the error.
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
