//! The error of an invalid name or unit.

use std::fmt;

/// The error if no field can contain the name of a policy or of a unit.
///
/// A string in a structured field consists of printable ASCII characters (RFC 9651, section 3.3.3).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldError {
    message: Box<str>,
}

impl FieldError {
    pub(super) fn new(message: impl Into<Box<str>>) -> Self {
        Self { message: message.into() }
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for FieldError {}
