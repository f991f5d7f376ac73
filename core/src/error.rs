use std::error::Error as StdError;
use std::fmt;

/// Why a call to a store has no decision. An error is never a denial, and a denial never an error.
///
/// One word wide, since it travels in every result. [`kind`](Self::kind) says what to do.
///
/// ```
/// use tidegate_core::{Error, ErrorKind};
///
/// let error = Error::new(ErrorKind::Timeout, "no answer within 50ms");
/// assert_eq!(error.kind(), ErrorKind::Timeout);
/// assert!(!error.kind().is_callers_mistake());
/// assert_eq!(error.to_string(), "timeout: no answer within 50ms");
/// ```
#[derive(Debug)]
pub struct Error(Box<Inner>);

/// (To drop this takes so little that it is done where an error might be: so none has to be in memory
/// there, nor the decision that is in its place.)
#[derive(Debug)]
struct Inner {
    kind: ErrorKind,
    what: Box<dyn StdError + Send + Sync>,
}

/// A message with its cause.
#[derive(Debug)]
struct Caused {
    message: String,
    source: Box<dyn StdError + Send + Sync>,
}

/// What kind of failure it was, and so what can be done about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// No answer in time. Whether the charge was made is not known.
    Timeout,
    /// The store cannot be reached.
    Unavailable,
    /// The server takes no writes, as a replica after a failover. Nothing was written.
    ReadOnly,
    /// The server is busy with a script or with loading its data. Nothing was written.
    Busy,
    /// The store has no room for one more state. Nothing was written.
    OutOfMemory,
    /// Something that is not ours lies under the key. Nothing was written.
    ForeignValue,
    /// The store cannot do this: this operation, or this policy.
    Unsupported,
    /// The server is too old, or lacks something that the store needs.
    UnsupportedServer,
    /// The call itself is wrong: no charges, too many, a subject that is too long.
    InvalidCall,
    /// The store's answer makes no sense.
    Protocol,
    /// The store was not asked: it failed too often just now.
    CircuitOpen,
    /// As many callers as may wait are waiting already.
    TooManyWaiters,
    /// The wait would be longer than the caller allows, or for ever. Nothing was charged.
    WaitTooLong,
}

impl ErrorKind {
    /// All kinds, in the order in which they are declared.
    #[cfg(feature = "metrics")]
    pub(crate) const ALL: [Self; 13] = [
        Self::Timeout,
        Self::Unavailable,
        Self::ReadOnly,
        Self::Busy,
        Self::OutOfMemory,
        Self::ForeignValue,
        Self::Unsupported,
        Self::UnsupportedServer,
        Self::InvalidCall,
        Self::Protocol,
        Self::CircuitOpen,
        Self::TooManyWaiters,
        Self::WaitTooLong,
    ];

    /// Whether the caller is at fault, so that trying again, or failing open, would only hide it.
    #[must_use]
    pub fn is_callers_mistake(self) -> bool {
        matches!(self, Self::Unsupported | Self::InvalidCall)
    }

    /// Whether it is certain that nothing was charged, so that the call may be made again.
    #[must_use]
    pub fn is_surely_not_charged(self) -> bool {
        // Of a new kind, this has to be decided: no arm takes all the rest.
        match self {
            Self::Timeout | Self::Unavailable | Self::Protocol => false,
            Self::ReadOnly
            | Self::Busy
            | Self::OutOfMemory
            | Self::ForeignValue
            | Self::Unsupported
            | Self::UnsupportedServer
            | Self::InvalidCall
            | Self::CircuitOpen
            | Self::TooManyWaiters
            | Self::WaitTooLong => true,
        }
    }

    /// A word for logs and metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        // A new kind also goes into `ALL`.
        match self {
            Self::Timeout => "timeout",
            Self::Unavailable => "unavailable",
            Self::ReadOnly => "read-only",
            Self::Busy => "busy",
            Self::OutOfMemory => "out-of-memory",
            Self::ForeignValue => "foreign-value",
            Self::Unsupported => "unsupported",
            Self::UnsupportedServer => "unsupported-server",
            Self::InvalidCall => "invalid-call",
            Self::Protocol => "protocol",
            Self::CircuitOpen => "circuit-open",
            Self::TooManyWaiters => "too-many-waiters",
            Self::WaitTooLong => "wait-too-long",
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Error {
    /// An error of a kind, with a message that names the offending value and the bound it broke.
    #[must_use]
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(Box::new(Inner { kind, what: message.into().into() }))
    }

    /// The same error with its cause.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        let (message, source) = (self.0.what.to_string(), source.into());
        self.0.what = Box::new(Caused { message, source });
        self
    }

    /// What kind of failure it was.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.0.kind, self.0.what)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.what.source()
    }
}

impl fmt::Display for Caused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl StdError for Caused {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&*self.source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_leaves_the_message_as_it_is_and_the_last_one_counts() {
        let error = Error::new(ErrorKind::Busy, "a script runs");
        assert!(error.source().is_none());
        let error = error.with_source("one").with_source("another");
        assert_eq!(error.to_string(), "busy: a script runs");
        assert_eq!(error.source().map(ToString::to_string).as_deref(), Some("another"));
    }
}
