//! Why a request has no response.

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use tidegate_core::format_duration;

/// Why a request has no response: it was not sent, or the client within failed.
#[derive(Debug)]
pub struct ClientError<E>(Repr<E>);

#[derive(Debug)]
enum Repr<E> {
    WaitTooLong { wait: Option<Duration>, max_wait: Duration },
    NoSubject,
    Store(tidegate_core::Error),
    Client(E),
}

/// What kind of failure it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ClientErrorKind {
    /// The wait would be longer than the maximum. The request was not sent, and nothing was charged, unless its
    /// turn had come before the server asked for quiet.
    WaitTooLong,
    /// The request has no subject, as it names no host. It was not sent.
    NoSubject,
    /// The limiter gave no decision: its store failed, or too many callers wait already
    /// ([`ErrorKind::TooManyWaiters`](tidegate_core::ErrorKind::TooManyWaiters)). The request was not sent.
    Store,
    /// The client within failed.
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

    /// What kind of failure it was.
    #[must_use]
    pub fn kind(&self) -> ClientErrorKind {
        match self.0 {
            Repr::WaitTooLong { .. } => ClientErrorKind::WaitTooLong,
            Repr::NoSubject => ClientErrorKind::NoSubject,
            Repr::Store(_) => ClientErrorKind::Store,
            Repr::Client(_) => ClientErrorKind::Client,
        }
    }

    /// How long the request would have to wait, if it was refused for that. `None` if no wait is long enough.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self.0 {
            Repr::WaitTooLong { wait, .. } => wait,
            _ => None,
        }
    }

    /// The error of the client within.
    ///
    /// # Errors
    ///
    /// Gives itself back, if it is of another kind.
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
                "the request would have to wait {}, and the longest wait is {}",
                format_duration(*wait),
                format_duration(*max_wait)
            ),
            Repr::WaitTooLong { wait: None, .. } => {
                f.write_str("the cost of the request is above the limit, and so never admitted")
            }
            Repr::NoSubject => f.write_str("the request names no host to wait for"),
            Repr::Store(_) => f.write_str("the limiter gave no decision"),
            Repr::Client(_) => f.write_str("the client failed"),
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
