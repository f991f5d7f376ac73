//! Waiting for replicas to acknowledge a write, by WAIT.

use std::time::Duration;

use tidegate_core::{Call, Decision, Error, ErrorKind, Operation};

use crate::dispatch::request::SlotDecision;

/// The number of replicas that must acknowledge a write, and the time for it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Replicas {
    pub(crate) count: u64,
    pub(crate) timeout: Duration,
}

impl Replicas {
    /// Returns the timeout of WAIT in milliseconds. It is at least 1, because 0 means no timeout.
    pub(crate) fn millis(&self) -> u64 {
        u64::try_from(self.timeout.as_millis()).unwrap_or(u64::MAX).max(1)
    }

    /// Returns the decision, or an error if too few replicas have the write.
    pub(crate) fn check(
        wanted: Option<&Self>,
        call: &Call<'_>,
        decided: SlotDecision,
    ) -> Result<Decision, Error> {
        match wanted {
            Some(wanted) if !wanted.suffices(call, &decided) => Err(wanted.error(&decided)),
            _ => Ok(decided.reply.decision),
        }
    }

    /// Returns `true` if enough replicas have the write, or if a failover that loses it would admit
    /// nothing more, as after a refusal, a peek or an undo.
    pub(crate) fn suffices(&self, call: &Call<'_>, decided: &SlotDecision) -> bool {
        let is_kept = decided.replicas.unwrap_or(0) >= self.count;
        is_kept
            || matches!(call.operation, Operation::Peek | Operation::Undo { .. })
            || call.operation.is_acquire() && decided.reply.decision.is_denied()
    }

    pub(crate) fn error(&self, decided: &SlotDecision) -> Error {
        let (have, wanted, timeout) = (decided.replicas.unwrap_or(0), self.count, self.timeout);
        Error::new(
            ErrorKind::Unavailable,
            format!(
                "{have} of {wanted} required replicas acknowledged the write within {timeout:?}; a failover now would \
                 lose it"
            ),
        )
    }
}
