//! The algorithms and their numbers, as they are configured.

use std::time::Duration;

use super::quota::Quota;
use crate::algorithm::shape::Start;
use crate::algorithm::{fair_pool, sliding_log};

/// An algorithm with its numbers, as they are configured. [`Policy::new`](crate::Policy::new)
/// checks whether the numbers are valid.
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
    /// See [`Concurrent`].
    Concurrent(Concurrent),
    /// See [`Quota`].
    Quota(Box<Quota>),
    /// See [`FairPool`].
    FairPool(FairPool),
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
            Self::Concurrent(_) => "concurrent",
            Self::Quota(quota) if quota.is_credits() => "credits",
            Self::Quota(_) => "quota",
            Self::FairPool(_) => "fair-pool",
        }
    }
}

/// A limit for each window of fixed length.
///
/// The fixed window is the cheapest algorithm. In a short time around the boundary of two windows,
/// up to twice the limit can be admitted.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FixedWindow {
    pub(super) limit: u64,
    pub(super) window: Duration,
    pub(super) start: Start,
}

impl FixedWindow {
    /// Creates a limit for each window of length `window`. Windows begin at multiples of their
    /// length since 1970.
    #[must_use]
    pub fn new(limit: u64, window: Duration) -> Self {
        Self { limit, window, start: Start::Aligned }
    }

    /// Shifts the windows of each subject by a phase, so that not all windows end at the same time.
    #[must_use]
    pub fn phased(self) -> Self {
        Self { start: Start::Phased, ..self }
    }

    /// Makes each window begin at the subject's first request after the end of the previous window.
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

    /// Returns the rule for the start of windows.
    #[must_use]
    pub const fn start(&self) -> Start {
        self.start
    }
}

/// A limit for any window of a given length, regardless of the time at which the window starts.
///
/// A sliding log is exact. It needs a record per admitted request.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SlidingLog {
    pub(super) limit: u64,
    pub(super) window: Duration,
    pub(super) grain: Option<Duration>,
}

impl SlidingLog {
    /// The maximum number of records in one state.
    pub const MAX_RECORDS: u64 = sliding_log::MAX_RECORDS;

    /// Creates a limit for any window of length `window`.
    #[must_use]
    pub fn new(limit: u64, window: Duration) -> Self {
        Self { limit, window, grain: None }
    }

    /// Makes all requests within one `grain` share a record. The time of the record is the end of
    /// the grain. A log with a grain needs less memory, and never admits more than a log without a
    /// grain.
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

    /// Returns the grain that [`grain`](Self::grain) has set, if the log has a grain.
    #[must_use]
    pub const fn granularity(&self) -> Option<Duration> {
        self.grain
    }
}

/// An approximate limit for any window of a given length. A state needs only two counts.
///
/// The count of the previous window is weighted by the part of that window that still overlaps the
/// sliding window.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SlidingCounter {
    pub(super) limit: u64,
    pub(super) window: Duration,
}

impl SlidingCounter {
    /// Creates an approximate limit for any window of length `window`.
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
/// GCRA, the generic cell rate algorithm, describes a token bucket with the terms of
/// telecommunication: see [`gcra`](Self::gcra).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TokenBucket {
    pub(super) refill: u64,
    pub(super) period: Duration,
    pub(super) burst: u64,
    pub(super) mode: Refill,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Refill {
    Continuous,
    /// This mode refills like `Continuous`. Only the keyword in the text of the policy differs: it
    /// is `gcra`.
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

    /// Creates a GCRA limit. It admits one cell every `period / count`. After a long idle period,
    /// it admits up to `count` cells at one instant. If [`burst`](Self::burst) is set, the burst
    /// tolerance is `burst − 1` intervals.
    ///
    /// A GCRA limit decides like a bucket from [`new`](Self::new), and shares states with such a
    /// bucket. Only the text of the policy differs.
    #[must_use]
    pub fn gcra(count: u64, period: Duration) -> Self {
        Self { mode: Refill::Gcra, ..Self::new(count, period) }
    }

    /// Sets the capacity of the bucket. This is the maximum that the bucket admits at one instant
    /// after a long idle period.
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

    /// Returns `true` if the text of the policy has the keyword `gcra`.
    #[must_use]
    pub const fn is_gcra(&self) -> bool {
        matches!(self.mode, Refill::Gcra)
    }
}

/// A limit for the number of requests at a time: slots.
///
/// Only a [hold](crate::Request::hold) takes slots. The settlement of the hold frees its slots. The
/// cost of a charge is the number of slots, which is usually 1. One hold can take slots, charge
/// rates and charge estimates, all of them or nothing.
///
/// The *lease* bounds the time for which a holder that has crashed keeps its slots: a hold with
/// slots lapses after the lease, even if the hold has a longer time to live. A holder that works
/// for longer [extends](crate::Limiter::extend) its hold in time.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// use std::time::Duration;
/// use tidegate_core::Limiter;
/// use tidegate_memory::MemoryStore;
///
/// let policies = ["rate: fixed-window 60/1m".parse()?, "slots: concurrent 1 lease 30s".parse()?];
/// let limiter = Limiter::new(MemoryStore::new(), policies)?;
/// let request = limiter.by("rate", "alice").by("slots", "alice");
/// let minute = Duration::from_secs(60);
///
/// let first = request.hold("request 1", minute).await?.into_ticket().unwrap();
/// let second = request.hold("request 2", minute).await?;
/// assert!(second.decision().is_denied());
/// assert_eq!(second.decision().retry_after(), None); // nobody knows when the slot becomes free
///
/// limiter.settle(&first, []).await?; // frees the slot
/// let third = request.hold("request 3", minute).await?;
/// assert!(third.decision().is_allowed());
/// assert_eq!(third.decision().verdicts()[0].remaining(), 58); // the refusal charged no rate
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Concurrent {
    pub(super) limit: u64,
    pub(super) lease: Duration,
}

impl Concurrent {
    /// The maximum number of slots of a policy.
    pub const MAX_SLOTS: u64 = 100_000;

