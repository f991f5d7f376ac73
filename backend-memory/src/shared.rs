//! State that all shards of a store share: hash seeds, the heap budget, and the behaviour when full.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};

use foldhash::SharedSeed;
use foldhash::fast::FoldHasher;
use tidegate_core::Policy;

/// Behaviour when a new state does not fit and no state has expired.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum WhenFull {
    /// Evicts the state that would expire first, of those in the new state's shard.
    ///
    /// New states expire soon, so a flood of them evicts mostly its own. If the bound on
    /// [bytes outside the tables](crate::MemoryStoreBuilder::max_spill_bytes) is reached and the shard has
    /// no state to evict that uses such bytes, states of other shards are evicted, in the order in which
    /// they would expire.
    #[default]
    EvictEarliestExpiry,
    /// Rejects the new state with [`ErrorKind::OutOfMemory`](crate::ErrorKind::OutOfMemory).
    Refuse,
}

/// Settings and counters of a store that its shards have in common.
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

/// Random hash seeds. Without them a client could choose subjects that collide in one shard or slot.
struct Seeds {
    per_hasher: u64,
    shared: SharedSeed,
}

impl Seeds {
    /// Draws the seeds from the randomness that the standard library gives its maps.
    fn random() -> Self {
        let random = || RandomState::new().hash_one(());
        Self { per_hasher: random(), shared: SharedSeed::from_u64(random()) }
    }
}

/// Number of bytes that entries use on the heap, outside the table slots, and its bound.
///
/// These are boxed entries (logs, blocked subjects, large counts) and long keys.
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

    /// Bytes in use or reserved.
    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Whether `bytes` more would fit now.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        self.used().checked_add(bytes).is_some_and(|sum| sum <= self.max)
    }

    /// Reserves `bytes` for a coming write. Returns `false`, and reserves nothing, if they do not fit.
    pub(crate) fn reserve(&self, bytes: usize) -> bool {
        let fits = |used: usize| used.checked_add(bytes).filter(|&sum| sum <= self.max);
        bytes == 0 || self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok()
    }

    /// Releases a reservation. The bytes that the write really took have been counted by
    /// [`adjust`](Self::adjust).
    pub(crate) fn release(&self, bytes: usize) {
        self.adjust(bytes, 0);
    }

    /// Records that an entry which used `before` bytes now uses `after`.
    pub(crate) fn adjust(&self, before: usize, after: usize) {
        // Usually the size is unchanged. Then the shared cache line must not be written.
        if after > before {
            self.used.fetch_add(after - before, Ordering::Relaxed);
        } else if before > after {
            self.used.fetch_sub(before - after, Ordering::Relaxed);
        }
    }
}
