//! What has changed since: a count per group of keys.

use std::sync::atomic::{AtomicU64, Ordering};

use smallvec::SmallVec;

use super::table::spread;

/// The hashes of the keys of a call's charges, by their places.
pub(super) type Keys = SmallVec<[u64; 4]>;

/// The counts of the keys of a call's charges, by their places.
pub(super) type Counts = SmallVec<[u64; 4]>;

/// How often the states behind keys may have changed by calls of ours.
///
/// Keys share a count with others, at random. What was learnt from the store is good while the count
/// is what it was before the store was asked: so an answer that was on its way while a refund passed
/// is never believed, and nobody has to be told.
#[derive(Debug)]
pub(super) struct Generations {
    counts: Box<[AtomicU64]>,
}

/// Never reached by counting.
const OUTDATED: u64 = u64::MAX;

impl Generations {
    /// So many counts.
    pub(super) fn new(counts: usize) -> Self {
        Self { counts: (0..counts).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Bytes on the heap.
    pub(super) fn bytes_of(counts: usize) -> usize {
        counts * size_of::<AtomicU64>()
    }

    /// The counts as they are now.
    pub(super) fn of(&self, keys: &[u64]) -> Counts {
        keys.iter().map(|key| self.count(*key).load(Ordering::Acquire)).collect()
    }

    /// Whether nothing has changed since a count was taken.
    pub(super) fn is_current(&self, key: u64, count: u64) -> bool {
        self.count(key).load(Ordering::Acquire) == count
    }

    /// The states behind these keys may have changed.
    pub(super) fn advance(&self, keys: &[u64]) {
        for key in keys {
            self.count(*key).fetch_add(1, Ordering::AcqRel);
        }
    }

    /// The same, by the caller who took `counts` and knows how they have changed: these become
    /// current again, unless somebody else has changed something since they were taken.
    pub(super) fn advance_from(&self, keys: &[u64], counts: &mut [u64]) {
        for (place, key) in keys.iter().enumerate() {
            let twin =
                keys[..place].iter().position(|other| self.index(*other) == self.index(*key));
            counts[place] = match twin {
                Some(twin) => counts[twin],
                None => match self.count(*key).fetch_add(1, Ordering::AcqRel) {
                    before if before == counts[place] => before + 1,
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
    /// It shares a count with the first.
    const LIKE_ONE: u64 = ONE + 7;

    #[test]
    fn what_changed_in_between_is_outdated() {
        let generations = Generations::new(8);
        let taken = generations.of(&[ONE, TWO])[0];
        assert!(generations.is_current(ONE, taken));
        generations.advance(&[ONE]);
        assert!(!generations.is_current(ONE, taken));
        assert!(generations.is_current(TWO, taken));
    }

    #[test]
    fn who_changes_and_knows_how_stays_current_unless_others_changed_too() {
        let generations = Generations::new(8);
        let keys = [ONE, TWO, ONE, LIKE_ONE];
        let mut counts = generations.of(&keys);
        generations.advance_from(&keys, &mut counts);
        assert!((0..4).all(|place| generations.is_current(keys[place], counts[place])));

        generations.advance(&[TWO]);
        generations.advance_from(&keys, &mut counts);
        let current: Vec<bool> =
            (0..4).map(|place| generations.is_current(keys[place], counts[place])).collect();
        assert_eq!(current, [true, false, true, true]);
    }
}
