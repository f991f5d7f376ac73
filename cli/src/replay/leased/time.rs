//! A virtual time that follows the times in a log. It drives the clocks of stores and the timers of
//! Tokio.

use std::time::Duration;

use tidegate_core::{Clock, Lease, Timestamp};
use tokio::task::yield_now;
use tokio::time::{Instant, advance, sleep_until};

/// The resolution of Tokio's timers, in microseconds.
const STEP: u64 = 1_000;

/// If no request arrives for this time, in microseconds, no timer of a lease is left.
const REST: u64 = 2 * 1_000_000 * Lease::MAX_SPAN.as_secs();

/// A clock that shows the time of the log. It computes this time from the clock of Tokio, which
/// must be paused.
#[derive(Debug, Clone)]
pub(super) struct LogTime {
    started: Instant,
    /// The time of the log at the instant `started`, in microseconds since 1970. It is a whole
    /// number of milliseconds, so that timers fire at whole milliseconds of the log.
    started_at: u64,
}

impl LogTime {
    /// Creates a clock that starts at `time`, rounded down to 1 ms. The caller must have entered
    /// the runtime of the timers, and the runtime must not have timers yet.
    pub(super) fn new(time: u64) -> Self {
        Self { started: Instant::now(), started_at: time - time % STEP }
    }

    fn micros(&self) -> u64 {
        let since = self.started.elapsed().as_micros();
        self.started_at.saturating_add(u64::try_from(since).unwrap_or(u64::MAX))
    }

    /// Advances the clock to `time`. If a timer fires before `time`, its task runs at the time of
    /// the timer.
    #[inline]
    pub(super) async fn move_to(&self, time: u64) {
        let now = self.micros();
        if now / STEP != time / STEP && now < time {
            self.step_to(now, time - time % STEP).await;
        }
        let rest = time.saturating_sub(self.micros());
        if rest > 0 {
            advance(Duration::from_micros(rest)).await;
        }
    }

    /// Advances the clock from `now` to `to`, which is a multiple of [`STEP`].
    async fn step_to(&self, now: u64, to: u64) {
        // Tokio advances a paused clock by whole milliseconds to the next timer. So the clock must
        // be at a whole millisecond before the sleep.
        let next = now.next_multiple_of(STEP);
        if next > now {
            advance(Duration::from_micros(next - now)).await;
        }
        let quiet = to.min(next.saturating_add(REST));
        sleep_until(self.started + Duration::from_micros(quiet - self.started_at)).await;
        // Timers at the end of the sleep have fired together with the sleep. The yield runs their
        // tasks.
        yield_now().await;
        if to > quiet {
            advance(Duration::from_micros(to - quiet)).await;
        }
    }
}

impl Clock for LogTime {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.micros())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tokio::time::sleep;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn time_is_that_of_the_log_and_timers_fire_in_steps_on_the_way() {
        let time = LogTime::new(5_000_700);
        time.move_to(5_000_700).await;
        assert_eq!(time.micros(), 5_000_700);
        let fired = Arc::new(Mutex::new(vec![]));
        for micros in [200, 1_000, 1_299, 40_000_000] {
            let (time, fired) = (time.clone(), Arc::clone(&fired));
            tokio::spawn(async move {
                sleep(Duration::from_micros(micros)).await;
                fired.lock().unwrap().push(time.micros());
            });
        }
        let mut seen = vec![];
        for to in [5_000_701, 5_000_701, 5_000_999, 5_001_000, 5_002_001, 90_000_003, 1 << 52] {
            time.move_to(to).await;
            assert_eq!(time.micros(), to);
            seen.push(fired.lock().unwrap().len());
        }
        assert_eq!(seen, [0, 0, 0, 1, 3, 4, 4]);
        assert_eq!(*fired.lock().unwrap(), [5_001_000, 5_002_000, 5_002_000, 45_001_000]);
    }
}
