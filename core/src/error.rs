use std::error::Error as StdError;
use std::fmt;
use std::iter::successors;
use std::sync::Arc;

/// Why a call to a store has no decision. An error is never a denial, and a denial never an error.
///
/// One word wide, as every result has room for it. [`kind`](Self::kind) says what to do.
///
/// `{}` shows the kind and the message, without the [`source`](std::error::Error::source), the error of the system or
/// the server. `{:#}` shows the message and all causes in one line.
///
/// ```
/// use tidegate_core::{Error, ErrorKind};
///
/// let error = Error::new(ErrorKind::Timeout, "no answer within 50ms");
/// assert_eq!(error.kind(), ErrorKind::Timeout);
/// assert!(!error.kind().is_invalid_request());
/// assert_eq!(error.to_string(), "timeout: no answer within 50ms");
///
/// let error = error.with_source("the network is down");
/// assert_eq!(error.to_string(), "timeout: no answer within 50ms");
/// assert_eq!(format!("{error:#}"), "timeout: no answer within 50ms: the network is down");
/// ```
#[derive(Clone)]
pub struct Error(Box<Inner>);

// Two small allocations make the drop cheap enough to be inlined, so that a result without an error can stay in registers
// (measured by `tidegate-bench memory`).
#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    is_definitely_not_charged: bool,
    what: Arc<What>,
}

#[derive(Clone)]
struct What {
    message: String,
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

/// Kind of failure, which says what can be done about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// No answer in time. It is not known whether the charge was made.
    Timeout,
    /// The store cannot be reached.
    Unavailable,
    /// The server accepts no writes, as a replica after a failover. Nothing was written.
    ReadOnly,
    /// The server is busy with a script or with loading its data. Nothing was written.
    Busy,
    /// The store has no room for one more state. Nothing was written.
    OutOfMemory,
    /// The key has a value that Tidegate did not write. Nothing was written.
    ForeignValue,
    /// The store cannot do this: this operation, or this policy.
    Unsupported,
    /// The server is too old, or lacks something that the store needs.
    UnsupportedServer,
    /// The call is not valid: no charges, too many, a subject that is too long.
    InvalidCall,
    /// The configuration is not valid: a URL or a policy that cannot be parsed, a limiter without
    /// policies. Returned when a store or a limiter is built, never by a call.
    InvalidConfig,
    /// The store's answer cannot be understood.
    Protocol,
    /// The store was not called, as it failed several times in a row.
    CircuitOpen,
    /// The maximum number of callers is waiting already.
    TooManyWaiters,
    /// The wait would be longer than the maximum, or for ever. Nothing was charged.
    WaitTooLong,
    /// The settings do not fit the server: a wrong user or password, a permission that is missing, a
    /// database that does not exist, a certificate that is not trusted or names another host. The message
    /// says which. Trying again helps once the settings or the server have been changed.
    Misconfigured,
    /// The id of the call was used for another call, and is remembered for that one. Nothing was charged.
    IdReused,
    /// No hold is known under the id: it was never made, or has expired, or the store has lost it. Nothing was charged
    /// or given back; what was used can still be [charged](crate::Operation::Charge).
    UnknownHold,
    /// The hold was settled at other costs before, or is to be extended after it was settled. Nothing was charged or
    /// given back now. The [`source`](std::error::Error::source) is an [`AlreadySettled`](crate::AlreadySettled).
    AlreadySettled,
    /// The hold cannot be extended, as its time is over. It can still be settled.
    HoldLapsed,
    /// The subject has the maximum of open holds on a policy, so that it cannot make another one.
    /// Nothing was charged. See [`Policy::max_open_holds_of`](crate::Policy::max_open_holds_of).
    TooManyHolds,
}

impl ErrorKind {
    /// All kinds, in the order of declaration.
    #[cfg(feature = "metrics")]
    pub(crate) const ALL: [Self; 20] = [
        Self::Timeout,
        Self::Unavailable,
        Self::ReadOnly,
        Self::Busy,
        Self::OutOfMemory,
        Self::ForeignValue,
        Self::Unsupported,
        Self::UnsupportedServer,
        Self::InvalidCall,
        Self::InvalidConfig,
        Self::Protocol,
        Self::CircuitOpen,
        Self::TooManyWaiters,
        Self::WaitTooLong,
        Self::Misconfigured,
        Self::IdReused,
        Self::UnknownHold,
        Self::AlreadySettled,
        Self::HoldLapsed,
        Self::TooManyHolds,
    ];

    /// Whether the request or the configuration has to be changed: a retry, or failing open, would only hide the
    /// mistake.
    #[must_use]
    pub fn is_invalid_request(self) -> bool {
        use ErrorKind::{AlreadySettled, HoldLapsed, IdReused, TooManyHolds, UnknownHold};
        use ErrorKind::{InvalidCall, InvalidConfig, Unsupported};
        matches!(self, Unsupported | InvalidCall | InvalidConfig)
            || matches!(self, IdReused | UnknownHold | AlreadySettled | HoldLapsed | TooManyHolds)
    }

