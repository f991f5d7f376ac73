//! The table of the cached denials: an eight-way set-associative table of fixed size. Its entries
//! use at most a given number of heap bytes.
//!
//! The table is simple, because the eviction of a denial only costs a call to the store. The table
//! evicts expired denials first, and then denials that were not used since the last eviction. Among
//! the unused denials, it evicts the denial that ends first.
//!
//! This module uses no existing cache crate, because these crates bound the size of the entries,
//! but not the size of their own tables, and do not evict expired entries first.

use std::ops::Range;
use std::sync::PoisonError;

use super::entry::{CachedDenial, CallKey};
use super::staleness::ClockReading;
use crate::Decision;
use crate::hash::spread;
use crate::layers::generations::Generations;
use crate::sync::{Mutex, MutexGuard};

/// The number of slots in a set of the table. A denial can be in any slot of its set.
const WAYS: usize = 8;

/// The number of slots in a part of the table (shard), if there are several parts.
const SLOTS_PER_SHARD: usize = 512;

const MAX_SHARDS: usize = 64;

/// A part of the table (shard) does not cache a denial that is larger than `1 / MAX_PART` of the
/// part's maximum size in bytes.
const MAX_PART: usize = 8;

/// The table of the cached denials, in parts (shards) with a lock each.
#[derive(Debug)]
pub(super) struct Table {
    shards: Box<[Mutex<Shard>]>,
}

#[derive(Debug)]
struct Shard {
    slots: Box<[Slot]>,
    len: usize,
    bytes: usize,
    max_bytes: usize,
    /// The slot at which the next search for a denial to evict begins.
    evict_cursor: usize,
    hits: u64,
    misses: u64,
}

/// A slot of the table: the hash of a call and the entry with its denial, or `None` if the slot is
/// empty.
type Slot = Option<(u64, Box<Entry>)>;

#[derive(Debug)]
struct Entry {
    denial: CachedDenial,
    is_used: bool,
}

impl Entry {
    fn bytes(&self) -> usize {
        size_of::<Self>() + self.denial.heap_bytes()
    }
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Sums {
    pub(super) hits: u64,
    pub(super) misses: u64,
    pub(super) len: usize,
    pub(super) bytes: usize,
}

impl Table {
    /// Creates a table of about `slots` slots. The entries of the table use at most `max_bytes` on
    /// the heap.
    pub(super) fn new(slots: usize, max_bytes: usize) -> Self {
        let shards = shards_of(slots);
        let shard = || Shard::new(slots_in_each(slots), max_bytes / shards);
        Self { shards: (0..shards).map(|_| Mutex::new(shard())).collect() }
    }

    pub(super) fn bytes_of(slots: usize) -> usize {
        let shard = size_of::<Mutex<Shard>>() + slots_in_each(slots) * size_of::<Slot>();
        shards_of(slots) * shard
    }

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

    pub(super) fn contains(
        &self,
        key: &CallKey<'_>,
        at: ClockReading,
        generations: &Generations,
    ) -> bool {
        let Some(hash) = key.hash else { return false };
        let shard = self.shard(hash);
        let slot = shard.position(hash, key).and_then(|slot| shard.slots[slot].as_ref());
        slot.is_some_and(|(_, entry)| entry.denial.is_valid(key, at, generations))
    }

    pub(super) fn insert(&self, key: &CallKey<'_>, denial: CachedDenial, at: ClockReading) {
        if let Some(hash) = key.hash {
            let entry = Box::new(Entry { denial, is_used: false });
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

    /// Locks and returns the part of the table (shard) for a hash. The high bits of the hash select
    /// the part, and the low bits select the set in this part.
    fn shard(&self, hash: u64) -> MutexGuard<'_, Shard> {
        lock(&self.shards[spread(hash, self.shards.len())])
    }
}

/// Locks a part of the table, even if a thread has panicked while it held the lock. The code that
/// changes the part cannot panic, so the part is consistent.
fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

fn shards_of(slots: usize) -> usize {
    (slots / SLOTS_PER_SHARD).clamp(1, MAX_SHARDS)
}

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
            entry.is_used = true;
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

    fn position(&self, hash: u64, key: &CallKey<'_>) -> Option<usize> {
        let set = self.set(hash);
        let is_same = |(other, entry): &(u64, Box<Entry>)| {
            *other == hash && entry.denial.matches(key.call.charges)
        };
        set.clone().find(|slot| self.slots[*slot].as_ref().is_some_and(is_same))
    }

    fn slot_for(&mut self, hash: u64, at: ClockReading) -> usize {
        let set = self.set(hash);
        let worth = |slot: &usize| {
            let (_, entry) = self.slots[*slot].as_ref()?;
            Some((!entry.denial.is_over(at), entry.is_used, entry.denial.until()))
        };
        let slot = set.clone().min_by_key(worth).unwrap_or(set.start);
        if let Some((true, ..)) = worth(&slot) {
            for (_, entry) in self.slots[set].iter_mut().flatten() {
                entry.is_used = false;
            }
        }
        slot
    }

    /// Evicts denials from any set of the table until there is room for an entry of `bytes`.
    fn make_room(&mut self, bytes: usize, at: ClockReading) {
        while self.len > 0 && self.bytes + bytes > self.max_bytes {
            let slot = self.evict_cursor;
            self.evict_cursor = (slot + 1) % self.slots.len();
            match &mut self.slots[slot] {
                Some((_, entry)) if entry.is_used && !entry.denial.is_over(at) => {
                    entry.is_used = false;
                }
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

    /// Returns the set for the hash of a call: the slots that can contain the denial of the call.
    fn set(&self, hash: u64) -> Range<usize> {
        let first = spread(hash.rotate_left(32), self.slots.len() / WAYS) * WAYS;
        first..first + WAYS
    }
}
