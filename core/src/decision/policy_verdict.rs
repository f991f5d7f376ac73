//! A verdict together with its policy.

use std::time::Duration;

use super::verdict::{Outcome, Verdict};
use crate::algorithm::rule::Rule;
use crate::policy::Policy;

/// A verdict with its policy, for response headers and messages.
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
/// for verdict in limiter.verdicts(&decision) {
///     assert_eq!((verdict.name(), verdict.limit(), verdict.remaining()), ("api", 100, 60));
///     assert_eq!(verdict.window(), Duration::from_secs(10)); // an empty bucket fills in 10 s
///     assert_eq!(verdict.next_after(), Duration::from_millis(100));
///     assert_eq!(verdict.reset_after(), Duration::from_secs(4));
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

    /// Returns the policy.
    #[must_use]
    pub fn policy(&self) -> &'a Policy {
        self.policy
    }

    /// Returns the name of the policy.
    #[must_use]
    pub fn name(&self) -> &'a str {
        self.policy.name()
    }

    /// Returns the verdict.
    #[must_use]
    pub fn verdict(&self) -> &'a Verdict {
        self.verdict
    }

    /// Returns the outcome. A [shadow](Self::is_shadow) can deny the charge without refusing the
    /// request.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        self.verdict.outcome()
    }

    /// Returns `true` if this policy refuses the request.
    #[must_use]
    pub fn refuses(&self) -> bool {
        !self.verdict.passes()
    }

    /// Returns `true` if the policy is a shadow, which only reports.
    #[must_use]
    pub fn is_shadow(&self) -> bool {
        self.verdict.is_shadow()
    }

    /// Returns `true` if the usage of the subject is at least the percentage of the limit from
    /// which the policy [warns](Policy::warn_at).
    #[must_use]
    pub fn warns(&self) -> bool {
        self.verdict.warns()
    }

    /// Returns the maximum that the policy ever admits at one instant. If a fallback store decided,
    /// this is the fallback store's share of the policy's limit.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.verdict.limit()
    }

    /// Returns the time over which the limit counts: see [`Policy::window`].
    #[must_use]
    pub fn window(&self) -> Duration {
        self.policy.window()
    }

    /// Returns the maximum cost that the policy would still admit, rounded down.
    #[must_use]
    pub fn remaining(&self) -> u64 {
        self.verdict.remaining()
    }

    /// Returns the unspent amount of the subject's open holds, if the decision contains it: see
    /// [`Decision::unspent`].
    ///
    /// [`Decision::unspent`]: crate::Decision::unspent
    #[must_use]
    pub fn unspent(&self) -> Option<u64> {
        self.unspent
    }

    /// Returns the wait until this charge is admitted, if nothing else is charged. It is zero if
    /// the charge is admitted now, and `None` if the charge is never admitted.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.verdict.retry_after()
    }

    /// Returns the time until the subject's state has recovered fully, if nothing more is charged.
    #[must_use]
    pub fn reset_after(&self) -> Duration {
        self.verdict.reset_after()
    }

    /// Returns how much longer the subject is blocked, or zero if it is not blocked.
    #[must_use]
    pub fn blocked_for(&self) -> Duration {
        self.verdict.blocked_for()
    }

    /// Returns the number of offenses of the subject: see [`Verdict::block_level`].
    #[must_use]
    pub fn block_level(&self) -> u8 {
        self.verdict.block_level()
    }

    /// Returns a time after which the policy admits more than [`remaining`](Self::remaining), if
    /// nothing more is charged. Returns zero if the full limit remains.
    ///
    /// For fixed windows and buckets, this is the shortest such time, exact to the policy's tick
    /// (usually a microsecond). For fair pools, it is the start of the next window. For sliding
    /// windows, policies with shards and blocked subjects, the verdict does not contain the
    /// shortest time. The method then returns
    /// [`retry_after`](Self::retry_after) if the charge was denied, and
    /// [`reset_after`](Self::reset_after) if it was admitted.
    #[must_use]
    pub fn next_after(&self) -> Duration {
        let full = self.reset_after().max(self.blocked_for());
        // A denied cost is above the remaining amount, and is admitted after `retry_after`. So the
        // policy then admits more than now.
        let is_denied = |wait: &Duration| match self.outcome() {
            Outcome::Denied => true,
            Outcome::Skipped => !wait.is_zero(),
            _ => false,
        };
        let retry = self.retry_after().filter(is_denied);
        let bound = retry.map_or(full, |retry| retry.min(full));
        if !self.blocked_for().is_zero() {
            return bound;
        }
        let missing = self.limit().saturating_sub(self.remaining());
        let Some(others) = missing.checked_sub(1) else {
            return Duration::ZERO;
        };
        // `full` is the time until the bucket is full. All other missing tokens are refilled after
        // the next token, so their refill time is subtracted from `full`.
        let after_the_next = match self.policy.rule() {
            _ if self.policy.shards().is_some() => 0,
            Rule::TokenBucket(rule) => rule.refill_time(others),
            Rule::IntervalBucket(rule) => rule.refill_time(others),
            // The demands of this window count in the next window, in which more remains.
            Rule::FairPool(rule) if full > self.policy.window() => rule.window_micros(),
            _ => 0,
        };
        bound.min(full.saturating_sub(Duration::from_micros(after_the_next)))
    }
}
