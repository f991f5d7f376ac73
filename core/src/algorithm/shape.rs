//! What distinguishes the states of policies.

/// Where windows begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Start {
    /// At multiples of the window since 1970, for all subjects at the same time.
    Aligned,
    /// At multiples of the window, shifted by a phase of each subject, so that not all reset at the same time.
    Phased,
    /// At the subject's first request after the last window ended.
    Anchored,
}

/// What two policies of one name must have in common to share states: the algorithm and its window, but not the limit,
/// nor the rate and the capacity of a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StateShape {
    /// Start and window (µs) of a fixed window.
    FixedWindow(Start, u64),
    /// Window and grain (µs, 0 for none) of a sliding log.
    SlidingLog(u64, u64),
    /// Window (µs) of a sliding counter.
    SlidingCounter(u64),
    /// A bucket with continuous refill.
    TokenBucket,
    /// Period (µs) of a bucket that refills by intervals.
    IntervalBucket(u64),
}
