//! The data that all parts (shards) of a store share: the hash seeds, the heap budget, and the
//! behavior of a full store.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};

use foldhash::SharedSeed;
use foldhash::fast::FoldHasher;
use tidegate_core::Policy;

/// The behavior of a store when a new state does not fit and no state has expired.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum WhenFull {
    /// The store evicts the state that would expire first, among the states in the same part of the
    /// store (shard) as the new state.
    ///
    /// New states expire soon, so a flood of new states evicts mostly states of the same flood.
    ///
    /// A new state possibly needs [bytes outside the
    /// tables](crate::MemoryStoreBuilder::max_spill_bytes). If these bytes do not fit, the store
    /// evicts only states that use bytes outside the tables. The states that expire first are
    /// evicted first. If the shard of the new state has no state to evict, the store evicts states
    /// of other shards.
    #[default]
    EvictEarliestExpiry,
    /// A call fails with [`ErrorKind::OutOfMemory`](crate::ErrorKind::OutOfMemory) if it needs a
    /// new state and the state does not fit.
    Refuse,
}

pub(crate) struct Shared {
    seeds: Seeds,
    pub(crate) heap: HeapBudget,
    pub(crate) when_full: WhenFull,
}

impl Shared {
    pub(crate) fn new(max_heap: usize, when_full: WhenFull) -> Self {
        Self { seeds: Seeds::random(), heap: HeapBudget::new(max_heap), when_full }
    }

    #[inline]
    pub(crate) fn hasher(&self, policy: &Policy) -> FoldHasher<'_> {
        FoldHasher::with_seed(self.seeds.per_hasher ^ policy.state_hash(), &self.seeds.shared)
    }
}

/// Random hash seeds. Without random seeds, a client could choose many subjects with the same shard
/// or the same slot of a table.
struct Seeds {
    per_hasher: u64,
    shared: SharedSeed,
}

impl Seeds {
    /// Creates seeds from the randomness of the standard library's maps.
    fn random() -> Self {
        let random = || RandomState::new().hash_one(());
        Self { per_hasher: random(), shared: SharedSeed::from_u64(random()) }
    }
}

/// The heap budget: the number of heap bytes that the store uses outside its tables, and the
/// maximum of this number.
///
/// Boxed entries (logs, blocked subjects, large counts, holds), long keys and remembered calls use
/// heap bytes.
// The counter of used bytes needs no memory ordering, because it guards no other memory.
#[derive(Debug)]
pub(crate) struct HeapBudget {
    used: AtomicUsize,
    max: usize,
}

impl HeapBudget {
    pub(crate) fn new(max: usize) -> Self {
        Self { used: AtomicUsize::new(0), max }
    }

    pub(crate) fn max(&self) -> usize {
        self.max
    }

    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        self.used().checked_add(bytes).is_some_and(|sum| sum <= self.max)
    }

    /// Reserves `bytes` bytes of the heap budget for a later write. Returns `false` and reserves
    /// nothing if the bytes do not fit.
    pub(crate) fn reserve(&self, bytes: usize) -> bool {
        let fits = |used: usize| used.checked_add(bytes).filter(|&sum| sum <= self.max);
        bytes == 0 || self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok()
    }

    /// Releases a reservation in the heap budget, after the write has recorded its actual number of
    /// bytes with [`adjust`](Self::adjust).
    pub(crate) fn release(&self, bytes: usize) {
        self.adjust(bytes, 0);
    }

    /// Records that an entry of a table used `before` heap bytes and now uses `after` heap bytes.
    pub(crate) fn adjust(&self, before: usize, after: usize) {
        // Usually, `before` and `after` are equal. Then the function does not write the cache line
        // that all threads share.
        if after > before {
            self.used.fetch_add(after - before, Ordering::Relaxed);
        } else if before > after {
            self.used.fetch_sub(before - after, Ordering::Relaxed);
        }
    }
}
