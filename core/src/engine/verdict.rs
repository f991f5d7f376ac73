//! How a verdict follows from what was decided, for all stores.

use crate::algorithm::traits::Level;
use crate::time::Wait;
use crate::{Outcome, Policy, Verdict};

/// What a verdict is computed from. Times are microseconds since 1970.
#[derive(Debug, Clone, Copy)]
pub struct VerdictInput {
    /// The outcome.
    pub outcome: Outcome,
    /// How long until the cost is admitted, if the subject is not blocked.
    pub wait: Wait,
    /// The level after the decision.
    pub level: Level,
    /// When the state ends under the policy that wrote it, if that is another one.
    pub ends_at: Option<u64>,
    /// When the subject's block ends; 0 for none.
    pub blocked_until: u64,
    /// The time of the decision.
    pub now: u64,
}

impl VerdictInput {
    /// The verdict of `policy`.
    #[must_use]
    #[inline(always)]
    pub fn verdict(self, policy: &Policy) -> Verdict {
        let Self { outcome, mut wait, level, ends_at, blocked_until, now } = self;
        let mut recovers_at = level.recovers_at;
        if let Some(ends_at) = ends_at {
            recovers_at = recovers_at.min(ends_at);
            if wait != Wait::NEVER {
                wait = wait.min(Wait::between(now, ends_at));
            }
        }
        let blocked = Wait::between(now, blocked_until);
        let remaining = if blocked.is_zero() { level.remaining } else { 0 };
        let retry = if outcome == Outcome::Allowed { Wait::ZERO } else { wait.max(blocked) };
        let reset = recovers_at.max(blocked_until).saturating_sub(now);
        Verdict::from_micros(outcome, policy.limit(), remaining, retry, reset)
            .blocked_for_micros(blocked_until.saturating_sub(now))
            .with_shadow_of(policy)
    }
}
