//! The properties that distinguish the states of policies.

/// The rule for the start of fixed windows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Start {
    /// Windows begin at multiples of the window since 1970, at the same time for all subjects.
    Aligned,
    /// Windows begin at multiples of the window, shifted by a phase. The phase depends on the
    /// subject, so that not all windows end at the same time.
    Phased,
    /// A window begins at the subject's first request after the previous window has ended.
    Anchored,
}

/// The properties of a policy that its states depend on: the algorithm and its window. Two policies
/// of one name share states if these properties are equal. The limit, and the rate and capacity of
/// a bucket, can differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StateShape {
    /// A fixed window, with its start and its window (µs).
    FixedWindow(Start, u64),
    /// A sliding log, with its window and its grain (µs). The grain is 0 for a log without a grain.
    SlidingLog(u64, u64),
    /// A sliding counter, with its window (µs).
    SlidingCounter(u64),
    /// A bucket with continuous refill.
    TokenBucket,
    /// A bucket that refills by intervals, with its period (µs).
    IntervalBucket(u64),
}