    /// Creates a limit of `limit` slots in use at a time. The slots of a holder that has crashed
    /// are free after at most `lease`.
    #[must_use]
    pub fn new(limit: u64, lease: Duration) -> Self {
        Self { limit, lease }
    }

    /// Returns the number of slots.
    #[must_use]
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// Returns the lease.
    #[must_use]
    pub const fn lease(&self) -> Duration {
        self.lease
    }
}

/// A limit that all subjects of a tenant share fairly, in windows of fixed length.
///
/// The subjects are the *members* of the pool. Together, they never exceed the limit. Each member
/// has a share of the window, its max-min share: a member that wants less than an equal part gets
/// what it wants, and the members that want more divide the rest equally. The shares of a window
/// follow from the calls in the previous window, admitted or refused. A member can also use the
/// part of the limit that is in no share. So a member that is alone can use the whole limit.
///
/// All members of a policy and a tenant have one state, which also writes the demand of refused
/// calls. [`algorithm::fair_pool`](crate::algorithm::fair_pool) defines the decisions and the bound
/// of the unfairness. A fair pool has no blocks and no shards, it is never leased, and its holds
/// are not stored in the state.
///
/// ```
/// use std::time::Duration;
/// use tidegate_core::{Call, Charge, Clock, FairPool, ManualClock, Policy};
/// use tidegate_memory::MemoryStore;
///
/// let clock = ManualClock::default();
/// let store = MemoryStore::builder().clock(clock.clone()).build();
/// let minute = Duration::from_secs(60);
/// let pool = Policy::new("pool", FairPool::new(100, minute))?;
/// let admitted = |subject: &str, calls: u32| {
///     let charges = [Charge::new(&pool, subject)];
///     let admits = |_: &u32| store.decide_now(&Call::acquire(&charges)).unwrap().is_allowed();
///     (0..calls).filter(admits).count()
/// };
/// // In the first minute, nobody has a share. Alice comes first and takes everything.
/// assert_eq!((admitted("alice", 200), admitted("bob", 30)), (100, 0));
/// // From the next minute on, bob gets what he wants, and alice gets the rest.
/// clock.advance(minute);
/// assert_eq!((admitted("alice", 200), admitted("bob", 30)), (70, 30));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FairPool {
    pub(super) limit: u64,
    pub(super) window: Duration,
    pub(super) weight: u64,
}

impl FairPool {
    /// The maximum limit: 2^32.
    pub const MAX_LIMIT: u64 = fair_pool::MAX_LIMIT;

    /// The maximum weight.
    pub const MAX_WEIGHT: u64 = fair_pool::MAX_WEIGHT;

    /// Creates a pool with a limit for each window of length `window`. Windows begin at multiples
    /// of their length since 1970.
    #[must_use]
    pub fn new(limit: u64, window: Duration) -> Self {
        Self { limit, window, weight: 1 }
    }

    /// Sets the weight of the members that are charged by this policy. A member of weight 3 gets
    /// three times the part of a member of weight 1. To give members different weights, charge them
    /// by policies of the same name with different weights, or override the policy for a subject.
    #[must_use]
    pub fn weight(self, weight: u64) -> Self {
        Self { weight, ..self }
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

    /// Returns the weight of the members that are charged by this policy.
    #[must_use]
    pub const fn member_weight(&self) -> u64 {
        self.weight
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
algorithms!(FixedWindow, SlidingLog, SlidingCounter, TokenBucket, Concurrent, FairPool);

impl From<Quota> for Algorithm {
    fn from(quota: Quota) -> Self {
        Self::Quota(Box::new(quota))
    }
}
