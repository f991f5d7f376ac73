use std::cmp::Reverse;
use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::Mutex;
use std::time::SystemTime;

use tidegate_core::Verdict;

use super::shown::Cut;
use super::sketch::{Estimate, Sketch};
use super::{LimitName, lock};

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

/// The refusals of the current and of the previous minute, by limit and subject.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    /// The hasher has a random key, so that clients cannot choose subjects whose hashes collide.
    hasher: RandomState,
    shards: [Mutex<Minutes>; SHARDS],
}

#[derive(Debug)]
struct Minutes {
    current: Sketch<Refused>,
    previous: Sketch<Refused>,
}

impl Default for Minutes {
    fn default() -> Self {
        Self { current: Sketch::new(CAPACITY), previous: Sketch::new(CAPACITY) }
    }
}

impl Refusals {
    pub(super) fn count(
        &self,
        key: impl Hash,
        blocked: Option<Blocked>,
        value: impl FnOnce() -> Refused,
    ) {
        let hash = self.hasher.hash_one(key);
        #[expect(clippy::cast_possible_truncation, reason = "any bits of a hash will do")]
        let place = hash as usize % SHARDS;
        // The shard always exists, because `place` is less than `SHARDS`.
        if let Some(shard) = self.shards.get(place)
            && let Some(refused) = lock(shard).current.add(hash, value)
        {
            refused.blocked = blocked;
        }
    }

    /// Begins a new minute.
    pub(super) fn rotate(&self) {
        for shard in &self.shards {
            let minutes = &mut *lock(shard);
            minutes.previous = std::mem::replace(&mut minutes.current, Sketch::new(CAPACITY));
        }
    }

    /// Returns the number of all refusals in both minutes, and the `count` keys with the most
    /// refusals, in descending order.
    pub(super) fn top(&self, count: usize) -> (u64, Vec<(Estimate, Refused)>) {
        let (mut total, mut top) = (0, Vec::new());
        for shard in &self.shards {
            let minutes = lock(shard);
            // The current minute is last, because its values replace the values of the previous
            // minute.
            let both = [&minutes.previous, &minutes.current];
            total += both.iter().map(|minute| minute.total()).sum::<u64>();
            let keys: HashMap<u64, &Refused> = both
                .iter()
                .flat_map(|minute| minute.iter())
                .map(|(hash, _, value)| (hash, value))
                .collect();
            top.extend(keys.into_iter().map(|(hash, value)| {
                let [previous, current] = both.map(|minute| minute.estimate(hash));
                (current.plus(previous), hash, value.clone())
            }));
        }
        // Keys with equal numbers are ordered by their hashes, so that the page always shows them
        // in the same order.
        top.sort_by_key(|(estimate, hash, _)| {
            (Reverse((estimate.at_least, estimate.at_most)), *hash)
        });
        top.truncate(count);
        (total, top.into_iter().map(|(estimate, _, value)| (estimate, value)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::StatKey;

    #[test]
    fn what_surely_was_refused_most_comes_before_what_may_have_been() {
        let refusals = Refusals::default();
        let value =
            |key: usize| Refused::new(LimitName::Key(StatKey::new(key.to_string()).into()), None);
        let is_of_first = |key: &usize| refusals.hasher.hash_one(key).is_multiple_of(SHARDS as u64);
        // The first shard receives five times as many keys as it has entries. Each entry then
        // counts five refusals, but only one of them is certainly a refusal of the entry's key.
        for key in (0_usize..).filter(is_of_first).take(5 * CAPACITY) {
            refusals.count(key, None, || value(key));
        }
        let sure = (0_usize..).find(|key| !is_of_first(key)).unwrap();
        for _ in 0..3 {
            refusals.count(sure, None, || value(sure));
        }
        let (total, top) = refusals.top(2);
        assert_eq!(total, 5 * CAPACITY as u64 + 3);
        assert_eq!((top[0].0.at_least, top[0].0.at_most), (3, 3));
        assert_eq!(top[0].1, value(sure));
        assert_eq!((top[1].0.at_least, top[1].0.at_most), (1, 5));
    }
}
