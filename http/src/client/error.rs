//! The error of a request that has no response.

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use tidegate_core::format_duration;

/// The error of a request that has no response: the request was not sent, or the inner client
/// failed.
#[derive(Debug)]
pub struct ClientError<E>(Repr<E>);

#[derive(Debug)]
enum Repr<E> {
    WaitTooLong { wait: Option<Duration>, max_wait: Duration },
    NoSubject,
    Store(tidegate_core::Error),
    Client(E),
}

/// The kind of a [`ClientError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ClientErrorKind {
    /// The request would have to wait longer than the maximum. It was not sent. It was charged only
    /// if its turn had come, and an announced pause then delayed it.
    WaitTooLong,
    /// The request has no subject, because it names no host. The request was not sent.
    NoSubject,
    /// The limiter returned an error: its store failed, or too many callers were already waiting
    /// ([`ErrorKind::TooManyWaiters`](tidegate_core::ErrorKind::TooManyWaiters)). The request was
    /// not sent.
    Store,
    /// The inner client failed.
    Client,
}

impl<E> ClientError<E> {
    pub(super) fn wait_too_long(wait: Option<Duration>, max_wait: Duration) -> Self {
        Self(Repr::WaitTooLong { wait, max_wait })
    }

    pub(super) fn no_subject() -> Self {
        Self(Repr::NoSubject)
    }

    pub(super) fn store(error: tidegate_core::Error) -> Self {
        Self(Repr::Store(error))
    }

    pub(super) fn client(error: E) -> Self {
        Self(Repr::Client(error))
    }

    /// Returns the kind of the error.
    #[must_use]
    pub fn kind(&self) -> ClientErrorKind {
        match self.0 {
            Repr::WaitTooLong { .. } => ClientErrorKind::WaitTooLong,
            Repr::NoSubject => ClientErrorKind::NoSubject,
            Repr::Store(_) => ClientErrorKind::Store,
            Repr::Client(_) => ClientErrorKind::Client,
        }
    }

    /// Returns the wait that exceeds the maximum. Returns `None` if no wait is long enough, or if
    /// the error has another kind.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self.0 {
            Repr::WaitTooLong { wait, .. } => wait,
            _ => None,
        }
    }

    /// Returns the error of the inner client.
    ///
    /// # Errors
    ///
    /// Returns `self` if the error has another kind.
    pub fn into_client(self) -> Result<E, Self> {
        match self.0 {
            Repr::Client(error) => Ok(error),
            _ => Err(self),
        }
    }
}

impl<E> fmt::Display for ClientError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Repr::WaitTooLong { wait: Some(wait), max_wait } => write!(
                f,
                "the request would have to wait {}; the maximum wait is {}",
                format_duration(*wait),
                format_duration(*max_wait)
            ),
            Repr::WaitTooLong { wait: None, .. } => f.write_str(
                "the cost of the request exceeds the limit, so the request is never admitted",
            ),
            Repr::NoSubject => f.write_str("the request names no host"),
            Repr::Store(_) => f.write_str("the limiter returned an error"),
            Repr::Client(_) => f.write_str("the inner client failed"),
        }
    }
}

impl<E: StdError + 'static> StdError for ClientError<E> {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match &self.0 {
            Repr::Store(error) => Some(error),
            Repr::Client(error) => Some(error),
            Repr::WaitTooLong { .. } | Repr::NoSubject => None,
        }
    }
}
