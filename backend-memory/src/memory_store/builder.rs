//! The configuration of a store.

use tidegate_core::{Clock, SystemClock};

use super::MemoryStore;
use crate::call_log::CallLog;
use crate::lock::PaddedLock;
use crate::shard::Shard;
use crate::shared::{Shared, WhenFull};

/// The approximate number of states per part of the store (shard). The number is small, so that the
/// table of a shard grows within a fraction of a millisecond.
const KEYS_PER_SHARD: usize = 4096;

/// A builder for [`MemoryStore`].
///
/// ```
/// use tidegate_memory::{MemoryStore, WhenFull};
///
/// let store = MemoryStore::builder().max_keys(100_000).when_full(WhenFull::Refuse).build();
/// assert!(store.max_bytes() < 300 << 20);
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct MemoryStoreBuilder<C = SystemClock> {
    clock: C,
    max_keys: usize,
    max_heap: usize,
    max_ids: usize,
    when_full: WhenFull,
}

impl MemoryStoreBuilder {
    pub(super) fn new() -> Self {
        Self {
            clock: SystemClock::new(),
            max_keys: 1 << 20,
            max_heap: 256 << 20,
            max_ids: 1 << 18,
            when_full: WhenFull::default(),
        }
    }
}

impl<C: Clock> MemoryStoreBuilder<C> {
    /// Sets the clock of the store. Default: [`SystemClock`].
    pub fn clock<D: Clock>(self, clock: D) -> MemoryStoreBuilder<D> {
        let Self { max_keys, max_heap, max_ids, when_full, .. } = self;
        MemoryStoreBuilder { clock, max_keys, max_heap, max_ids, when_full }
    }

    /// Sets the maximum number of states, at least 1. Default: 1,048,576.
    ///
    /// The store distributes its states evenly over its parts (shards), and each shard is allowed
    /// an equal fraction of `keys`. A shard is possibly full slightly before the whole store is
    /// full.
    pub fn max_keys(self, keys: usize) -> Self {
        Self { max_keys: keys.max(1), ..self }
    }

    /// Sets the maximum number of heap bytes that the store uses outside its tables. Default: 256
    /// MiB.
    ///
    /// [Remembered ids](Self::max_ids) need heap bytes outside the tables. A state needs such bytes
    /// in these cases:
    ///
    /// * The state is a log, or a sliding counter with a count of 2^32 or more in one window.
    /// * The subject of the state is blocked or has holds.
    /// * The tenant and the subject together are longer than 20 bytes (19 with a tenant).
    pub fn max_spill_bytes(self, bytes: usize) -> Self {
        Self { max_heap: bytes, ..self }
    }

    /// Sets the maximum number of remembered [ids](tidegate_core::CallId), at least 1. Default:
    /// 262,144.
    ///
    /// The number of ids that the store must remember is the number of new ids per second, times
    /// their time to live in seconds. Add a tenth to this number, because the ids are distributed
    /// over shards:
    ///
    /// | time to live | new ids per second with the default |
    /// |---|---|
    /// | a minute | 4,000 |
    /// | ten minutes | 400 |
    /// | an hour | 66 |
    /// | a day | 2 |
    ///
    /// The store remembers the id of a [hold](tidegate_core::Operation::Hold) for twice its time to
    /// live. It does not remember the id of a refused call.
    ///
    /// The id of a call with one or two charges needs at most 700 bytes of
    /// [`max_spill_bytes`](Self::max_spill_bytes). Each further charge needs 48 bytes more. The id
    /// needs fewer bytes if the decision contains no amounts.
    ///
    /// The store removes expired ids first. If it has no room and no id has expired, a call with a
    /// new id fails with [`ErrorKind::OutOfMemory`](crate::ErrorKind::OutOfMemory), and nothing is
    /// charged. The store never removes an id before it has expired, because the call with that id
    /// could then be executed twice.
    ///
    /// The store distributes the ids evenly over shards, and each shard is allowed an equal
    /// fraction of `ids`. A shard is possibly full of ids slightly before the whole store is.
    pub fn max_ids(self, ids: usize) -> Self {
        Self { max_ids: ids.max(1), ..self }
    }

    /// Sets the behavior when a new state does not fit and no state has expired. Default:
    /// [`WhenFull::EvictEarliestExpiry`].
    pub fn when_full(self, when_full: WhenFull) -> Self {
        Self { when_full, ..self }
    }

    /// Builds the store. The store allocates the memory of its tables when states are added.
    #[must_use]
    pub fn build(self) -> MemoryStore<C> {
        let count = (self.max_keys / KEYS_PER_SHARD).next_power_of_two();
        let max_len = self.max_keys / count;
        MemoryStore {
            clock: self.clock,
            shards: (0..count).map(|_| PaddedLock::new(Shard::new(max_len))).collect(),
            calls: CallLog::new(self.max_ids),
            shared: Shared::new(self.max_heap, self.when_full),
        }
    }
}
