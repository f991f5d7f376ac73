//! The algorithms as they are configured.

use std::time::Duration;

use crate::algorithm::fixed_window::Start;
use crate::algorithm::sliding_log;

/// An algorithm and its numbers; [`Policy::new`](crate::Policy::new) checks them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Algorithm {
    /// See [`FixedWindow`].
    FixedWindow(FixedWindow),
    /// See [`SlidingLog`].
    SlidingLog(SlidingLog),
    /// See [`SlidingCounter`].
    SlidingCounter(SlidingCounter),
    /// See [`TokenBucket`], also for GCRA.
    TokenBucket(TokenBucket),
}

impl Algorithm {
    /// Its word in the policy grammar, such as `sliding-log`.
    #[must_use]
    pub fn keyword(&self) -> &'static str {
        match self {
            Self::FixedWindow(_) => "fixed-window",
            Self::SlidingLog(_) => "sliding-log",
            Self::SlidingCounter(_) => "sliding-counter",
            Self::TokenBucket(bucket) if bucket.is_gcra() => "gcra",
            Self::TokenBucket(_) => "token-bucket",
        }
    }
}

/// At most `limit` in each window. Cheapest; up to twice the limit may pass around a boundary.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FixedWindow {
    pub(super) limit: u64,
    pub(super) window: Duration,
    pub(super) start: Start,
}

impl FixedWindow {
    /// At most `limit` in each `window`, windows beginning at multiples of the window since 1970.
    #[must_use]
    pub fn new(limit: u64, window: Duration) -> Self {
        Self { limit, window, start: Start::Aligned }
    }

    /// Shifts windows by a phase of each subject, so that not all reset at the same time.
    #[must_use]
    pub fn phased(self) -> Self {
        Self { start: Start::Phased, ..self }
    }

    /// Lets a window begin at the subject's first request after the last one ended.
    #[must_use]
    pub fn anchored(self) -> Self {
        Self { start: Start::Anchored, ..self }
    }

    /// The limit.
    #[must_use]
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// The window.
    #[must_use]
    pub const fn window(&self) -> Duration {
        self.window
    }

    /// Where windows begin.
    #[must_use]
    pub const fn start(&self) -> Start {
        self.start
    }
}

/// At most `limit` in any window, wherever it begins: exact, for a record per admitted request.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SlidingLog {
    pub(super) limit: u64,
    pub(super) window: Duration,
    pub(super) grain: Option<Duration>,
}

impl SlidingLog {
    /// The maximum number of records that one state may need.
    pub const MAX_RECORDS: u64 = sliding_log::MAX_RECORDS;

    /// At most `limit` in any `window`.
    #[must_use]
    pub fn new(limit: u64, window: Duration) -> Self {
        Self { limit, window, grain: None }
    }

    /// Requests within one `grain` share a record, timed at the grain's end: less memory, and never
    /// more admitted than without.
    #[must_use]
    pub fn grain(self, grain: Duration) -> Self {
        Self { grain: Some(grain), ..self }
    }

    /// The limit.
    #[must_use]
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// The window.
    #[must_use]
    pub const fn window(&self) -> Duration {
        self.window
    }

    /// The grain, if there is one. [`grain`](Self::grain) sets it.
    #[must_use]
    pub const fn granularity(&self) -> Option<Duration> {
        self.grain
    }
}

/// At most about `limit` in any window, from two numbers: the previous window counts for as much as
/// of it still overlaps the sliding window.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SlidingCounter {
    pub(super) limit: u64,
    pub(super) window: Duration,
}

impl SlidingCounter {
    /// At most about `limit` in any `window`.
    #[must_use]
    pub fn new(limit: u64, window: Duration) -> Self {
        Self { limit, window }
    }

    /// The limit.
    #[must_use]
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// The window.
    #[must_use]
    pub const fn window(&self) -> Duration {
        self.window
    }
}

/// A bucket of tokens: each cost takes some, time brings them back.
///
/// GCRA, the generic cell rate algorithm, is the same bucket in telecom terms: [`gcra`](Self::gcra).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TokenBucket {
    pub(super) refill: u64,
    pub(super) period: Duration,
    pub(super) burst: u64,
    pub(super) mode: Refill,
}

/// How tokens come back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Refill {
    Continuous,
    /// The same, and written as `gcra`.
    Gcra,
    ByInterval,
}

impl TokenBucket {
    /// `refill` tokens per `period`, coming back continuously; the bucket holds as many.
    #[must_use]
    pub fn new(refill: u64, period: Duration) -> Self {
        Self { refill, period, burst: refill, mode: Refill::Continuous }
    }

    /// GCRA: one cell every `period / count`, and up to `count` at one instant after a long rest. With
    /// [`burst`](Self::burst), the burst tolerance is `burst − 1` intervals.
    ///
    /// It decides as [`new`](Self::new), and shares its states. The policy is written as `gcra`.
    #[must_use]
    pub fn gcra(count: u64, period: Duration) -> Self {
        Self { mode: Refill::Gcra, ..Self::new(count, period) }
    }

    /// Sets the capacity of the bucket: the maximum that is admitted at one instant after a long rest.
    #[must_use]
    pub fn burst(self, capacity: u64) -> Self {
        Self { burst: capacity, ..self }
    }

    /// Lets the tokens come back all at once, each time a whole period has passed.
    #[must_use]
    pub fn by_interval(self) -> Self {
        Self { mode: Refill::ByInterval, ..self }
    }

    /// How many tokens come back in a period.
    #[must_use]
    pub const fn refill(&self) -> u64 {
        self.refill
    }

    /// The period.
    #[must_use]
    pub const fn period(&self) -> Duration {
        self.period
    }

    /// How many tokens the bucket holds.
    #[must_use]
    pub const fn capacity(&self) -> u64 {
        self.burst
    }

    /// Whether the tokens come back all at once.
    #[must_use]
    pub const fn is_by_interval(&self) -> bool {
        matches!(self.mode, Refill::ByInterval)
    }

    /// Whether the bucket is written as `gcra`.
    #[must_use]
    pub const fn is_gcra(&self) -> bool {
        matches!(self.mode, Refill::Gcra)
    }
}

macro_rules! algorithms {
    ($($name:ident),+) => {$(
        impl From<$name> for Algorithm {
            fn from(algorithm: $name) -> Self {
                Self::$name(algorithm)
            }
        }
    )+};
}
algorithms!(FixedWindow, SlidingLog, SlidingCounter, TokenBucket);
