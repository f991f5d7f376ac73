//! Uses the Redis command WAIT to require that replicas acknowledge each write.

use std::time::Duration;

use tidegate_core::{Call, Decision, Error, ErrorKind, Operation};

use crate::dispatch::request::SlotDecision;

/// The number of replicas that must acknowledge a write, and the maximum time of WAIT.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Replicas {
    pub(crate) count: u64,
    pub(crate) timeout: Duration,
}

impl Replicas {
    /// Returns the timeout of WAIT in milliseconds. The timeout is at least 1, because WAIT with
    /// the timeout 0 waits forever.
    pub(crate) fn millis(&self) -> u64 {
        u64::try_from(self.timeout.as_millis()).unwrap_or(u64::MAX).max(1)
    }

    /// Returns the decision on a call, or an error if fewer replicas than `wanted` have
    /// acknowledged the write of the call.
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

    /// Returns `true` if enough replicas have acknowledged the write of the call. Also returns
    /// `true` for a refused call, a peek and an undo: if a failover loses one of them, nothing is
    /// admitted beyond the limit.
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
