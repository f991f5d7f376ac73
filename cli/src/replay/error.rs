use std::{fmt, io};

use crate::{suggest, trace};

/// The reason why a replay ended early.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The input could not be read.
    Trace(trace::Error),
    /// The store returned no decision.
    Store(tidegate_core::Error),
    /// A time, a cost or a sum of costs is too large for the calculation of the suggested limits.
    Suggest(suggest::Error),
    /// The decisions could not be written to a temporary file.
    Decisions(io::Error),
    /// A [`Stop`](trace::Stop) ended the replay.
    Stopped,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Trace(error) => error.fmt(f),
            Self::Store(error) => error.fmt(f),
            Self::Suggest(error) => error.fmt(f),
            Self::Decisions(error) => write!(f, "the decisions cannot be kept: {error}"),
            Self::Stopped => f.write_str("the replay was stopped"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Trace(error) => error.source(),
            Self::Store(error) => error.source(),
            Self::Suggest(error) => error.source(),
            Self::Decisions(error) => Some(error),
            Self::Stopped => None,
        }
    }
}

impl From<trace::Error> for Error {
    fn from(error: trace::Error) -> Self {
        Self::Trace(error)
    }
}

impl From<tidegate_core::Error> for Error {
    fn from(error: tidegate_core::Error) -> Self {
        Self::Store(error)
    }
}

impl From<suggest::Error> for Error {
    fn from(error: suggest::Error) -> Self {
        Self::Suggest(error)
    }
}
