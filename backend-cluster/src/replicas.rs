//! Waiting until replicas have what was decided.

use std::time::Duration;

use tidegate_core::{Call, Decision, Error, ErrorKind, Operation};

use crate::errand::Decided;

/// How many replicas shall have a write, and how long that may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Replicas {
    pub(crate) count: u64,
    pub(crate) patience: Duration,
}

impl Replicas {
    /// As WAIT takes it, for which 0 is for ever.
    pub(crate) fn millis(&self) -> u64 {
        u64::try_from(self.patience.as_millis()).unwrap_or(u64::MAX).max(1)
    }

    /// The decision, or an error if it could be lost in a failover and must not be.
    pub(crate) fn check(
        wanted: Option<&Self>,
        call: &Call<'_>,
        decided: Decided,
    ) -> Result<Decision, Error> {
        match wanted {
            Some(wanted) if !wanted.suffices(call, &decided) => Err(wanted.missed(&decided)),
            _ => Ok(decided.told.decision),
        }
    }

    /// Whether enough replicas have what was written. A refusal takes nothing that could be lost.
    pub(crate) fn suffices(&self, call: &Call<'_>, decided: &Decided) -> bool {
        let is_kept = decided.replicas.unwrap_or(0) >= self.count;
        let takes = matches!(call.operation, Operation::Acquire | Operation::Reserve { .. });
        is_kept
            || matches!(call.operation, Operation::Peek | Operation::Undo { .. })
            || takes && decided.told.decision.is_denied()
    }

    pub(crate) fn missed(&self, decided: &Decided) -> Error {
        let (have, wanted, patience) = (decided.replicas.unwrap_or(0), self.count, self.patience);
        Error::new(
            ErrorKind::Unavailable,
            format!(
                "of {wanted} replicas that shall have what was taken {have} had it within \
                 {patience:?}: a failover now would lose it"
            ),
        )
    }
}
