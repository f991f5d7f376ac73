//! Clocks for stores: an exact clock, a clock that is cheaper to read, and a clock that tests set.
//!
//! | clock | use | error |
//! |---|---|---|
//! | [`SystemClock`] | the default | the readings of two threads can differ by a microsecond |
//! | [`CoarseClock`] | if nanoseconds per call matter, and milliseconds of delay do not | it is late by its grain, or more |
//! | [`ManualClock`] | tests, and the replay of logs | it advances only when it is set |
//!
//! The algorithms never read a clock. A store reads its clock once per call, and passes the time to
//! the algorithms.

mod coarse;
mod system;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

pub use coarse::CoarseClock;
pub use system::SystemClock;

use crate::time::Timestamp;
#[cfg(feature = "tokio")]
use crate::time::micros_of;

/// A clock, from which a store reads the current time.
pub trait Clock: fmt::Debug + Send + Sync {
    /// Returns the current time.
    fn now(&self) -> Timestamp;
}

impl<C: Clock + ?Sized> Clock for Arc<C> {
    fn now(&self) -> Timestamp {
        (**self).now()
    }
}

/// A clock that only advances when it is set, for tests and for the replay of logs.
///
/// All clones of the clock show the same time.
///
/// ```
/// use std::time::Duration;
/// use tidegate_core::{Clock, ManualClock, Timestamp};
///
/// let clock = ManualClock::new(Timestamp::from_micros(0));
/// let hand = clock.clone();
/// hand.advance(Duration::from_secs(1));
/// assert_eq!(clock.now(), Timestamp::from_micros(1_000_000));
/// hand.set(Timestamp::from_micros(5)); // may step back
/// assert_eq!(clock.now(), Timestamp::from_micros(5));
/// ```
#[derive(Debug, Clone, Default)]
pub struct ManualClock(Arc<AtomicU64>);

impl ManualClock {
    /// Creates a clock that shows `time`.
    #[must_use]
    pub fn new(time: Timestamp) -> Self {
        Self(Arc::new(AtomicU64::new(time.as_micros())))
    }

    /// Sets the clock forward or back.
    pub fn set(&self, time: Timestamp) {
        self.0.store(time.as_micros(), Ordering::SeqCst);
    }

    /// Moves the clock forward by whole microseconds.
    pub fn advance(&self, by: Duration) {
        self.set(self.now().saturating_add(by));
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.0.load(Ordering::SeqCst))
    }
}

/// A clock that advances with Tokio's timers. It starts at the current time of the wall clock.
///
/// This clock is for tests of code that waits. If a test pauses Tokio's time, the clock advances
/// together with Tokio's timers, so that the test never really sleeps.
///
/// ```
/// use std::time::Duration;
/// use tidegate_core::{Limiter, TokioClock};
/// use tidegate_memory::MemoryStore;
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build()?.block_on(async {
/// let store = MemoryStore::builder().clock(TokioClock::new()).build();
/// let limiter = Limiter::new(store, ["gcra 1/1h".parse()?])?.max_wait(Duration::from_secs(3600));
/// for _ in 0..2 {
///     limiter.until_ready("alice").await?; // takes no real time
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[cfg(feature = "tokio")]
#[derive(Debug, Clone)]
pub struct TokioClock {
    started: tokio::time::Instant,
    started_at: u64,
}

#[cfg(feature = "tokio")]
impl TokioClock {
    /// Creates a clock that starts at the current time of the wall clock.
    #[must_use]
    pub fn new() -> Self {
        let started_at = SystemClock::new().started_at;
        Self { started: tokio::time::Instant::now(), started_at }
    }
}

#[cfg(feature = "tokio")]
impl Default for TokioClock {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(feature = "tokio")]
impl Clock for TokioClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.started_at.saturating_add(micros_of(self.started.elapsed())))
    }
}
