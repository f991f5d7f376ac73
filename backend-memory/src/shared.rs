//! The state that all shards of a store share: hash seeds, the heap budget, and the behavior when
//! full.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};

use foldhash::SharedSeed;
use foldhash::fast::FoldHasher;
use tidegate_core::Policy;

/// The behavior when a new state does not fit and no state has expired.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum WhenFull {
    /// Evicts the state that would expire first among the states in the new state's shard.
    ///
    /// New states expire soon, so a flood of new states evicts mostly its own states. The bound on
    /// [bytes outside the tables](crate::MemoryStoreBuilder::max_spill_bytes) may be reached while
    /// no state of the shard that uses such bytes can be evicted. Then states of other shards are
    /// evicted, in the order of their expiry.
    #[default]
    EvictEarliestExpiry,
    /// Rejects the new state with [`ErrorKind::OutOfMemory`](crate::ErrorKind::OutOfMemory).
    Refuse,
}

/// The settings and counters that all shards of a store share.
pub(crate) struct Shared {
    seeds: Seeds,
    pub(crate) heap: HeapBudget,
    pub(crate) when_full: WhenFull,
}

impl Shared {
    pub(crate) fn new(max_heap: usize, when_full: WhenFull) -> Self {
        Self { seeds: Seeds::random(), heap: HeapBudget::new(max_heap), when_full }
    }

    /// Returns a hasher for keys under a policy.
    #[inline]
    pub(crate) fn hasher(&self, policy: &Policy) -> FoldHasher<'_> {
        FoldHasher::with_seed(self.seeds.per_hasher ^ policy.state_hash(), &self.seeds.shared)
    }
}

/// Random hash seeds. Without them, a client could choose subjects that collide in one shard or
/// slot.
struct Seeds {
    per_hasher: u64,
    shared: SharedSeed,
}

impl Seeds {
    /// Creates seeds from the same source of randomness as the maps of the standard library.
    fn random() -> Self {
        let random = || RandomState::new().hash_one(());
        Self { per_hasher: random(), shared: SharedSeed::from_u64(random()) }
    }
}

/// The number of heap bytes that entries use outside the table slots, and its bound.
///
/// Boxed entries (logs, blocked subjects, large counts, holds), long keys and remembered calls use
/// heap bytes.
// All accesses are relaxed: the counter guards no other memory.
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

    /// Returns the number of bytes in use or reserved.
    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Returns `true` if `bytes` more would fit now.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        self.used().checked_add(bytes).is_some_and(|sum| sum <= self.max)
    }

    /// Reserves `bytes` for a write that follows. Returns `false` and reserves nothing if they do
    /// not fit.
    pub(crate) fn reserve(&self, bytes: usize) -> bool {
        let fits = |used: usize| used.checked_add(bytes).filter(|&sum| sum <= self.max);
        bytes == 0 || self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok()
    }

    /// Releases a reservation. The write has recorded its actual bytes with
    /// [`adjust`](Self::adjust).
    pub(crate) fn release(&self, bytes: usize) {
        self.adjust(bytes, 0);
    }

    /// Records that an entry which used `before` bytes now uses `after` bytes.
    pub(crate) fn adjust(&self, before: usize, after: usize) {
        // Usually the size does not change. Then the shared cache line is not written.
        if after > before {
            self.used.fetch_add(after - before, Ordering::Relaxed);
        } else if before > after {
            self.used.fetch_sub(before - after, Ordering::Relaxed);
        }
    }
}
