//! What the algorithms have in common, and the searches that replace their arithmetic.

use std::fmt;

use tidegate_core::{Algorithm, Charge};

use super::{bucket, fixed_window, interval_bucket, sliding_counter, sliding_log};

/// No count, and no debt, is ever charged above this.
pub(super) const MOST: u64 = 1 << 52;

/// No debt takes longer to be repaid, in microseconds.
pub(super) const LONGEST: u64 = 1 << 51;

/// What one key remembers of the past.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Past {
    /// Nothing: a fresh key.
    Nothing,
    FixedWindow(fixed_window::Past),
    SlidingLog(sliding_log::Past),
    SlidingCounter(sliding_counter::Past),
    Bucket(bucket::Past),
    IntervalBucket(interval_bucket::Past),
}

/// What an algorithm says.
pub(super) trait Rules: fmt::Debug {
    /// Whether `cost` is admitted. With nothing else happening, once true it stays true, and so it
    /// does for a smaller cost.
    fn fits(&self, past: &Past, cost: u64, now: u64) -> bool;

    /// The past after `cost` was taken.
    fn take(&self, past: &Past, cost: u64, now: u64) -> Past;

    /// How much more can be charged beyond the limit.
    fn room(&self, past: &Past, now: u64) -> u64;

    /// The past after `cost`, for which there is room, was charged beyond the limit.
    fn charge(&self, past: &Past, cost: u64, now: u64) -> Past {
        self.take(past, cost, now)
    }

    /// The past after `cost` was given back, and how much of it was, in whole units.
    fn give_back(&self, past: &Past, cost: u64, now: u64) -> (Past, u64);

    /// The past after what a take of `cost` at `at` has left was taken back, and how much that was, in
    /// whole units; `None` if nothing was left.
    fn take_back(&self, past: &Past, cost: u64, take: Take, now: u64) -> Option<(Past, u64)>;

    /// From when on the past no longer matters.
    fn recovers_at(&self, past: &Past) -> u64;

    /// Whether a debt of `cost` more is still within what a bucket can tell apart.
    fn can_book(&self, past: &Past, cost: u64, now: u64) -> bool {
        let _ = (past, cost, now);
        false
    }
}

/// What was taken, and when.
#[derive(Debug, Clone, Copy)]
pub(super) struct Take {
    pub(super) at: u64,
    pub(super) cost: u64,
}

/// The rules that the policy of a charge lays down for its subject.
pub(super) fn rules_of(charge: &Charge<'_>) -> Box<dyn Rules> {
    let tick = charge.policy.rule().tick();
    match charge.policy.algorithm() {
        Algorithm::FixedWindow(spec) => Box::new(fixed_window::Window::new(spec, charge.phase())),
        Algorithm::SlidingLog(spec) => Box::new(sliding_log::Log::new(spec)),
        Algorithm::SlidingCounter(spec) => Box::new(sliding_counter::Counter::new(spec, tick)),
        Algorithm::TokenBucket(spec) if spec.is_by_interval() => {
            Box::new(interval_bucket::IntervalBucket::new(spec))
        }
        algorithm => Box::new(bucket::Bucket::of(algorithm, tick)),
    }
}

/// The largest cost that fits, at most `limit`; 0 if not even that fits.
pub(super) fn remaining(rules: &dyn Rules, past: &Past, limit: u64, now: u64) -> u64 {
    // Costs that do not fit begin somewhere in 1..=limit + 1.
    first(1, limit.saturating_add(1), |cost| cost > limit || !rules.fits(past, cost, now)) - 1
}

/// The shortest wait after which `cost` fits; `None` if it never does, being above `limit`.
pub(super) fn wait(rules: &dyn Rules, past: &Past, limit: u64, cost: u64, now: u64) -> Option<u64> {
    if cost > limit {
        return None;
    }
    let latest = rules.recovers_at(past).max(now);
    let wait = first(now, latest, |time| rules.fits(past, cost, time)) - now;
    // Beyond all times that can be told.
    Some(wait).filter(|&wait| wait < u64::MAX)
}

/// The first number of `from..=to` for which something is true that is true for `to`, and for all
/// numbers after one for which it is true.
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

/// Whole microseconds of a duration of a policy.
pub(super) fn micros(span: std::time::Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}
