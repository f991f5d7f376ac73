use std::error::Error;
use std::fmt;

/// The reason why a configuration is not valid: the name of the file or resource, the position, and
/// a message.
///
/// If envoyproxy/ratelimit reports the same reason, the message is the same too. `Display` writes
/// all parts in one line, for example `limits.yaml:3:7: descriptor has empty key`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    file: String,
    at: Option<Position>,
    message: String,
}

/// A position in a file: the line and the column, both counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) line: usize,
    pub(crate) column: usize,
}

/// An error at a position. The caller adds the name of the file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) at: Position,
    pub(super) message: String,
}

impl Problem {
    pub(super) fn new(at: Position, message: impl Into<String>) -> Self {
        Self { at, message: message.into() }
    }

    pub(super) fn in_source(self, source: Source<'_>) -> ConfigError {
        let at = source.has_places.then_some(self.at);
        ConfigError { file: source.name.to_owned(), at, message: self.message }
    }
}

/// The source of limits: a file, or a resource of a management server. A resource has no lines and
/// columns.
#[derive(Debug, Clone, Copy)]
pub(super) struct Source<'s> {
    pub(super) name: &'s str,
    pub(super) has_places: bool,
}

impl<'s> Source<'s> {
    pub(super) fn file(name: &'s str) -> Self {
        Self { name, has_places: true }
    }

    pub(super) fn resource(name: &'s str) -> Self {
        Self { name, has_places: false }
    }

    pub(super) fn place(self, at: Position) -> String {
        match self {
            Self { name, has_places: true } => format!("{name}:{}:{}", at.line, at.column),
            Self { name, has_places: false } => name.to_owned(),
        }
    }
}

impl ConfigError {
    /// Creates an error about a whole file or resource.
    pub(crate) fn about_file(file: &str, message: impl Into<String>) -> Self {
        Self { file: file.to_owned(), at: None, message: message.into() }
    }

    /// Returns the name of the file, of the directory that cannot be read, or of the resource.
    #[must_use]
    pub fn file(&self) -> &str {
        &self.file
    }

    /// Returns the line, counted from 1, if the error is about a position in the file.
    #[must_use]
    pub fn line(&self) -> Option<usize> {
        self.at.map(|at| at.line)
    }

    /// Returns the column in characters, counted from 1, if the error is about a position in the
    /// file.
    #[must_use]
    pub fn column(&self) -> Option<usize> {
        self.at.map(|at| at.column)
    }

    /// Returns the message without the position.
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
