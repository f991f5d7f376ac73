//! The baseline: the simplest limiter, with a hash table that has one number for each subject. It
//! has the same kind of lock, hash and clock as the memory store. Its memory is not bounded. It has
//! one policy and short subjects, and returns only whether a request is admitted.

use std::hash::{BuildHasher, Hasher};

use foldhash::quality::RandomState;
use hashbrown::HashTable;
use spin::mutex::SpinMutex;

use super::subjects::Setup;

pub(super) struct Baseline {
    shards: Vec<Shard>,
    seed: RandomState,
    clock: quanta::Clock,
    max: u64,
}

#[repr(align(128))]
struct Shard(SpinMutex<HashTable<Entry>>);

type Key = ([u8; 20], u8);

struct Entry {
    key: Key,
    /// The time at which the bucket will be full (GCRA's theoretical arrival time), in nanoseconds.
    full_at: u64,
}

const SHARDS: usize = 256;

const INTERVAL: u64 = 60_000_000_000;

impl Baseline {
    pub(super) fn new(setup: Setup) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Shard(SpinMutex::new(HashTable::new()))).collect(),
            seed: RandomState::default(),
            clock: quanta::Clock::new(),
            max: u64::from(setup.burst) * INTERVAL,
        }
    }

    #[inline]
    pub(super) fn pass(&self, subject: &[u8]) -> Option<bool> {
        let key = key(subject)?;
        let hash = self.hash(&key);
        let now = self.clock.delta_as_nanos(0, self.clock.raw());
        // The hash table uses the highest and the lowest bits of the hash, so other bits choose the
        // shard.
        let [_, _, shard, ..] = hash.to_be_bytes();
        let mut table = self.shards.get(usize::from(shard))?.0.lock();
        let Some(entry) = table.find_mut(hash, |entry| entry.key == key) else {
            let entry = Entry { key, full_at: now + INTERVAL };
            table.insert_unique(hash, entry, |entry| self.hash(&entry.key));
            return Some(true);
        };
        let full_at = entry.full_at.max(now) + INTERVAL;
        let passes = full_at - now <= self.max;
        if passes {
            entry.full_at = full_at;
        }
        Some(passes)
    }

    #[inline]
    fn hash(&self, (bytes, _): &Key) -> u64 {
        let mut hasher = self.seed.build_hasher();
        hasher.write(bytes);
        hasher.finish()
    }
}

#[inline]
fn key(subject: &[u8]) -> Option<Key> {
    let mut bytes = [0; 20];
    bytes.get_mut(..subject.len())?.copy_from_slice(subject);
    Some((bytes, u8::try_from(subject.len()).ok()?))
}
