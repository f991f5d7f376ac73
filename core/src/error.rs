use std::error::Error as StdError;
use std::fmt;
use std::iter::successors;
use std::sync::Arc;

/// The failure of a call to a store, or the failure to create a store or a limiter. An error is
/// never a denial, and a denial is never an error.
///
/// [`kind`](Self::kind) tells the caller how to react. An error has the size of one word, because
/// every `Result` of a call reserves space for it, even without an error.
///
/// `{}` shows the kind and the message. `{:#}` also shows all causes in one line. The first cause
/// is the [`source`](std::error::Error::source), for example an error of the system or of the
/// server.
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

// An error has only two small allocations, so that the compiler inlines the code that drops it. A
// `Result` without an error can then stay in registers (measured by `tidegate-bench memory`).
#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    is_definitely_not_charged: bool,
    description: Arc<Description>,
}

#[derive(Clone)]
struct Description {
    message: String,
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

/// Declares the kinds of errors, each with its name in logs and metrics.
macro_rules! kinds {
    ($($(#[$doc:meta])+ $kind:ident = $name:literal,)+) => {
        /// The kind of a failure, which tells the caller how to react.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum ErrorKind {
            $($(#[$doc])+ $kind,)+
        }

        impl ErrorKind {
            #[cfg(feature = "metrics")]
            pub(crate) const ALL: [Self; [$(Self::$kind),+].len()] = [$(Self::$kind),+];

            /// Returns the name of the kind in logs and metrics.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$kind => $name,)+
                }
            }
        }
    };
}

kinds! {
    /// The answer did not arrive in time. The caller does not know whether the charge was made.
    Timeout = "timeout",
    /// The store cannot be reached.
    Unavailable = "unavailable",
    /// The server accepts no writes, for example because the server became a replica in a failover.
    /// Nothing was written.
    ReadOnly = "read-only",
    /// The server is busy with a script or with loading its data. Nothing was written.
    Busy = "busy",
    /// The store has no room for one more state. Nothing was written.
    OutOfMemory = "out-of-memory",
    /// The key has a value that Tidegate did not write. Nothing was written.
    ForeignValue = "foreign-value",
    /// The store does not support this operation or this policy.
    Unsupported = "unsupported",
    /// The server is too old, or lacks a feature that the store needs.
    UnsupportedServer = "unsupported-server",
    /// The call is not valid. For example, it has no charges or too many, or a subject is too long.
    InvalidCall = "invalid-call",
    /// The configuration is not valid. For example, a URL or a policy cannot be parsed, or a
    /// limiter has no policies. Only the functions that create a store or a limiter return this
    /// kind; a call never returns it.
    InvalidConfig = "invalid-config",
    /// The answer of the server does not follow the protocol.
    Protocol = "protocol",
    /// The circuit breaker did not call the store, because the store has failed several times in a
    /// row.
    CircuitOpen = "circuit-open",
    /// The caller cannot wait, because the maximum number of callers is already waiting for
    /// admission.
    TooManyWaiters = "too-many-waiters",
    /// The wait would be longer than the maximum wait, or would never end. Nothing was charged.
    WaitTooLong = "wait-too-long",
    /// The settings do not fit the server, and the message says which setting is wrong. Examples
    /// are a wrong user or password, a missing permission, a missing database, or a certificate
    /// that is not trusted or names another host. A retry can succeed only after the settings or
    /// the server have been changed.
    Misconfigured = "misconfigured",
    /// The store already remembers another call under this id. Nothing was charged.
    IdReused = "id-reused",
    /// The store knows no hold under the id. The hold was never made, has expired, or was lost by
    /// the store. Nothing was charged or refunded. The caller can still
    /// [charge](crate::Operation::Charge) the used cost.
    UnknownHold = "unknown-hold",
    /// The hold was already settled. The failed call tried to extend the hold, or to settle it at
    /// other costs. It charged and refunded nothing. The [`source`](std::error::Error::source) of
    /// the error is an [`AlreadySettled`](crate::AlreadySettled).
    AlreadySettled = "already-settled",
    /// The hold has lapsed and therefore cannot be extended. It can still be settled.
    HoldLapsed = "hold-lapsed",
    /// The subject already has the maximum number of open holds on a policy, so the subject cannot
    /// make another hold. Nothing was charged. See
    /// [`Policy::max_open_holds_of`](crate::Policy::max_open_holds_of).
    TooManyHolds = "too-many-holds",
    /// The subject already has the maximum number of open [grants](crate::Operation::Grant) of a
    /// policy, or the sum of its grants would be too large. Nothing was granted.
    TooManyGrants = "too-many-grants",
}

impl ErrorKind {
    /// Returns `true` if a retry of the same request would fail again, until the request or the
    /// configuration is changed. For such an error, a retry or an admission without the store (fail
    /// open) would only hide the mistake.
    #[must_use]
    pub fn is_invalid_request(self) -> bool {
        use ErrorKind::{AlreadySettled, HoldLapsed, IdReused, TooManyHolds, UnknownHold};
        use ErrorKind::{InvalidCall, InvalidConfig, TooManyGrants, Unsupported};
        matches!(self, Unsupported | InvalidCall | InvalidConfig | TooManyGrants)
            || matches!(self, IdReused | UnknownHold | AlreadySettled | HoldLapsed | TooManyHolds)
    }

    /// Returns `true` if a call that fails with an error of this kind has never charged anything,
    /// so that it can safely be retried. For other kinds, [`Error::is_definitely_not_charged`] can
    /// still be `true` for a single error.
    #[must_use]
    pub fn is_definitely_not_charged(self) -> bool {
        // The match has no wildcard, so that the compiler finds each new kind that is missing here.
        match self {
            Self::Timeout | Self::Unavailable | Self::Protocol => false,
            // A script that lacks a permission can fail between two writes. The call then has
            // possibly made some charges.
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
            | Self::TooManyHolds
            | Self::TooManyGrants => true,
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Error {
    /// Creates an error. The message should name the value and its bound.
    #[must_use]
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        let is_definitely_not_charged = kind.is_definitely_not_charged();
        let description = Arc::new(Description { message: message.into(), source: None });
        Self(Box::new(Inner { kind, is_definitely_not_charged, description }))
    }

    /// Creates the error for a call of a batch that the store has not answered.
    pub(crate) fn no_answer() -> Self {
        let message = "the store returned fewer answers than there were calls";
        Self::new(ErrorKind::Protocol, message)
    }

    /// Returns the answer to a batch of one call.
    pub(crate) fn single<T>(mut answers: Vec<Result<T, Self>>) -> Result<T, Self> {
        answers.pop().unwrap_or_else(|| Err(Self::no_answer()))
    }

    /// Records in the error that the call has certainly charged nothing, for example because it was
    /// not sent.
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

    /// Records in the error that the call has possibly charged its costs to another store.
    pub(crate) fn possibly_charged(mut self) -> Self {
        self.0.is_definitely_not_charged = false;
        self
    }

    /// Returns `true` if the call has certainly charged nothing, so that it can safely be retried.
    /// The result depends on the [kind](ErrorKind::is_definitely_not_charged) of the error. For
    /// some kinds, it also depends on whether the call was sent.
    #[must_use]
    pub fn is_definitely_not_charged(&self) -> bool {
        self.0.is_definitely_not_charged
    }

    /// Sets the cause of the error.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        let description = Arc::make_mut(&mut self.0.description);
        description.source = Some(Arc::from(source.into()));
        self
    }

    /// Returns the kind of the error.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Adds `context` before the message of the error. The kind and the cause stay the same.
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
        let description = Arc::make_mut(&mut self.0.description);
        description.message = format!("{context}: {}", description.message);
        self
    }

    fn causes(&self) -> String {
        let texts = successors(self.source(), |&cause| cause.source());
        texts.map(ToString::to_string).collect::<Vec<_>>().join(": ")
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.0.kind, self.0.description.message)?;
        match self.source() {
            Some(_) if f.alternate() => write!(f, ": {}", self.causes()),
            _ => Ok(()),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { kind, is_definitely_not_charged, description } = &*self.0;
        f.debug_struct("Error")
            .field("kind", kind)
            .field("message", &description.message)
            .field("source", &description.source)
            .field("is_definitely_not_charged", is_definitely_not_charged)
            .finish()
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        let source = self.0.description.source.as_deref()?;
        Some(source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_does_not_change_the_message_and_a_second_cause_replaces_the_first() {
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
    fn certainty_about_a_kind_applies_to_its_errors() {
        for kind in [ErrorKind::Busy, ErrorKind::Unavailable, ErrorKind::Misconfigured] {
            let error = Error::new(kind, "");
            assert_eq!(error.is_definitely_not_charged(), kind.is_definitely_not_charged());
        }
        assert!(!ErrorKind::Misconfigured.is_definitely_not_charged());
    }
}
