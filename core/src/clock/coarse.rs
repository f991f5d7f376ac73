//! A clock that costs one load to read, and lags behind by its grain.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use super::{Clock, SystemClock};
use crate::Timestamp;

/// The machine's clock as a background thread last read it: cheap to read, and slightly behind.
///
/// The thread reads [`SystemClock`] once per `grain`, and ends when the last clone of the clock is dropped.
///
/// *Error:* it is behind by up to the grain, and by more if its thread is not scheduled; so each duration that
/// it measures is wrong by up to as much, either way. A bucket refills in steps, a window may be shorter or
/// longer by the grain, and a caller that waits exactly as long as `retry_after` may be too early. For
/// decisions that are exact to the microsecond, use [`SystemClock`].
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
    /// A clock that is updated once per `grain`, which is at least a microsecond.
    ///
    /// # Errors
    ///
    /// If the system cannot start a thread.
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

    fn within_ten_seconds(mut is_so: impl FnMut() -> bool) -> bool {
        let started = Instant::now();
        while started.elapsed() < Duration::from_secs(10) {
            if is_so() {
                return true;
            }
            thread::yield_now();
        }
        false
    }

    #[test]
    fn it_goes_on_by_itself_and_is_never_ahead() {
        let (system, coarse) = (SystemClock::new(), CoarseClock::new(Duration::ZERO).unwrap());
        let start = coarse.now();
        assert!(within_ten_seconds(|| {
            let shown = coarse.now();
            // Two clocks that were set one after the other may differ by as much as that took.
            assert!(shown <= system.now().saturating_add(Duration::from_millis(50)));
            shown >= start.saturating_add(Duration::from_millis(5))
        }));
    }

    #[test]
    fn its_thread_ends_with_its_last_clone() {
        let clock = CoarseClock::new(Duration::from_micros(10)).unwrap();
        let (shown, clone) = (Arc::downgrade(&clock.0), clock.clone());
        drop(clock);
        assert!(shown.upgrade().is_some());
        drop(clone);
        assert!(within_ten_seconds(|| shown.strong_count() == 0));
    }
}
