use std::error::Error;
use std::fmt;

/// Why a configuration is not valid: the file, the place in it, and a message.
///
/// The messages are those of envoyproxy/ratelimit where it has one. `{}` shows all in one line,
/// `limits.yaml:3:7: descriptor has empty key`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    file: String,
    at: Option<Position>,
    message: String,
}

/// A place in a file: line and column, both from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) line: usize,
    pub(crate) column: usize,
}

/// An error at a place of a file that is known further up.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) at: Position,
    pub(super) message: String,
}

impl Problem {
    pub(super) fn new(at: Position, message: impl Into<String>) -> Self {
        Self { at, message: message.into() }
    }

    pub(super) fn in_file(self, file: &str) -> ConfigError {
        ConfigError { file: file.to_owned(), at: Some(self.at), message: self.message }
    }
}

impl ConfigError {
    /// An error about a file as a whole.
    pub(super) fn about_file(file: &str, message: impl Into<String>) -> Self {
        Self { file: file.to_owned(), at: None, message: message.into() }
    }

    /// The file, or the directory that cannot be read.
    #[must_use]
    pub fn file(&self) -> &str {
        &self.file
    }

    /// The line, from 1, if the error is about a place in the file.
    #[must_use]
    pub fn line(&self) -> Option<usize> {
        self.at.map(|at| at.line)
    }

    /// The column in characters, from 1, if the error is about a place in the file.
    #[must_use]
    pub fn column(&self) -> Option<usize> {
        self.at.map(|at| at.column)
    }

    /// What is wrong, without the place.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if let Some(Position { line, column }) = self.at {
            write!(f, ":{line}:{column}")?;
        }
        write!(f, ": {}", self.message)
    }
}

impl Error for ConfigError {}
