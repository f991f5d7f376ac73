//! Whether a cached denial is still valid: generations of keys, and a clock that may step back.

use std::sync::atomic::{AtomicU64, Ordering};

use smallvec::SmallVec;

use crate::Clock;
use crate::hash::spread;

/// The hash of the key of each charge of a call, in order.
pub(super) type Keys = SmallVec<[u64; 4]>;

/// The generation of each of these keys, in order.
pub(super) type KeyGenerations = SmallVec<[u64; 4]>;

/// The number of calls through this cache that may have changed the states of each group of keys.
///
/// Keys are hashed to groups. An answer of the store is valid while the generation is the one from before the
/// call was sent. So a response in flight while the key's generation changed is discarded, and no
/// invalidation message is needed.
#[derive(Debug)]
pub(super) struct Generations {
    counts: Box<[AtomicU64]>,
}

/// A generation that no count reaches.
const OUTDATED: u64 = u64::MAX;

impl Generations {
    /// `counts` groups.
    pub(super) fn new(counts: usize) -> Self {
        Self { counts: (0..counts).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Bytes on the heap.
    pub(super) fn bytes_of(counts: usize) -> usize {
        counts * size_of::<AtomicU64>()
    }

    /// The current generations of these keys.
    pub(super) fn of(&self, keys: &[u64]) -> KeyGenerations {
        keys.iter().map(|key| self.count(*key).load(Ordering::Acquire)).collect()
    }

    /// Whether `key` is still in this generation.
    pub(super) fn is_current(&self, key: u64, count: u64) -> bool {
        self.count(key).load(Ordering::Acquire) == count
    }

    /// Begins a generation of these keys, as their states may have changed.
    pub(super) fn advance(&self, keys: &[u64]) {
        for key in keys {
            self.count(*key).fetch_add(1, Ordering::AcqRel);
        }
    }

    /// The same for a caller that read `counts` and knows the change: they become the new generation,
    /// unless another call began one in between.
    pub(super) fn advance_from(&self, keys: &[u64], counts: &mut [u64]) {
        for (at, key) in keys.iter().enumerate() {
            let same = keys[..at].iter().position(|other| self.index(*other) == self.index(*key));
            counts[at] = match same {
                Some(same) => counts[same],
                None => match self.count(*key).fetch_add(1, Ordering::AcqRel) {
                    before if before == counts[at] => before + 1,
                    _ => OUTDATED,
                },
            };
        }
    }

    fn count(&self, key: u64) -> &AtomicU64 {
        &self.counts[self.index(key)]
    }

    fn index(&self, key: u64) -> usize {
        spread(key, self.counts.len())
    }
}

/// A reading of the clock.
#[derive(Debug, Clone, Copy)]
pub(super) struct ClockReading {
    /// Microseconds since 1970.
    pub(super) now: u64,
    /// The number of backward steps of the clock before it. Readings with different numbers do not compare.
    pub(super) epoch: u64,
}

/// Detects that the clock stepped back behind a time at which a call was sent. From then on it is not known
/// how much of a cached denial is over.
#[derive(Debug, Default)]
pub(super) struct ClockGuard {
    latest: AtomicU64,
    epochs: AtomicU64,
}

impl ClockGuard {
    /// Reads the clock.
    pub(super) fn now(&self, clock: &impl Clock) -> ClockReading {
        // Read before the clock: a clock that does not step back never shows less.
        let latest = self.latest.load(Ordering::Acquire);
        let now = clock.now().as_micros();
        if now < latest {
            self.epochs.fetch_add(1, Ordering::AcqRel);
            self.latest.store(now, Ordering::Release);
        }
        ClockReading { now, epoch: self.epochs.load(Ordering::Acquire) }
    }

    /// Records that a call is sent at this reading.
    pub(super) fn record_send(&self, moment: ClockReading) {
        self.latest.fetch_max(moment.now, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ManualClock, Timestamp};

    const ONE: u64 = 1 << 61;
    const TWO: u64 = 2 << 61;
    /// In the same group as the first.
    const LIKE_ONE: u64 = ONE + 7;

    #[test]
    fn a_change_in_between_makes_it_outdated() {
        let generations = Generations::new(8);
        let taken = generations.of(&[ONE, TWO])[0];
        assert!(generations.is_current(ONE, taken));
        generations.advance(&[ONE]);
        assert!(!generations.is_current(ONE, taken));
        assert!(generations.is_current(TWO, taken));
    }

    #[test]
    fn a_known_change_stays_current_unless_another_call_changed_the_state_too() {
        let generations = Generations::new(8);
        let keys = [ONE, TWO, ONE, LIKE_ONE];
        let mut counts = generations.of(&keys);
        generations.advance_from(&keys, &mut counts);
        assert!((0..4).all(|at| generations.is_current(keys[at], counts[at])));

        generations.advance(&[TWO]);
        generations.advance_from(&keys, &mut counts);
        let current: Vec<bool> =
            (0..4).map(|at| generations.is_current(keys[at], counts[at])).collect();
        assert_eq!(current, [true, false, true, true]);
    }

    #[test]
    fn a_step_back_behind_a_sent_call_is_another_epoch() {
        let (clock, moments) = (ManualClock::default(), ClockGuard::default());
        let at = |micros| {
            clock.set(Timestamp::from_micros(micros));
            moments.now(&clock)
        };
        let first = at(100);
        moments.record_send(first);
        assert_eq!(at(100).epoch, first.epoch);
        assert_eq!(at(200).epoch, first.epoch);
        // No call was sent at 200.
        assert_eq!(at(100).epoch, first.epoch);
        assert_ne!(at(99).epoch, first.epoch);
        assert_eq!(at(99).epoch, at(200).epoch);
    }
}
