//! The names under which states are stored. A state name has the policy's name and the shape of its
//! states.

use std::fmt;

use super::Policy;
use super::span::Micros;
use crate::algorithm::shape::{Start, StateShape};

/// The name under which a store keeps a policy's states: see [`Policy::state_name`].
///
/// The text of a state name is `name:shape` for a policy with a name. For a policy without a name,
/// it is the whole text of the policy. For a [share](Policy::shares), the text ends with `%`, the
/// index of the shard, `.` and the number of shards. Two policies have the same text if and only if
/// they [share states](Policy::shares_state_with).
#[derive(Clone, Copy)]
pub struct StateName<'p>(&'p Policy);

impl<'p> StateName<'p> {
    pub(super) fn new(policy: &'p Policy) -> Self {
        Self(policy)
    }
}

impl fmt::Display for StateName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(policy) = self;
        f.write_str(policy.name())?;
        if policy.is_named() {
            write!(f, ":{}", policy.rule().shape())?;
        }
        match policy.shard() {
            Some(shard) => write!(f, "%{}.{}", shard.index(), shard.count()),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for StateName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StateName({self})")
    }
}

/// Prints a short text of the letters `a` to `z`, digits and dots: `window.1m`, `window.1m.phased`,
/// `log.15m`, `log.1h.1m`, `counter.1d`, `bucket`, `bucket.1m`, `quota.month`, `pool.1m`. The keys
/// in Redis of a policy with a name contain this text, so the text for a shape must never change.
impl fmt::Display for StateShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::FixedWindow(start, window) => {
                let start = match start {
                    Start::Aligned => "",
                    Start::Phased => ".phased",
                    Start::Anchored => ".anchored",
                };
                write!(f, "window.{}{start}", Micros(window))
            }
            Self::SlidingLog(window, 0) => write!(f, "log.{}", Micros(window)),
            Self::SlidingLog(window, grain) => {
                write!(f, "log.{}.{}", Micros(window), Micros(grain))
            }
            Self::SlidingCounter(window) => write!(f, "counter.{}", Micros(window)),
            Self::TokenBucket => f.write_str("bucket"),
            Self::IntervalBucket(period) => write!(f, "bucket.{}", Micros(period)),
            Self::Concurrent => f.write_str("slots"),
            Self::Quota(unit) => write!(f, "quota.{}", unit.keyword()),
            Self::FairPool(window) => write!(f, "pool.{}", Micros(window)),
        }
    }
}

impl StateShape {
    /// Returns the shape as numbers. A policy computes its hash from these numbers.
    pub(super) fn numbers(self) -> [u64; 3] {
        match self {
            Self::FixedWindow(Start::Aligned, window) => [1, window, 0],
            Self::FixedWindow(Start::Phased, window) => [2, window, 0],
            Self::FixedWindow(Start::Anchored, window) => [3, window, 0],
            Self::SlidingLog(window, grain) => [4, window, grain],
            Self::SlidingCounter(window) => [5, window, 0],
            Self::TokenBucket => [6, 0, 0],
            Self::IntervalBucket(period) => [7, period, 0],
            Self::Concurrent => [8, 0, 0],
            Self::Quota(unit) => [9, unit as u64, 0],
            Self::FairPool(window) => [10, window, 0],
        }
    }
}
