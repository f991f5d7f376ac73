//! The cached denials: an eight-way set-associative table of fixed size, with a bound on heap bytes.
//!
//! Evicting a denial costs a call to the store and nothing else, so the table is a plain one. Expired entries
//! are evicted first, then those not used since the last eviction, and of those the one that expires first.
//! (Cache crates bound the weight of entries but not that of their own tables, and evict regardless of
//! expiry.)

use std::ops::Range;
use std::sync::PoisonError;

use super::entry::{CachedDenial, CallKey};
use super::staleness::ClockReading;
use crate::Decision;
use crate::hash::spread;
use crate::layers::generations::Generations;
use crate::sync::{Mutex, MutexGuard};

/// Slots in which a denial may lie.
const WAYS: usize = 8;

/// Slots in a shard, if there is more than one.
const SLOTS_PER_SHARD: usize = 512;

const MAX_SHARDS: usize = 64;

/// A denial takes at most `1 / MAX_PART` of its shard's bytes.
const MAX_PART: usize = 8;

/// All shards.
#[derive(Debug)]
pub(super) struct Table {
    shards: Box<[Mutex<Shard>]>,
}

#[derive(Debug)]
struct Shard {
    slots: Box<[Slot]>,
    len: usize,
    /// Heap bytes of the entries.
    bytes: usize,
    max_bytes: usize,
    /// The slot to look at next for an eviction.
    evict_cursor: usize,
    hits: u64,
    misses: u64,
}

/// The hash of a call and its denial, if there is one.
type Slot = Option<(u64, Box<Entry>)>;

#[derive(Debug)]
struct Entry {
    denial: CachedDenial,
    /// Whether it was found since the last eviction in its set.
    used: bool,
}

impl Entry {
    fn bytes(&self) -> usize {
        size_of::<Self>() + self.denial.heap_bytes()
    }
}

/// Statistics of a table.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Sums {
    pub(super) hits: u64,
    pub(super) misses: u64,
    pub(super) len: usize,
    /// On the heap.
    pub(super) bytes: usize,
}

impl Table {
    /// A table of about `slots` slots, whose entries take at most `max_bytes` on the heap.
    pub(super) fn new(slots: usize, max_bytes: usize) -> Self {
        let shards = shards_of(slots);
        let shard = || Shard::new(slots_in_each(slots), max_bytes / shards);
        Self { shards: (0..shards).map(|_| Mutex::new(shard())).collect() }
    }

    /// Bytes on the heap of an empty table.
    pub(super) fn bytes_of(slots: usize) -> usize {
        let shard = size_of::<Mutex<Shard>>() + slots_in_each(slots) * size_of::<Slot>();
        shards_of(slots) * shard
    }

    /// The answer to a call that is known to be denied.
    pub(super) fn find(
        &self,
        key: &CallKey<'_>,
        at: ClockReading,
        generations: &Generations,
        counts_misses: bool,
    ) -> Option<Decision> {
        let hash = key.hash?;
        let mut shard = self.shard(hash);
        let decision = shard.find(hash, key, at, generations);
        match decision {
            Some(_) => shard.hits += 1,
            None => shard.misses += u64::from(counts_misses),
        }
        decision
    }

    /// Caches the denial of a call.
    pub(super) fn insert(&self, key: &CallKey<'_>, denial: CachedDenial, at: ClockReading) {
        if let Some(hash) = key.hash {
            let entry = Box::new(Entry { denial, used: false });
            self.shard(hash).insert(hash, key, entry, at);
        }
    }

    pub(super) fn sums(&self) -> Sums {
        self.shards.iter().map(lock).fold(Sums::default(), |sums, shard| Sums {
            hits: sums.hits.wrapping_add(shard.hits),
            misses: sums.misses.wrapping_add(shard.misses),
            len: sums.len + shard.len,
            bytes: sums.bytes + shard.bytes,
        })
    }

    /// By the high bits of the hash; the low ones select the set.
    fn shard(&self, hash: u64) -> MutexGuard<'_, Shard> {
        lock(&self.shards[spread(hash, self.shards.len())])
    }
}

/// A panic leaves no shard half-changed, as nothing that could panic comes between changes.
fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

fn shards_of(slots: usize) -> usize {
    (slots / SLOTS_PER_SHARD).clamp(1, MAX_SHARDS)
}

/// Slots of each shard: whole sets of them.
fn slots_in_each(slots: usize) -> usize {
    (slots / shards_of(slots) / WAYS).max(1) * WAYS
}

impl Shard {
    fn new(slots: usize, max_bytes: usize) -> Self {
        let slots = (0..slots).map(|_| None).collect();
        Self { slots, len: 0, bytes: 0, max_bytes, evict_cursor: 0, hits: 0, misses: 0 }
    }

    fn find(
        &mut self,
        hash: u64,
        key: &CallKey<'_>,
        at: ClockReading,
        generations: &Generations,
    ) -> Option<Decision> {
        let slot = self.position(hash, key)?;
        let (_, entry) = self.slots[slot].as_mut()?;
        if entry.denial.is_valid(key, at, generations) {
            entry.used = true;
            return Some(entry.denial.decision(at));
        }
        self.remove(slot);
        None
    }

    fn insert(&mut self, hash: u64, key: &CallKey<'_>, entry: Box<Entry>, at: ClockReading) {
        let bytes = entry.bytes();
        if bytes > self.max_bytes / MAX_PART {
            return;
        }
        let slot = match self.position(hash, key) {
            Some(same) => same,
            None => self.slot_for(hash, at),
        };
        self.remove(slot);
        self.make_room(bytes, at);
        self.bytes += bytes;
        self.len += 1;
        self.slots[slot] = Some((hash, entry));
    }

    /// The slot of this call's denial.
    fn position(&self, hash: u64, key: &CallKey<'_>) -> Option<usize> {
        let set = self.set(hash);
        let is_same = |(other, entry): &(u64, Box<Entry>)| {
            *other == hash && entry.denial.matches(key.call.charges)
        };
        set.clone().find(|slot| self.slots[*slot].as_ref().is_some_and(is_same))
    }

    /// The slot for a new denial: a free one, or the one to evict.
    fn slot_for(&mut self, hash: u64, at: ClockReading) -> usize {
        let set = self.set(hash);
        let worth = |slot: &usize| {
            let (_, entry) = self.slots[*slot].as_ref()?;
            Some((!entry.denial.is_over(at), entry.used, entry.denial.until()))
        };
        let slot = set.clone().min_by_key(worth).unwrap_or(set.start);
        if let Some((true, ..)) = worth(&slot) {
            for (_, entry) in self.slots[set].iter_mut().flatten() {
                entry.used = false;
            }
        }
        slot
    }

    /// Evicts denials from any set until `bytes` more fit.
    fn make_room(&mut self, bytes: usize, at: ClockReading) {
        while self.len > 0 && self.bytes + bytes > self.max_bytes {
            let slot = self.evict_cursor;
            self.evict_cursor = (slot + 1) % self.slots.len();
            match &mut self.slots[slot] {
                Some((_, entry)) if entry.used && !entry.denial.is_over(at) => entry.used = false,
                _ => self.remove(slot),
            }
        }
    }

    fn remove(&mut self, slot: usize) {
        if let Some((_, entry)) = self.slots[slot].take() {
            self.bytes -= entry.bytes();
            self.len -= 1;
        }
    }

    /// The slots in which the denial of a call may lie.
    fn set(&self, hash: u64) -> Range<usize> {
        let first = spread(hash.rotate_left(32), self.slots.len() / WAYS) * WAYS;
        first..first + WAYS
    }
}
