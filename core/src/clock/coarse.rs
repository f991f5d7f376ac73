//! A clock that a thread updates in memory. The clock is cheap to read, and late by up to its
//! grain, the time between two updates.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use super::{Clock, SystemClock};
use crate::time::Timestamp;

/// A copy of the machine's clock that a background thread updates. The copy is cheap to read, and
/// slightly late.
///
/// The background thread reads [`SystemClock`] once per `grain`. The thread ends when the last
/// clone of the clock is dropped.
///
/// *Error:* The clock is late by up to the grain, or by more if its thread is not scheduled in
/// time. So each duration that the clock measures, such as a window, can be too long or too short
/// by this amount. A bucket refills in steps. A caller that waits exactly `retry_after` possibly
/// retries too early. For decisions that are exact to the microsecond, use [`SystemClock`].
///
/// ```
/// use std::time::Duration;
/// use tidegate_core::{Clock, CoarseClock};
///
/// let clock = CoarseClock::new(Duration::from_millis(1))?;
/// assert!(clock.now().as_micros() > 1_700_000_000_000_000);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct CoarseClock(Arc<AtomicU64>);

impl CoarseClock {
    /// Creates a clock that is updated once per `grain`. A grain below a microsecond is raised to a
    /// microsecond.
    ///
    /// # Errors
    ///
    /// Returns an error if the system cannot start a thread.
    pub fn new(grain: Duration) -> io::Result<Self> {
        let system = SystemClock::new();
        let time = Arc::new(AtomicU64::new(system.now().as_micros()));
        let shown = Arc::downgrade(&time);
        let grain = grain.max(Duration::from_micros(1));
        thread::Builder::new().name("tidegate-clock".to_owned()).spawn(move || {
            loop {
                thread::sleep(grain);
                let Some(shown) = shown.upgrade() else { return };
                shown.store(system.now().as_micros(), Ordering::Relaxed);
            }
        })?;
        Ok(Self(time))
    }
}

impl Clock for CoarseClock {
    #[inline]
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.0.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::time::Instant;

    use super::*;

    fn becomes_true_within_ten_seconds(mut is_true: impl FnMut() -> bool) -> bool {
        let started = Instant::now();
        while started.elapsed() < Duration::from_secs(10) {
            if is_true() {
                return true;
            }
            thread::yield_now();
        }
        false
    }

    #[test]
    fn the_clock_advances_and_is_never_early() {
        let (system, coarse) = (SystemClock::new(), CoarseClock::new(Duration::ZERO).unwrap());
        let start = coarse.now();
        assert!(becomes_true_within_ten_seconds(|| {
            let shown = coarse.now();
            // The system clock and the coarse clock are created separately. If the thread is
            // interrupted during a creation, their times differ, so the test allows 50 ms.
            assert!(shown <= system.now().saturating_add(Duration::from_millis(50)));
            shown >= start.saturating_add(Duration::from_millis(5))
        }));
    }

    #[test]
    fn the_thread_ends_with_the_last_clone() {
        let clock = CoarseClock::new(Duration::from_micros(10)).unwrap();
        let (shown, clone) = (Arc::downgrade(&clock.0), clock.clone());
        drop(clock);
        assert!(shown.upgrade().is_some());
        drop(clone);
        assert!(becomes_true_within_ten_seconds(|| shown.strong_count() == 0));
    }
}