    /// Whether nothing was charged for certain with any error of this kind, so that the call may be retried.
    /// [`Error::is_definitely_not_charged`] knows more about a single error.
    #[must_use]
    pub fn is_definitely_not_charged(self) -> bool {
        // No wildcard, so that this has to be decided for a new kind.
        match self {
            Self::Timeout | Self::Unavailable | Self::Protocol => false,
            // A permission may turn out to be missing between two writes of a script.
            Self::Misconfigured => false,
            Self::ReadOnly
            | Self::Busy
            | Self::OutOfMemory
            | Self::ForeignValue
            | Self::Unsupported
            | Self::UnsupportedServer
            | Self::InvalidCall
            | Self::InvalidConfig
            | Self::CircuitOpen
            | Self::TooManyWaiters
            | Self::WaitTooLong
            | Self::IdReused
            | Self::UnknownHold
            | Self::AlreadySettled
            | Self::HoldLapsed
            | Self::TooManyHolds => true,
        }
    }

    /// The name in logs and metrics.
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
            Self::InvalidConfig => "invalid-config",
            Self::Protocol => "protocol",
            Self::CircuitOpen => "circuit-open",
            Self::TooManyWaiters => "too-many-waiters",
            Self::WaitTooLong => "wait-too-long",
            Self::Misconfigured => "misconfigured",
            Self::IdReused => "id-reused",
            Self::UnknownHold => "unknown-hold",
            Self::AlreadySettled => "already-settled",
            Self::HoldLapsed => "hold-lapsed",
            Self::TooManyHolds => "too-many-holds",
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Error {
    /// An error with a message that names the value and its bound.
    #[must_use]
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        let is_definitely_not_charged = kind.is_definitely_not_charged();
        let what = Arc::new(What { message: message.into(), source: None });
        Self(Box::new(Inner { kind, is_definitely_not_charged, what }))
    }

    /// The same error, with which nothing was charged for certain, as of a call that was not sent.
    ///
    /// ```
    /// use tidegate_core::{Error, ErrorKind};
    ///
    /// let error = Error::new(ErrorKind::Unavailable, "no connection");
    /// assert!(!error.is_definitely_not_charged());
    /// assert!(error.definitely_not_charged().is_definitely_not_charged());
    /// ```
    #[must_use]
    pub fn definitely_not_charged(mut self) -> Self {
        self.0.is_definitely_not_charged = true;
        self
    }

    /// Whether nothing was charged for certain, so that the call may be retried. For some kinds this is always so
    /// ([`ErrorKind::is_definitely_not_charged`]), for others only if the call was not sent.
    #[must_use]
    pub fn is_definitely_not_charged(&self) -> bool {
        self.0.is_definitely_not_charged
    }

    /// The same error with its cause.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        let what = Arc::make_mut(&mut self.0.what);
        what.source = Some(Arc::from(source.into()));
        self
    }

    /// The kind.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The same error with `context` before its message. Kind and cause stay.
    ///
    /// ```
    /// use tidegate_core::{Error, ErrorKind};
    ///
    /// let error = Error::new(ErrorKind::Busy, "the server is busy").with_source("BUSY a script runs");
    /// let each = error.clone().with_context("in a batch");
    /// assert_eq!(each.to_string(), "busy: in a batch: the server is busy");
    /// assert_eq!(format!("{each:#}"), "busy: in a batch: the server is busy: BUSY a script runs");
    /// ```
    #[must_use]
    pub fn with_context(mut self, context: impl fmt::Display) -> Self {
        let what = Arc::make_mut(&mut self.0.what);
        what.message = format!("{context}: {}", what.message);
        self
    }

    /// The texts of all causes, in one line.
    fn causes(&self) -> String {
        let texts = successors(self.source(), |&cause| cause.source());
        texts.map(ToString::to_string).collect::<Vec<_>>().join(": ")
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.0.kind, self.0.what.message)?;
        match self.source() {
            Some(_) if f.alternate() => write!(f, ": {}", self.causes()),
            _ => Ok(()),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { kind, is_definitely_not_charged, what } = &*self.0;
        f.debug_struct("Error")
            .field("kind", kind)
            .field("message", &what.message)
            .field("source", &what.source)
            .field("is_definitely_not_charged", is_definitely_not_charged)
            .finish()
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        let source = self.0.what.source.as_deref()?;
        Some(source)
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
        assert_eq!(format!("{error:#}"), "busy: a script runs: another");
    }

    #[test]
    fn a_clone_with_context_keeps_kind_and_source_and_repeats_no_text() {
        let deep = Error::new(ErrorKind::Busy, "inner").with_source("innermost");
        let error = Error::new(ErrorKind::Unavailable, "outer").with_source(deep);
        let each = error.clone().with_context("in a batch");
        assert_eq!(format!("{each:#}"), "unavailable: in a batch: outer: busy: inner: innermost");
        assert_eq!(error.to_string(), "unavailable: outer");
        let source = each.source().and_then(|source| source.downcast_ref::<Error>());
        assert_eq!(source.map(Error::kind), Some(ErrorKind::Busy));
        assert!(!each.is_definitely_not_charged());
        assert!(
            error.definitely_not_charged().clone().with_context("here").is_definitely_not_charged()
        );
    }

    #[test]
    fn what_is_certain_of_a_kind_is_certain_of_its_errors() {
        for kind in [ErrorKind::Busy, ErrorKind::Unavailable, ErrorKind::Misconfigured] {
            let error = Error::new(kind, "");
            assert_eq!(error.is_definitely_not_charged(), kind.is_definitely_not_charged());
        }
        assert!(!ErrorKind::Misconfigured.is_definitely_not_charged());
    }
}
