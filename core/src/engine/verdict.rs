//! Computes verdicts. All stores share this code.

use crate::algorithm::traits::Level;
use crate::decision::{Outcome, Verdict, reaches};
use crate::policy::Policy;
use crate::time::Wait;

/// The values from which a verdict is computed. Times are in microseconds since 1970.
#[derive(Debug, Clone, Copy)]
pub struct VerdictInput {
    /// The outcome of the charge.
    pub outcome: Outcome,
    /// The time until the state admits the cost, regardless of a block.
    pub wait: Wait,
    /// The remaining amount of the state after the decision, and the time of its recovery.
    pub level: Level,
    /// The time at which the state recovers under the policy that wrote it. It is `None` if the
    /// charge's policy is the policy that wrote the state.
    pub ends_at: Option<u64>,
    /// The end of the subject's block, or 0 if the subject has no block.
    pub blocked_until: u64,
    /// The number of the subject's offenses, or 0 if the store remembers no offenses.
    pub block_level: u8,
    /// The time of the decision.
    pub now: u64,
}

impl VerdictInput {
    /// Computes the verdict of `policy`.
    #[must_use]
    #[inline(always)]
    pub fn verdict(self, policy: &Policy) -> Verdict {
        let Self { outcome, mut wait, level, ends_at, blocked_until, block_level, now } = self;
        let mut recovers_at = level.recovers_at;
        if let Some(ends_at) = ends_at {
            recovers_at = recovers_at.min(ends_at);
            if wait.as_micros().is_some() {
                wait = wait.min(Wait::between(now, ends_at));
            }
        }
        let blocked = Wait::between(now, blocked_until);
        let remaining = if blocked.is_zero() { level.remaining } else { 0 };
        let retry = if outcome == Outcome::Allowed { Wait::ZERO } else { wait.max(blocked) };
        let reset = recovers_at.max(blocked_until).saturating_sub(now);
        Verdict::from_micros(outcome, policy.limit(), remaining, retry, reset)
            .blocked_for_micros(blocked_until.saturating_sub(now))
            .with_block_level(block_level)
            .with_settings_of(policy)
    }

    /// Computes the verdict of a quota that warns. `total` is the amount that remains if nothing is
    /// used. With grants and rolled-over quota, it is more than the limit.
    #[must_use]
    pub fn verdict_of_quota(self, policy: &Policy, total: u64) -> Verdict {
        let percent = policy.warn_percent().map_or(0, u64::from);
        // If the subject is counted beyond the limit, the percentage counts on the limit itself.
        let limit = total.saturating_sub(policy.raise().unwrap_or(0));
        let warns = reaches(percent, total.saturating_sub(self.level.remaining), limit);
        let verdict = self.verdict(policy);
        verdict.with_warning(warns && verdict.blocked_for().is_zero())
    }
}
