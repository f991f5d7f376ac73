//! A verdict with the policy that it is of.

use std::time::Duration;

use super::{Outcome, Verdict};
use crate::Policy;
use crate::policy::Rule;

/// A verdict with its policy: for response headers and messages.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// use std::time::Duration;
/// use tidegate_core::{Limiter, ManualClock};
/// use tidegate_memory::MemoryStore;
///
/// let store = MemoryStore::builder().clock(ManualClock::default()).build();
/// let limiter = Limiter::new(store, ["api: token-bucket 10/s burst 100".parse()?])?;
/// let decision = limiter.subject("alice").cost(40).acquire().await?;
/// for it in limiter.verdicts(&decision) {
///     assert_eq!((it.name(), it.limit(), it.remaining()), ("api", 100, 60));
///     assert_eq!(it.window(), Duration::from_secs(10)); // an empty bucket fills in 10 s
///     assert_eq!(it.next_after(), Duration::from_millis(100));
///     assert_eq!(it.reset_after(), Duration::from_secs(4));
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PolicyVerdict<'a> {
    policy: &'a Policy,
    verdict: &'a Verdict,
    unspent: Option<u64>,
}

impl<'a> PolicyVerdict<'a> {
    pub(super) fn new(policy: &'a Policy, verdict: &'a Verdict, unspent: Option<u64>) -> Self {
        Self { policy, verdict, unspent }
    }

    /// The policy.
    #[must_use]
    pub fn policy(&self) -> &'a Policy {
        self.policy
    }

    /// The policy's name.
    #[must_use]
    pub fn name(&self) -> &'a str {
        self.policy.name()
    }

    /// The verdict.
    #[must_use]
    pub fn verdict(&self) -> &'a Verdict {
        self.verdict
    }

    /// What the policy decided. A [shadow](Self::is_shadow) may deny without refusing.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        self.verdict.outcome()
    }

    /// Whether this policy refuses the request.
    #[must_use]
    pub fn refuses(&self) -> bool {
        !self.verdict.passes()
    }

    /// Whether the policy only reports.
    #[must_use]
    pub fn is_shadow(&self) -> bool {
        self.verdict.is_shadow()
    }

    /// The maximum that is ever admitted at one instant; of a fallback store, its share of that.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.verdict.limit()
    }

    /// The time in which the limit counts: see [`Policy::window`].
    #[must_use]
    pub fn window(&self) -> Duration {
        self.policy.window()
    }

    /// The maximum cost that would still be admitted, rounded down.
    #[must_use]
    pub fn remaining(&self) -> u64 {
        self.verdict.remaining()
    }

    /// How much is held and not yet spent, if the decision says so: see [`Decision::unspent`].
    ///
    /// [`Decision::unspent`]: crate::Decision::unspent
    #[must_use]
    pub fn unspent(&self) -> Option<u64> {
        self.unspent
    }

    /// How long until this charge, alone, is admitted: zero if it is, `None` if it never can be.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.verdict.retry_after()
    }

    /// How long until the subject's state has recovered fully, if nothing more is taken.
    #[must_use]
    pub fn reset_after(&self) -> Duration {
        self.verdict.reset_after()
    }

    /// For how much longer the subject is blocked; zero if it is not.
    #[must_use]
    pub fn blocked_for(&self) -> Duration {
        self.verdict.blocked_for()
    }

    /// A time after which more than [`remaining`](Self::remaining) is admitted, if nothing more is taken; zero if
    /// nothing is missing.
    ///
    /// For fixed windows and buckets it is the shortest such time, to the policy's tick (mostly a microsecond). For
    /// sliding windows, policies with shards and blocked subjects, whose verdicts do not contain it, it is
    /// [`retry_after`](Self::retry_after) of a denied charge, and [`reset_after`](Self::reset_after) of another one.
    #[must_use]
    pub fn next_after(&self) -> Duration {
        let full = self.reset_after().max(self.blocked_for());
        // A cost of 0 is never denied, so after this wait at least 1 more is admitted.
        let retry = self.retry_after().filter(|_| self.outcome() == Outcome::Denied);
        let bound = retry.map_or(full, |retry| retry.min(full));
        if !self.blocked_for().is_zero() {
            return bound;
        }
        let missing = self.limit().saturating_sub(self.remaining());
        let Some(others) = missing.checked_sub(1) else {
            return Duration::ZERO;
        };
        // When the bucket is full, all that is missing has come back: the next token, and then the others.
        let after_the_next = match self.policy.rule() {
            _ if self.policy.shards().is_some() => 0,
            Rule::TokenBucket(rule) => rule.refill_time(others),
            Rule::IntervalBucket(rule) => rule.refill_time(others),
            _ => 0,
        };
        bound.min(full.saturating_sub(Duration::from_micros(after_the_next)))
    }
}
