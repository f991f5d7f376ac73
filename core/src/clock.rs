//! Clocks: the machine's, exact or cheap, and one that is moved by hand.
//!
//! | clock | use | error |
//! |---|---|---|
//! | [`SystemClock`] | the default | two threads' readings may be a microsecond apart |
//! | [`CoarseClock`] | where each nanosecond counts, and milliseconds do not | it is behind by its grain, or more |
//! | [`ManualClock`] | tests, and replaying logs | it moves only when it is set |
//!
//! The algorithms never read a clock. A store does, once per call, and passes the time to them.

mod coarse;
mod system;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

pub use coarse::CoarseClock;
pub use system::SystemClock;

use crate::Timestamp;
#[cfg(feature = "tokio")]
use crate::time::micros_of;

/// Where a store gets the time from.
pub trait Clock: fmt::Debug + Send + Sync {
    /// The time now.
    fn now(&self) -> Timestamp;
}

impl<C: Clock + ?Sized> Clock for Arc<C> {
    fn now(&self) -> Timestamp {
        (**self).now()
    }
}

/// A clock that stands still until it is moved, for tests and for replaying logs.
///
/// Clones share the same time.
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
    /// A clock that shows `time`.
    #[must_use]
    pub fn new(time: Timestamp) -> Self {
        Self(Arc::new(AtomicU64::new(time.as_micros())))
    }

    /// Sets the clock, forwards or back.
    pub fn set(&self, time: Timestamp) {
        self.0.store(time.as_micros(), Ordering::SeqCst);
    }

    /// Moves the clock forwards, by whole microseconds.
    pub fn advance(&self, by: Duration) {
        self.set(self.now().saturating_add(by));
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.0.load(Ordering::SeqCst))
    }
}

/// The clock of Tokio's timers, which starts at the current time of the wall clock.
///
/// For tests of code that waits: with Tokio's time paused, a store with this clock and the timers
/// advance together, and no test sleeps.
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
    /// A clock that starts at the current time of the wall clock.
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
