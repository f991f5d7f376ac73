//! A rule: one of the algorithms, with its numbers.

use super::concurrent::ConcurrentRule;
use super::fair_pool::{FairPoolRule, MemberId};
use super::fixed_window::FixedWindowRule;
use super::interval_bucket::IntervalBucketRule;
use super::quota::QuotaRule;
use super::shape::StateShape;
use super::sliding_counter::SlidingCounterRule;
use super::sliding_log::SlidingLogRule;
use super::token_bucket::TokenBucketRule;
use super::traits::Algorithm;

/// One of the algorithms, with the numbers of a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rule {
    /// A fixed window.
    FixedWindow(FixedWindowRule),
    /// A sliding log.
    SlidingLog(SlidingLogRule),
    /// A sliding counter.
    SlidingCounter(SlidingCounterRule),
    /// A token bucket with continuous refill, or GCRA.
    TokenBucket(TokenBucketRule),
    /// A token bucket that refills by intervals.
    IntervalBucket(IntervalBucketRule),
    /// Slots.
    Concurrent(ConcurrentRule),
    /// A quota over the calendar.
    Quota(QuotaRule),
    /// A fair pool.
    FairPool(FairPoolRule),
}

/// Matches a rule, and evaluates the same expression for each algorithm. The caller can give
/// another expression for the sliding log, for slots, for quotas and for fair pools, because their
/// states are never packed into two words.
macro_rules! dispatch {
    ($rule:expr, |$any:ident| $expression:expr) => {
        dispatch!($rule, |$any| $expression, boxed $any => $expression)
    };
    ($rule:expr, |$packed:ident| $expression:expr, boxed $boxed:pat => $boxed_expression:expr) => {
        match $rule {
            $crate::algorithm::rule::Rule::TokenBucket($packed) => $expression,
            $crate::algorithm::rule::Rule::SlidingCounter($packed) => $expression,
            $crate::algorithm::rule::Rule::FixedWindow($packed) => $expression,
            $crate::algorithm::rule::Rule::IntervalBucket($packed) => $expression,
            $crate::algorithm::rule::Rule::SlidingLog($boxed) => $boxed_expression,
            $crate::algorithm::rule::Rule::Concurrent($boxed) => $boxed_expression,
            $crate::algorithm::rule::Rule::Quota($boxed) => $boxed_expression,
            $crate::algorithm::rule::Rule::FairPool($boxed) => $boxed_expression,
        }
    };
}
pub(crate) use dispatch;

impl Rule {
    /// Returns the maximum cost that the rule ever admits at one instant.
    #[must_use]
    pub fn limit(&self) -> u64 {
        dispatch!(self, |rule| Algorithm::limit(rule))
    }

    /// Returns the limit at `now`, in microseconds since 1970. It differs from
    /// [`limit`](Self::limit) only in the pro-rated window of a quota.
    #[must_use]
    pub fn limit_at(&self, now: u64) -> u64 {
        match self {
            Self::Quota(rule) => rule.limit_at(now),
            rule => rule.limit(),
        }
    }

    /// Returns the resolution of the rule: the number of microseconds in a tick.
    #[must_use]
    pub fn tick(&self) -> u64 {
        dispatch!(self, |rule| Algorithm::tick(rule))
    }

    /// Returns the shape of the states under this rule.
    #[must_use]
    pub fn shape(&self) -> StateShape {
        dispatch!(self, |rule| rule.shape())
    }

    /// Returns `true` if the rule supports reservations. Only the rules of buckets do.
    #[must_use]
    pub fn can_reserve(&self) -> bool {
        fn can_reserve<A: Algorithm>(_: &A) -> bool {
            A::CAN_RESERVE
        }
        dispatch!(self, |rule| can_reserve(rule))
    }

    /// Returns the maximum number of records in a state. It is 0 for all algorithms except the
    /// sliding log.
    #[must_use]
    pub fn max_records(&self) -> u64 {
        dispatch!(self, |rule| Algorithm::max_records(rule))
    }

    /// Returns `true` if the rule counts slots in use. Only holds take slots, and the slots of a
    /// hold become free at the latest when the hold lapses.
    #[must_use]
    pub fn is_concurrent(&self) -> bool {
        matches!(self, Self::Concurrent(_))
    }

    /// Returns the member of a fair pool, for which the rule decides.
    pub(crate) fn member(&self) -> Option<MemberId> {
        match self {
            Self::FairPool(rule) => Some(rule.member),
            _ => None,
        }
    }

    pub(crate) fn window(&self) -> u64 {
        dispatch!(self, |rule| rule.window())
    }

    pub(crate) fn max_retention(&self) -> u64 {
        dispatch!(self, |rule| rule.max_retention())
    }
}
