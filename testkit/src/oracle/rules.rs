//! The trait that each algorithm of the oracle implements, and the searches with which the oracle
//! finds the values that the core computes.

use std::fmt;

use tidegate_core::{Algorithm, Charge};

use super::{
    bucket, concurrent, fair_pool, fixed_window, interval_bucket, quota, sliding_counter,
    sliding_log,
};

/// The maximum cost that a state can count.
pub(super) const MAX_COUNT: u64 = 1 << 52;

/// The maximum time in which a debt is repaid, in microseconds.
pub(super) const MAX_REPAY_TIME: u64 = 1 << 51;

/// The longest wait that a verdict can state, in microseconds.
const MAX_WAIT: u64 = (1 << 63) - 1;

/// The past of a state: the charges that still affect decisions, in the form that the algorithm
/// needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Past {
    /// No charge affects decisions.
    Nothing,
    FixedWindow(fixed_window::Past),
    SlidingLog(sliding_log::Past),
    SlidingCounter(sliding_counter::Past),
    Bucket(bucket::Past),
    IntervalBucket(interval_bucket::Past),
    Concurrent(concurrent::Past),
    Quota(quota::Past),
    FairPool(fair_pool::Past),
}

/// The rules of an algorithm, with the settings of one policy.
pub(super) trait Rules: fmt::Debug {
    /// Returns `true` if `cost` fits into the limit at the time `now`. If a cost fits, it also fits
    /// at each later time with the same `past`, and each smaller cost fits too.
    fn fits(&self, past: &Past, cost: u64, now: u64) -> bool;

    /// Returns `past` after `cost` is charged at the time `now`.
    fn take(&self, past: &Past, cost: u64, now: u64) -> Past;

    /// Returns `past` after `cost` was denied at the time `now`.
    fn refuse(&self, past: &Past, _cost: u64, _now: u64) -> Past {
        past.clone()
    }

    /// Returns the maximum amount that can be charged beyond the limit.
    fn room(&self, past: &Past, now: u64) -> u64;

    /// Returns `past` after `cost` is charged beyond the limit. The cost must be at most
    /// [`room`](Self::room).
    fn charge(&self, past: &Past, cost: u64, now: u64) -> Past {
        self.take(past, cost, now)
    }

    /// Refunds `cost`. Returns `past` after the refund, and the refunded amount in whole units.
    fn refund(&self, past: &Past, cost: u64, now: u64) -> (Past, u64);

    /// Undoes `cost` of the charge `take`, but at most the part of the charge that still counts.
    /// Returns `past` after the undo, and the undone amount in whole units. Returns `None` if no
    /// part of the charge counts any more.
    fn undo(&self, past: &Past, cost: u64, take: Take, now: u64) -> Option<(Past, u64)>;

    /// Returns the limit at `now`, which is lower than `limit`, the limit of the policy, in the
    /// pro-rated window of a quota.
    fn limit(&self, limit: u64, _now: u64) -> u64 {
        limit
    }

    /// Returns the largest cost that possibly fits at `now`.
    fn most(&self, _past: &Past, limit: u64, _now: u64) -> u64 {
        limit
    }

    /// Returns the shortest wait after which `cost` fits. Returns `None` if `cost` never fits.
    fn wait(&self, past: &Past, limit: u64, cost: u64, now: u64) -> Option<u64> {
        if cost > limit {
            return None; // the cost exceeds the limit
        }
        let latest = self.recovers_at(past).max(now);
        Some(first(now, latest, |time| self.fits(past, cost, time)) - now)
    }

    /// Returns the first time at which the charges in `past` have no effect on decisions any more.
    fn recovers_at(&self, past: &Past) -> u64;

    /// Returns the end of the current window of a quota. For every other algorithm, returns the
    /// same time as [`recovers_at`](Self::recovers_at).
    fn resets_at(&self, past: &Past, _now: u64) -> u64 {
        self.recovers_at(past)
    }

    /// Returns `true` if a reservation of `cost` is possible: the algorithm is a bucket, and can
    /// store its debt exactly after the charge of `cost`.
    fn can_book(&self, past: &Past, cost: u64, now: u64) -> bool {
        let _ = (past, cost, now);
        false
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Take {
    pub(super) at: u64,
    pub(super) cost: u64,
}

/// Returns the rules of a charge: the algorithm and the settings of its policy, for its subject.
pub(super) fn rules_of(charge: &Charge<'_>) -> Box<dyn Rules> {
    let tick = charge.policy.rule().tick();
    match charge.policy.algorithm() {
        Algorithm::FixedWindow(spec) => Box::new(fixed_window::Window::new(spec, charge.phase())),
        Algorithm::SlidingLog(spec) => Box::new(sliding_log::Log::new(spec)),
        Algorithm::SlidingCounter(spec) => Box::new(sliding_counter::Counter::new(spec, tick)),
        Algorithm::TokenBucket(spec) if spec.is_by_interval() => {
            Box::new(interval_bucket::IntervalBucket::new(spec))
        }
        Algorithm::Concurrent(spec) => Box::new(concurrent::Slots::new(spec)),
        Algorithm::Quota(spec) => Box::new(quota::Calendar::new(spec)),
        Algorithm::FairPool(spec) => Box::new(fair_pool::Pool::new(spec, charge)),
        algorithm => Box::new(bucket::Bucket::new(algorithm, tick)),
    }
}

/// Returns the largest cost that fits into `limit`, or 0 if a cost of 1 does not fit.
pub(super) fn remaining(rules: &dyn Rules, past: &Past, limit: u64, now: u64) -> u64 {
    let most = rules.most(past, limit, now);
    // The search finds the smallest cost that does not fit, which is from 1 to `most + 1`.
    first(1, most.saturating_add(1), |cost| cost > most || !rules.fits(past, cost, now)) - 1
}

/// Returns the shortest wait after which `cost` fits into `limit`. Returns `None` if `cost` never
/// fits.
pub(super) fn wait(rules: &dyn Rules, past: &Past, limit: u64, cost: u64, now: u64) -> Option<u64> {
    rules.wait(past, limit, cost, now).map(|wait| wait.min(MAX_WAIT))
}

/// Returns the first number in `from..=to` for which a condition is true. The condition must be
/// true for `to`. If it is true for a number, it must also be true for each greater number.
pub(super) fn first(from: u64, to: u64, is_true: impl Fn(u64) -> bool) -> u64 {
    let (mut from, mut to) = (from, to);
    while from < to {
        let middle = from + (to - from) / 2;
        if is_true(middle) {
            to = middle;
        } else {
            from = middle + 1;
        }
    }
    to
}

pub(super) fn micros(span: std::time::Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}
