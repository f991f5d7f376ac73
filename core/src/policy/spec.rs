//! The algorithms as they are configured.

use std::time::Duration;

use crate::algorithm::shape::Start;
use crate::algorithm::sliding_log;

/// An algorithm and its numbers, as configured. [`Policy::new`](crate::Policy::new) checks the
/// numbers.
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
    /// Returns the word for the algorithm in the policy grammar, such as `sliding-log`.
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

/// A limit for each window of fixed length.
///
/// This is the cheapest algorithm. Up to twice the limit may pass in a short time around the
/// boundary of two windows.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FixedWindow {
    pub(super) limit: u64,
    pub(super) window: Duration,
    pub(super) start: Start,
}

impl FixedWindow {
    /// Creates a limit for each `window`. Windows begin at multiples of the window since 1970.
    #[must_use]
    pub fn new(limit: u64, window: Duration) -> Self {
        Self { limit, window, start: Start::Aligned }
    }

    /// Shifts windows by a phase of each subject, so that not all windows end at the same time.
    #[must_use]
    pub fn phased(self) -> Self {
        Self { start: Start::Phased, ..self }
    }

    /// Lets a window begin at the subject's first request after the previous window has ended.
    #[must_use]
    pub fn anchored(self) -> Self {
        Self { start: Start::Anchored, ..self }
    }

    /// Returns the limit.
    #[must_use]
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// Returns the window.
    #[must_use]
    pub const fn window(&self) -> Duration {
        self.window
    }

    /// Returns where windows begin.
    #[must_use]
    pub const fn start(&self) -> Start {
        self.start
    }
}

/// A limit for any window of a length, regardless of where it begins.
///
/// This is exact, and needs a record per admitted request.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SlidingLog {
    pub(super) limit: u64,
    pub(super) window: Duration,
    pub(super) grain: Option<Duration>,
}

impl SlidingLog {
    /// The maximum number of records in one state.
    pub const MAX_RECORDS: u64 = sliding_log::MAX_RECORDS;

    /// Creates a limit for any `window`.
    #[must_use]
    pub fn new(limit: u64, window: Duration) -> Self {
        Self { limit, window, grain: None }
    }

    /// Lets requests within one `grain` share a record, whose time is the end of the grain. This
    /// needs less memory, and never admits more than the log without a grain.
    #[must_use]
    pub fn grain(self, grain: Duration) -> Self {
        Self { grain: Some(grain), ..self }
    }

    /// Returns the limit.
    #[must_use]
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// Returns the window.
    #[must_use]
    pub const fn window(&self) -> Duration {
        self.window
    }

    /// Returns the grain, if there is one. [`grain`](Self::grain) sets it.
    #[must_use]
    pub const fn granularity(&self) -> Option<Duration> {
        self.grain
    }
}

/// An approximate limit for any window of a length, from two numbers.
///
/// The previous window counts for the part of it that still overlaps the sliding window.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SlidingCounter {
    pub(super) limit: u64,
    pub(super) window: Duration,
}

impl SlidingCounter {
    /// Creates an approximate limit for any `window`.
    #[must_use]
    pub fn new(limit: u64, window: Duration) -> Self {
        Self { limit, window }
    }

    /// Returns the limit.
    #[must_use]
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// Returns the window.
    #[must_use]
    pub const fn window(&self) -> Duration {
        self.window
    }
}

/// A bucket of tokens. Each cost removes tokens, and the bucket is refilled over time.
///
/// GCRA, the generic cell rate algorithm, is the same bucket in telecom terms: see
/// [`gcra`](Self::gcra).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TokenBucket {
    pub(super) refill: u64,
    pub(super) period: Duration,
    pub(super) burst: u64,
    pub(super) mode: Refill,
}

/// The kind of refill.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Refill {
    Continuous,
    /// Like `Continuous`, but written as `gcra`.
    Gcra,
    ByInterval,
}

impl TokenBucket {
    /// Creates a bucket that is refilled continuously with `refill` tokens per `period`. Its
    /// capacity is `refill` unless [`burst`](Self::burst) sets it.
    #[must_use]
    pub fn new(refill: u64, period: Duration) -> Self {
        Self { refill, period, burst: refill, mode: Refill::Continuous }
    }

    /// Creates a GCRA limit: one cell every `period / count`, and up to `count` at one instant
    /// after a long idle period. With [`burst`](Self::burst), the burst tolerance is `burst − 1`
    /// intervals.
    ///
    /// It decides as [`new`](Self::new) does, and shares its states. The policy is written as
    /// `gcra`.
    #[must_use]
    pub fn gcra(count: u64, period: Duration) -> Self {
        Self { mode: Refill::Gcra, ..Self::new(count, period) }
    }

    /// Sets the capacity of the bucket, which is the maximum that is admitted at one instant after
    /// a long idle period.
    #[must_use]
    pub fn burst(self, capacity: u64) -> Self {
        Self { burst: capacity, ..self }
    }

    /// Refills all tokens of a period together at its end.
    #[must_use]
    pub fn by_interval(self) -> Self {
        Self { mode: Refill::ByInterval, ..self }
    }

    /// Returns the number of tokens that are refilled in a period.
    #[must_use]
    pub const fn refill(&self) -> u64 {
        self.refill
    }

    /// Returns the period.
    #[must_use]
    pub const fn period(&self) -> Duration {
        self.period
    }

    /// Returns the capacity of the bucket.
    #[must_use]
    pub const fn capacity(&self) -> u64 {
        self.burst
    }

    /// Returns `true` if all tokens of a period are refilled together at its end.
    #[must_use]
    pub const fn is_by_interval(&self) -> bool {
        matches!(self.mode, Refill::ByInterval)
    }

    /// Returns `true` if the bucket is written as `gcra`.
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
