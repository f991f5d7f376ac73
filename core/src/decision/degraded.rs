//! Decisions without the store.

use crate::error::ErrorKind;

/// The answer and the reason of a decision that was made without the store.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Degraded {
    /// The answer that the caller got instead of the store's answer.
    pub answer: DegradedAnswer,
    /// The kind of the error that the store returned.
    pub reason: ErrorKind,
    /// Whether the fallback store keeps a [hold](crate::Operation::Hold) for this decision. The
    /// hold has slots, and must be extended and settled like a hold of the store.
    pub is_held: bool,
}

impl Degraded {
    /// Creates a description of a decision that was made without the store, and without a hold on a
    /// fallback store. `reason` is the kind of the store's error.
    #[must_use]
    pub fn new(answer: DegradedAnswer, reason: ErrorKind) -> Self {
        Self { answer, reason, is_held: false }
    }
}

/// The answer to a call that was decided without the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DegradedAnswer {
    /// Failed open: the request is admitted.
    FailedOpen,
    /// Failed closed: the request is refused.
    FailedClosed,
    /// A fallback store decided. Its limit is this node's share of the limit.
    FellBack,
}

impl DegradedAnswer {
    #[cfg(feature = "metrics")]
    pub(crate) const ALL: [Self; 3] = [Self::FailedOpen, Self::FailedClosed, Self::FellBack];

    /// Returns the name of the answer that logs and metrics contain.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        // If this enum gets a new variant, the variant must be added to `ALL` too.
        match self {
            Self::FailedOpen => "failed-open",
            Self::FailedClosed => "failed-closed",
            Self::FellBack => "fell-back",
        }
    }
}
