//! The properties that distinguish the states of policies.

/// The start of fixed windows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Start {
    /// Windows begin at multiples of the window since 1970, at the same time for all subjects.
    Aligned,
    /// Windows begin at multiples of the window, shifted by a phase of each subject, so that not
    /// all windows end at the same time.
    Phased,
    /// A window begins at the subject's first request after the previous window has ended.
    Anchored,
}

/// The properties that two policies of one name must share to share states: the algorithm and its
/// window. The limit, and the rate and capacity of a bucket, may differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StateShape {
    /// The start and window (µs) of a fixed window.
    FixedWindow(Start, u64),
    /// The window and grain (µs, 0 for none) of a sliding log.
    SlidingLog(u64, u64),
    /// The window (µs) of a sliding counter.
    SlidingCounter(u64),
    /// A bucket with continuous refill.
    TokenBucket,
    /// The period (µs) of a bucket that refills by intervals.
    IntervalBucket(u64),
}
