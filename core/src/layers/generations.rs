//! Generations of keys, which show whether an answer of the store is still valid.

use smallvec::SmallVec;

use crate::hash::spread;
use crate::sync::atomic::{AtomicU64, Ordering};

/// The keys of a call: the hash of the state of each charge, in the order of the charges.
pub(in crate::layers) type Keys = SmallVec<[u64; 4]>;

pub(in crate::layers) type KeyGenerations = SmallVec<[u64; 4]>;

/// A counter for each group of keys. The counter of a group counts the calls that have possibly
/// changed states of the keys in this group.
///
/// Each key belongs to one group. The count of the group is the *generation* of the key. An answer
/// of the store is valid as long as each key of the call has the same generation as before the
/// call. If a generation changes while the answer is in flight, the answer is discarded. No
/// invalidation message is needed.
#[derive(Debug)]
pub(in crate::layers) struct Generations {
    counts: Box<[AtomicU64]>,
}

/// A number that differs from every generation, because no counter reaches it.
const OUTDATED: u64 = u64::MAX;

impl Generations {
    pub(in crate::layers) fn new(counts: usize) -> Self {
        Self { counts: (0..counts).map(|_| AtomicU64::new(0)).collect() }
    }

    pub(in crate::layers) fn bytes_of(counts: usize) -> usize {
        counts * size_of::<AtomicU64>()
    }

    pub(in crate::layers) fn current(&self, keys: &[u64]) -> KeyGenerations {
        keys.iter().map(|key| self.count(*key).load(Ordering::Acquire)).collect()
    }

    pub(in crate::layers) fn is_current(&self, key: u64, count: u64) -> bool {
        self.count(key).load(Ordering::Acquire) == count
    }

    /// Begins a new generation of these keys, because their states have possibly changed.
    pub(in crate::layers) fn advance(&self, keys: &[u64]) {
        for key in keys {
            self.count(*key).fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Begins a new generation of each key, because a call of the caller has changed the state of
    /// the key. The caller knows the new state from the answer to its call.
    ///
    /// `counts` must contain the generations that the caller read before the call. This method
    /// replaces them with the new generations, so that the answer stays valid. If another call has
    /// begun a new generation of a key after the caller's reading, this method writes `OUTDATED`
    /// for that key, so that the answer is not valid.
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
    /// A key in the same group as `ONE`.
    const LIKE_ONE: u64 = ONE + 7;

    #[test]
    fn a_change_in_between_makes_it_outdated() {
        let generations = Generations::new(8);
        let first = generations.current(&[ONE, TWO])[0];
        assert!(generations.is_current(ONE, first));
        generations.advance(&[ONE]);
        assert!(!generations.is_current(ONE, first));
        assert!(generations.is_current(TWO, first));
    }

    #[test]
    fn a_known_change_stays_current_unless_another_call_changed_the_state_too() {
        let generations = Generations::new(8);
        let keys = [ONE, TWO, ONE, LIKE_ONE];
        let mut counts = generations.current(&keys);
        generations.advance_from(&keys, &mut counts);
        assert!((0..4).all(|at| generations.is_current(keys[at], counts[at])));

        generations.advance(&[TWO]);
        generations.advance_from(&keys, &mut counts);
        let current: Vec<bool> =
            (0..4).map(|at| generations.is_current(keys[at], counts[at])).collect();
        assert_eq!(current, [true, false, true, true]);
    }
}
