use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::Mutex;

use super::shown::Cut;
use super::sketch::{Estimate, Sketch};
use super::{LimitName, lock};

/// The number of locks. A key belongs to one of them.
const SHARDS: usize = 8;

/// The keys of a shard.
const CAPACITY: usize = 64;

/// A limit, and what is kept of its subject.
pub(super) type Refused = (LimitName, Option<Cut>);

/// The refusals of this minute and the one before, by limit and subject.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    /// Keyed at random, so that subjects cannot be chosen to collide.
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
    pub(super) fn count(&self, key: impl Hash, value: impl FnOnce() -> Refused) {
        let hash = self.hasher.hash_one(key);
        #[expect(clippy::cast_possible_truncation, reason = "any bits of a hash will do")]
        let place = hash as usize % SHARDS;
        // Always there.
        if let Some(shard) = self.shards.get(place) {
            lock(shard).current.add(hash, value);
        }
    }

    /// Begins a new minute.
    pub(super) fn rotate(&self) {
        for shard in &self.shards {
            let minutes = &mut *lock(shard);
            minutes.previous = std::mem::replace(&mut minutes.current, Sketch::new(CAPACITY));
        }
    }

    /// All refusals of both minutes, and those of the `count` keys with most, the most first.
    pub(super) fn top(&self, count: usize) -> (u64, Vec<(Estimate, Refused)>) {
        let (mut total, mut top) = (0, Vec::new());
        for shard in &self.shards {
            let minutes = lock(shard);
            let both = [&minutes.current, &minutes.previous];
            total += both.iter().map(|it| it.total()).sum::<u64>();
            let keys: HashMap<u64, &Refused> = both
                .iter()
                .flat_map(|it| it.iter())
                .map(|(hash, _, value)| (hash, value))
                .collect();
            top.extend(keys.into_iter().map(|(hash, value)| {
                let [current, previous] = both.map(|it| it.estimate(hash));
                (current.plus(previous), value.clone())
            }));
        }
        top.sort_by_key(|(estimate, _)| std::cmp::Reverse((estimate.at_least, estimate.at_most)));
        top.truncate(count);
        (total, top)
    }
}
