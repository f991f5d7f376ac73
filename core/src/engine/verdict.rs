//! Computes verdicts. All stores share this code.

use crate::algorithm::traits::Level;
use crate::decision::{Outcome, Verdict};
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
            .with_shadow_of(policy)
            .with_warning(blocked.is_zero() && warns(level, policy))
    }
}

/// Returns `true` if the used amount is at least the percentage from which the policy warns.
#[inline(always)]
fn warns(level: Level, policy: &Policy) -> bool {
    policy.warn_percent().is_some_and(|percent| {
        let max = level.total.unwrap_or(policy.limit());
        // If the subject is counted beyond the limit, the percentage counts on the limit itself.
        let total = max.saturating_sub(policy.raise().unwrap_or(0));
        let used = max.saturating_sub(level.remaining);
        // Both numbers are at most 2^53, so the products fit.
        total > 0 && used * 100 >= total * u64::from(percent)
    })
}
