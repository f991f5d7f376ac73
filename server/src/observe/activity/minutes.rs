use std::cmp::Reverse;
use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::Mutex;
use std::time::SystemTime;

use tidegate_core::Verdict;

use super::shown::Cut;
use super::sketch::{Estimate, Sketch};
use super::{LimitName, Usage, lock};

/// The number of shards. Each shard has its own lock and counts a part of the keys.
const SHARDS: usize = 8;

/// The maximum number of keys that a shard keeps per minute.
const CAPACITY: usize = 64;

/// A limit and a subject that it refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) limit: LimitName,
    /// The kept part of the subject.
    pub(super) cut: Option<Cut>,
    /// The block at the last refusal.
    pub(super) blocked: Option<Blocked>,
}

impl Refused {
    pub(super) fn new(limit: LimitName, cut: Option<Cut>) -> Self {
        Self { limit, cut, blocked: None }
    }
}

/// The block of a subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Blocked {
    pub(super) until: SystemTime,
    pub(super) level: u8,
}

impl Blocked {
    pub(super) fn new(verdict: &Verdict) -> Option<Self> {
        let span = verdict.blocked_for();
        if span.is_zero() {
            return None;
        }
        Some(Self { until: SystemTime::now().checked_add(span)?, level: verdict.block_level() })
    }
}

/// A limit and a subject that has used most of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Near {
    pub(super) limit: LimitName,
    /// The kept part of the subject.
    pub(super) cut: Option<Cut>,
    /// The usage after the last decision.
    pub(super) usage: Usage,
    /// The time of the last decision.
    pub(super) at: SystemTime,
}

/// The limits and subjects with the most events in the current and in the previous minute.
#[derive(Debug)]
pub(super) struct Frequent<V> {
    /// The hasher has a random key, so that clients cannot choose subjects whose hashes collide.
    hasher: RandomState,
    shards: [Mutex<Minutes<V>>; SHARDS],
}

#[derive(Debug)]
struct Minutes<V> {
    current: Sketch<V>,
    previous: Sketch<V>,
}

impl<V> Default for Minutes<V> {
    fn default() -> Self {
        Self { current: Sketch::new(CAPACITY), previous: Sketch::new(CAPACITY) }
    }
}

impl<V> Default for Frequent<V> {
    fn default() -> Self {
        Self { hasher: RandomState::new(), shards: std::array::from_fn(|_| Mutex::default()) }
    }
}

impl<V: Clone> Frequent<V> {
    /// Counts an event. If the key is not known, `value` creates its value. `update` changes the
    /// value of any key.
    pub(super) fn count(
        &self,
        key: impl Hash,
        value: impl FnOnce() -> V,
        update: impl FnOnce(&mut V),
    ) {
        let hash = self.hasher.hash_one(key);
        #[expect(clippy::cast_possible_truncation, reason = "any bits of a hash will do")]
        let place = hash as usize % SHARDS;
        // The shard always exists, because `place` is less than `SHARDS`.
        if let Some(shard) = self.shards.get(place)
            && let Some(value) = lock(shard).current.add(hash, value)
        {
            update(value);
        }
    }

    /// Begins a new minute.
    pub(super) fn rotate(&self) {
        for shard in &self.shards {
            let minutes = &mut *lock(shard);
            minutes.previous = std::mem::replace(&mut minutes.current, Sketch::new(CAPACITY));
        }
    }

    /// Returns the number of all events in both minutes, and the `count` keys with the most events,
    /// in descending order.
    pub(super) fn top(&self, count: usize) -> (u64, Vec<(Estimate, V)>) {
        let (mut total, mut top) = (0, Vec::new());
        self.for_each_shard(|minutes, keys| {
            total += minutes.iter().map(|minute| minute.total()).sum::<u64>();
            top.extend(keys);
        });
        // Keys with equal numbers are ordered by their hashes, so that the page always shows them
        // in the same order.
        top.sort_by_key(|(estimate, hash, _)| {
            (Reverse((estimate.at_least, estimate.at_most)), *hash)
        });
        top.truncate(count);
        (total, top.into_iter().map(|(estimate, _, value)| (estimate, value)).collect())
    }

    /// Returns the keys that certainly had more events than all keys that are not returned. The
    /// first value is `true` if these are all keys.
    pub(super) fn separated(&self) -> (bool, Vec<V>) {
        let (mut is_complete, mut separated) = (true, Vec::new());
        self.for_each_shard(|minutes, keys| {
            // An estimate of a key that is in no sketch.
            let missing: u64 = minutes.iter().map(|minute| minute.max_missing()).sum();
            is_complete &= missing == 0;
            let keys = keys.into_iter().filter(|(estimate, ..)| estimate.at_least > missing);
            separated.extend(keys.map(|(_, _, value)| value));
        });
        (is_complete, separated)
    }

    fn for_each_shard(&self, mut see: impl FnMut([&Sketch<V>; 2], Vec<(Estimate, u64, V)>)) {
        for shard in &self.shards {
            let minutes = lock(shard);
            // The current minute is last, because its values replace the values of the previous
            // minute.
            let both = [&minutes.previous, &minutes.current];
            let keys: HashMap<u64, &V> = both
                .iter()
                .flat_map(|minute| minute.iter())
                .map(|(hash, _, value)| (hash, value))
                .collect();
            let keys = keys.into_iter().map(|(hash, value)| {
                let [previous, current] = both.map(|minute| minute.estimate(hash));
                (current.plus(previous), hash, value.clone())
            });
            see(both, keys.collect());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::StatKey;

    #[test]
    fn what_surely_was_refused_most_comes_before_what_may_have_been() {
        let refusals = Frequent::default();
        let value =
            |key: usize| Refused::new(LimitName::Key(StatKey::new(key.to_string()).into()), None);
        let is_of_first = |key: &usize| refusals.hasher.hash_one(key).is_multiple_of(SHARDS as u64);
        // The first shard receives five times as many keys as it has entries. Each entry then
        // counts five refusals, but only one of them is certainly a refusal of the entry's key.
        for key in (0_usize..).filter(is_of_first).take(5 * CAPACITY) {
            refusals.count(key, || value(key), |_| ());
        }
        let sure = (0_usize..).find(|key| !is_of_first(key)).unwrap();
        for _ in 0..3 {
            refusals.count(sure, || value(sure), |_| ());
        }
        let (total, top) = refusals.top(2);
        assert_eq!(total, 5 * CAPACITY as u64 + 3);
        assert_eq!((top[0].0.at_least, top[0].0.at_most), (3, 3));
        assert_eq!(top[0].1, value(sure));
        assert_eq!((top[1].0.at_least, top[1].0.at_most), (1, 5));
        // The keys of the full shard are not separated from the keys that it has forgotten.
        assert_eq!(refusals.separated(), (false, vec![value(sure)]));
    }
}
