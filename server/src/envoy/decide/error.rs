use std::error::Error;
use std::fmt;

/// The reason why a request is not valid. If envoyproxy/ratelimit reports the same reason, the
/// message is the same too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestError(String);

impl RequestError {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for RequestError {}

/// The reason why a request was not decided.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum DecideError {
    /// The request is not valid.
    Request(RequestError),
    /// The store failed.
    Store(tidegate_core::Error),
}

impl fmt::Display for DecideError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request(error) => error.fmt(f),
            Self::Store(error) => write!(f, "{error:#}"),
        }
    }
}

impl Error for DecideError {}

impl From<RequestError> for DecideError {
    fn from(error: RequestError) -> Self {
        Self::Request(error)
    }
}

impl From<tidegate_core::Error> for DecideError {
    fn from(error: tidegate_core::Error) -> Self {
        Self::Store(error)
    }
}
