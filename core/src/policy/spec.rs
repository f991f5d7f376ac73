//! The algorithms as a caller asks for them.

use std::time::Duration;

use crate::algorithm::fixed_window::Start;

/// An algorithm and its numbers, as asked for; [`Policy::new`](crate::Policy::new) checks them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Algorithm {
    /// See [`FixedWindow`].
    FixedWindow(FixedWindow),
    /// See [`SlidingLog`].
    SlidingLog(SlidingLog),
    /// See [`SlidingCounter`].
    SlidingCounter(SlidingCounter),
    /// See [`TokenBucket`].
    TokenBucket(TokenBucket),
    /// See [`Gcra`].
    Gcra(Gcra),
}

impl Algorithm {
    /// Its word in the policy grammar, such as `sliding-log`.
    #[must_use]
    pub fn keyword(&self) -> &'static str {
        match self {
            Self::FixedWindow(_) => "fixed-window",
            Self::SlidingLog(_) => "sliding-log",
            Self::SlidingCounter(_) => "sliding-counter",
            Self::TokenBucket(_) => "token-bucket",
            Self::Gcra(_) => "gcra",
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

    /// Windows shifted by a phase of each subject's own, so that not everybody resets at once.
    #[must_use]
    pub fn phased(self) -> Self {
        Self { start: Start::Phased, ..self }
    }

    /// A window begins at the subject's first request after the last one ended.
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
    /// The most records that one state may need.
    pub const MAX_RECORDS: u64 = 1 << 20;

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

    /// The grain, if there is one; not to be mixed up with [`grain`](Self::grain), which sets it.
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
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TokenBucket {
    pub(super) refill: u64,
    pub(super) period: Duration,
    pub(super) burst: u64,
    pub(super) by_interval: bool,
}

impl TokenBucket {
    /// `refill` tokens per `period`, coming back continuously; the bucket holds as many.
    #[must_use]
    pub fn new(refill: u64, period: Duration) -> Self {
        Self { refill, period, burst: refill, by_interval: false }
    }

    /// The bucket holds `capacity` tokens: the most that passes at one instant after a long rest.
    #[must_use]
    pub fn burst(self, capacity: u64) -> Self {
        Self { burst: capacity, ..self }
    }

    /// The tokens come back all at once, each time a whole period has passed.
    #[must_use]
    pub fn by_interval(self) -> Self {
        Self { by_interval: true, ..self }
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
        self.by_interval
    }
}

/// The generic cell rate algorithm: a token bucket in telecom terms. Decides as [`TokenBucket`] does,
/// and shares its states.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Gcra {
    pub(super) refill: u64,
    pub(super) period: Duration,
    pub(super) burst: u64,
}

impl Gcra {
    /// One cell every `period / count`, and up to `count` at one instant after a long rest.
    #[must_use]
    pub fn new(count: u64, period: Duration) -> Self {
        Self { refill: count, period, burst: count }
    }

    /// Up to `cells` at one instant after a long rest: a burst tolerance of `cells − 1` intervals.
    #[must_use]
    pub fn burst(self, cells: u64) -> Self {
        Self { burst: cells, ..self }
    }

    /// How many cells pass per period on average.
    #[must_use]
    pub const fn refill(&self) -> u64 {
        self.refill
    }

    /// The period.
    #[must_use]
    pub const fn period(&self) -> Duration {
        self.period
    }

    /// The most cells that pass at one instant.
    #[must_use]
    pub const fn capacity(&self) -> u64 {
        self.burst
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
algorithms!(FixedWindow, SlidingLog, SlidingCounter, TokenBucket, Gcra);
