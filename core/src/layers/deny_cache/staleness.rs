//! Detects that the clock of the deny cache has stepped back to a time before a cached denial.

use crate::Clock;
use crate::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug, Clone, Copy)]
pub(super) struct ClockReading {
    pub(super) now: u64,
    /// The number of times that the clock had stepped back before this reading. The times of two
    /// readings can be compared only if these numbers are equal.
    pub(super) epoch: u64,
}

/// Detects that the clock has stepped back to a time before the latest call was sent. After such a
/// step, it is unknown how much time of a cached denial has passed.
#[derive(Debug, Default)]
pub(super) struct ClockGuard {
    latest: AtomicU64,
    epochs: AtomicU64,
}

impl ClockGuard {
    pub(super) fn now(&self, clock: &impl Clock) -> ClockReading {
        // `latest` is read before the clock. In the opposite order, another thread could record a
        // later call between the two readings, and the clock would seem to have stepped back.
        let latest = self.latest.load(Ordering::Acquire);
        let now = clock.now().as_micros();
        if now < latest {
            self.epochs.fetch_add(1, Ordering::AcqRel);
            self.latest.store(now, Ordering::Release);
        }
        ClockReading { now, epoch: self.epochs.load(Ordering::Acquire) }
    }

    pub(super) fn record_send(&self, reading: ClockReading) {
        self.latest.fetch_max(reading.now, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ManualClock, Timestamp};

    #[test]
    fn a_step_to_a_time_before_a_sent_call_begins_an_epoch() {
        let (clock, guard) = (ManualClock::default(), ClockGuard::default());
        let at = |micros| {
            clock.set(Timestamp::from_micros(micros));
            guard.now(&clock)
        };
        let first = at(100);
        guard.record_send(first);
        assert_eq!(at(100).epoch, first.epoch);
        assert_eq!(at(200).epoch, first.epoch);
        // The clock steps back from 200 to 100. This step is not counted, because the latest call
        // was sent at 100.
        assert_eq!(at(100).epoch, first.epoch);
        assert_ne!(at(99).epoch, first.epoch);
        assert_eq!(at(99).epoch, at(200).epoch);
    }
}
