//! A call that is remembered under its id.

use crate::Decision;

/// A call that was carried out under an id: what a store keeps to answer it again.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RememberedCall {
    /// The [`Call::fingerprint`](crate::Call::fingerprint).
    pub fingerprint: [u8; 20],
    /// The time from which the call is forgotten: microseconds since 1970. It may be after
    /// [`Timestamp::MAX`](crate::Timestamp::MAX).
    pub expires_at_micros: u64,
    /// The answer.
    pub decision: Decision,
}

impl RememberedCall {
    /// A call to remember.
    #[must_use]
    pub fn new(fingerprint: [u8; 20], expires_at_micros: u64, decision: Decision) -> Self {
        Self { fingerprint, expires_at_micros, decision }
    }
}
