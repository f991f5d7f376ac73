//! The shape of a policy: the properties that determine which states the policy uses.

use super::calendar::Unit;

/// The rule that says when a fixed window starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Start {
    /// Windows start at multiples of their length since 1970, so they start at the same time for
    /// all subjects.
    Aligned,
    /// Windows start at multiples of their length since 1970, shifted by a phase. The phase depends
    /// on the subject, so that not all windows end at the same time.
    Phased,
    /// A window starts at the subject's first request after the previous window has ended.
    Anchored,
}

/// The algorithm of a policy with its start, window, grain or period. Two policies with the same
/// name share states if their shapes are equal. The limit, the rate and the capacity are not part
/// of the shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StateShape {
    /// A fixed window, with its start and its length (µs).
    FixedWindow(Start, u64),
    /// A sliding log, with its window and its grain (µs). The grain is 0 for a log without a grain.
    SlidingLog(u64, u64),
    /// A sliding counter, with the length of its window (µs).
    SlidingCounter(u64),
    /// A bucket with continuous refill.
    TokenBucket,
    /// A bucket that refills by intervals, with its period (µs).
    IntervalBucket(u64),
    /// Slots. The lease is not a part of the shape.
    Concurrent,
    /// A quota over the calendar, with the unit of its windows. The zone, the time of day and the
    /// anchor are not part of the shape, so a change of them keeps the usage.
    Quota(Unit),
    /// A fair pool, with its window (µs).
    FairPool(u64),
}
