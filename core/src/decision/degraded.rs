//! Decisions without the store.

use crate::error::ErrorKind;

/// The way in which a call was decided without the store, and the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Degraded {
    /// The answer that the caller got instead of the store's answer.
    pub answer: DegradedAnswer,
    /// The kind of the error that the store returned.
    pub reason: ErrorKind,
}

impl Degraded {
    /// Creates the description of a decision by `answer`, after an error of kind `reason`.
    #[must_use]
    pub fn new(answer: DegradedAnswer, reason: ErrorKind) -> Self {
        Self { answer, reason }
    }
}

/// The way in which a call was decided without the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DegradedAnswer {
    /// Failed open: the request is admitted.
    FailedOpen,
    /// Failed closed: the request is refused.
    FailedClosed,
    /// A fallback store decided, with a share of the limit.
    FellBack,
}

impl DegradedAnswer {
    #[cfg(feature = "metrics")]
    pub(crate) const ALL: [Self; 3] = [Self::FailedOpen, Self::FailedClosed, Self::FellBack];

    /// Returns the name in logs and metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        // A new variant of this enum must also be added to `ALL`.
        match self {
            Self::FailedOpen => "failed-open",
            Self::FailedClosed => "failed-closed",
            Self::FellBack => "fell-back",
        }
    }
}
