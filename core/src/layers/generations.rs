//! Whether an answer of the store is still valid: generations of keys.

use smallvec::SmallVec;

use crate::hash::spread;
use crate::sync::atomic::{AtomicU64, Ordering};

/// The hash of the key of each charge of a call, in order.
pub(in crate::layers) type Keys = SmallVec<[u64; 4]>;

/// The generation of each of these keys, in order.
pub(in crate::layers) type KeyGenerations = SmallVec<[u64; 4]>;

/// The number of calls through a layer that may have changed the states of each group of keys.
///
/// Keys are hashed to groups. An answer of the store is valid while the generation is the one from before the
/// call was sent. So a response in flight while the key's generation changed is discarded, and no
/// invalidation message is needed.
#[derive(Debug)]
pub(in crate::layers) struct Generations {
    counts: Box<[AtomicU64]>,
}

/// A generation that no count reaches.
const OUTDATED: u64 = u64::MAX;

impl Generations {
    /// `counts` groups.
    pub(in crate::layers) fn new(counts: usize) -> Self {
        Self { counts: (0..counts).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Bytes on the heap.
    pub(in crate::layers) fn bytes_of(counts: usize) -> usize {
        counts * size_of::<AtomicU64>()
    }

    /// The current generations of these keys.
    pub(in crate::layers) fn of(&self, keys: &[u64]) -> KeyGenerations {
        keys.iter().map(|key| self.count(*key).load(Ordering::Acquire)).collect()
    }

    /// Whether `key` is still in this generation.
    pub(in crate::layers) fn is_current(&self, key: u64, count: u64) -> bool {
        self.count(key).load(Ordering::Acquire) == count
    }

    /// Begins a generation of these keys, as their states may have changed.
    pub(in crate::layers) fn advance(&self, keys: &[u64]) {
        for key in keys {
            self.count(*key).fetch_add(1, Ordering::AcqRel);
        }
    }

    /// The same for a caller that read `counts` and knows the change: they become the new generation,
    /// unless another call began one in between.
    pub(in crate::layers) fn advance_from(&self, keys: &[u64], counts: &mut [u64]) {
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
