//! The rule of any algorithm.

use super::fixed_window::FixedWindowRule;
use super::interval_bucket::IntervalBucketRule;
use super::shape::StateShape;
use super::sliding_counter::SlidingCounterRule;
use super::sliding_log::SlidingLogRule;
use super::token_bucket::TokenBucketRule;
use super::traits::Algorithm;

/// An algorithm with the numbers it computes with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Rule {
    /// Fixed window.
    FixedWindow(FixedWindowRule),
    /// Sliding log.
    SlidingLog(SlidingLogRule),
    /// Sliding counter.
    SlidingCounter(SlidingCounterRule),
    /// Token bucket with continuous refill, or GCRA.
    TokenBucket(TokenBucketRule),
    /// Token bucket that refills by intervals.
    IntervalBucket(IntervalBucketRule),
}

/// Evaluates an expression for the rule of any algorithm; optionally another one for a log, which is not packed.
macro_rules! dispatch {
    ($rule:expr, |$it:ident| $expression:expr) => {
        dispatch!($rule, |$it| $expression, log $it => $expression)
    };
    ($rule:expr, |$it:ident| $expression:expr, log $log:pat => $of_log:expr) => {
        match $rule {
            $crate::policy::Rule::TokenBucket($it) => $expression,
            $crate::policy::Rule::SlidingCounter($it) => $expression,
            $crate::policy::Rule::FixedWindow($it) => $expression,
            $crate::policy::Rule::IntervalBucket($it) => $expression,
            $crate::policy::Rule::SlidingLog($log) => $of_log,
        }
    };
}
pub(crate) use dispatch;

impl Rule {
    /// The maximum that is ever admitted at one instant.
    #[must_use]
    pub fn limit(&self) -> u64 {
        dispatch!(self, |rule| Algorithm::limit(rule))
    }

    /// Microseconds in a tick, the resolution of the rule.
    #[must_use]
    pub fn tick(&self) -> u64 {
        dispatch!(self, |rule| Algorithm::tick(rule))
    }

    /// The shape of the states.
    #[must_use]
    pub fn shape(&self) -> StateShape {
        dispatch!(self, |rule| rule.shape())
    }

    /// Whether reservations are possible: for buckets.
    #[must_use]
    pub fn can_reserve(&self) -> bool {
        fn of<A: Algorithm>(_: &A) -> bool {
            A::CAN_RESERVE
        }
        dispatch!(self, |rule| of(rule))
    }

    /// The maximum number of records of a state; 0 for all algorithms but logs.
    #[must_use]
    pub fn max_records(&self) -> u64 {
        dispatch!(self, |rule| Algorithm::max_records(rule))
    }

    /// Microseconds that a request counts for, with all that was taken at once.
    pub(crate) fn window(&self) -> u64 {
        dispatch!(self, |rule| rule.window())
    }

    /// The maximum number of microseconds until a state has recovered.
    pub(crate) fn max_retention(&self) -> u64 {
        dispatch!(self, |rule| rule.max_retention())
    }
}
