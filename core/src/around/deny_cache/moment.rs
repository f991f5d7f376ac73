//! When a call was made, by a clock that may step back.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::Clock;

/// When a call was made: nothing that was sent in another turn of the clock counts any more.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moment {
    /// Microseconds since 1970.
    pub(super) now: u64,
    /// How often the clock had stepped back.
    pub(super) turn: u64,
}

/// Notices when the clock has stepped back behind a time at which the store was asked. From then on
/// nobody can tell how much of a refusal is over.
#[derive(Debug, Default)]
pub(super) struct Moments {
    latest: AtomicU64,
    turns: AtomicU64,
}

impl Moments {
    /// Reads the clock.
    pub(super) fn now(&self, clock: &impl Clock) -> Moment {
        // Read before the clock: a clock that does not step back never shows less.
        let latest = self.latest.load(Ordering::Acquire);
        let now = clock.now().as_micros();
        if now < latest {
            self.turns.fetch_add(1, Ordering::AcqRel);
            self.latest.store(now, Ordering::Release);
        }
        Moment { now, turn: self.turns.load(Ordering::Acquire) }
    }

    /// Takes note that the store is asked at this moment.
    pub(super) fn sent(&self, moment: Moment) {
        self.latest.fetch_max(moment.now, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ManualClock, Timestamp};

    #[test]
    fn a_step_back_behind_what_was_sent_is_another_turn() {
        let (clock, moments) = (ManualClock::default(), Moments::default());
        let at = |micros| {
            clock.set(Timestamp::from_micros(micros));
            moments.now(&clock)
        };
        let first = at(100);
        moments.sent(first);
        assert_eq!(at(100).turn, first.turn);
        assert_eq!(at(200).turn, first.turn);
        // Nobody was asked at 200.
        assert_eq!(at(100).turn, first.turn);
        assert_ne!(at(99).turn, first.turn);
        assert_eq!(at(99).turn, at(200).turn);
    }
}
