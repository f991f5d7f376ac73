//! The memory store consists of parts (shards). Each shard is a table of states with its own lock.
//!
//! A call takes the first path in this table that applies to it:
//!
//! | path | calls |
//! |---|---|
//! | [`fast`] | `Acquire` of one charge |
//! | [`multi`] | `Acquire` of several charges to packed or new records |
//! | [`full`] | all others, through [`engine::decide`](tidegate_core::engine::decide) |

mod builder;
mod fast;
mod full;
mod locked_call;
mod multi;

use std::fmt;

pub use builder::MemoryStoreBuilder;
use tidegate_core::engine::Record;
use tidegate_core::{
    Answer, Call, Charge, Clock, Decision, Error, ErrorKind, Policy, Store, SystemClock, Timestamp,
};

use crate::call_log::CallLog;
use crate::key::ShortKey;
use crate::lock::PaddedLock;
use crate::shard::Shard;
use crate::shared::Shared;
use crate::slot::KeyQuery;

type ShardGuard<'a> = crate::lock::Guard<'a, Shard>;

/// An in-memory store with bounded memory.
///
/// The states are distributed over parts of the store (shards), and each part has its own lock. A
/// call waits only for the locks of the parts that contain its states. There is no background
/// thread.
///
/// ```
/// use tidegate_memory::{Call, Charge, MemoryStore, Policy};
///
/// let store = MemoryStore::builder().max_keys(100_000).build();
/// let policy: Policy = "api: token-bucket 2/s".parse()?;
/// let charge = [Charge::new(&policy, "alice")];
/// assert!(store.decide_now(&Call::acquire(&charge))?.is_allowed());
/// assert_eq!(store.len(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct MemoryStore<C = SystemClock> {
    clock: C,
    shards: Box<[PaddedLock<Shard>]>,
    calls: CallLog,
    shared: Shared,
}

impl MemoryStore {
    /// Creates a store with the system's clock and the default bounds.
    #[must_use]
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Returns a builder that sets bounds and the clock.
    pub fn builder() -> MemoryStoreBuilder {
        MemoryStoreBuilder::new()
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl<C: Clock> MemoryStore<C> {
    /// Decides on one call, synchronously.
    ///
    /// This function is inlined and adds about 6 kB of code to its caller. An application that
    /// calls it in many places should wrap it in a function.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Store::decide`]. The memory store itself causes only errors of
    /// the kind [`ErrorKind::OutOfMemory`].
    #[inline(always)]
    pub fn decide_now(&self, call: &Call<'_>) -> Result<Decision, Error> {
        self.decide_by(call, &self.clock, |decision| decision)
    }

    /// Returns the number of states, including expired states that are not removed yet.
    #[must_use]
    pub fn len(&self) -> usize {
        self.each_shard(Shard::len).sum()
    }

    /// Returns the number of remembered [ids](tidegate_core::CallId), including expired ids that
    /// are not removed yet.
    #[must_use]
    pub fn remembered_ids(&self) -> usize {
        self.calls.len()
    }

    /// Returns `true` if the store contains no states.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of bytes that the store uses, including the free slots of its tables.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.fixed_bytes() + self.each_shard(Shard::bytes).sum::<usize>() + self.shared.heap.used()
    }

    /// Returns an upper bound on [`bytes`](Self::bytes).
    ///
    /// While the table of a part of the store (shard) grows, the old and the new table exist at the
    /// same time. Each thread that is growing a table therefore adds memory beyond `max_bytes`: at
    /// most `max_bytes` divided by the number of shards.
    #[must_use]
    pub fn max_bytes(&self) -> usize {
        let shards = self.each_shard(Shard::max_bytes).sum::<usize>();
        self.fixed_bytes() + shards + self.shared.heap.max()
    }

    /// Removes all expired states and ids. An application need not call this function, because the
    /// calls on the store also remove expired states and ids.
    pub fn sweep(&self) {
        let now = self.clock.now().as_micros();
        for shard in &self.shards {
            shard.lock().sweep_all(now, &self.shared);
        }
        self.calls.forget_expired(now, &self.shared.heap);
    }

    /// Calls `see` with the tenant, the subject and the record of each state, in unspecified order.
    ///
    /// While `see` is called for the states of a shard, that shard is locked. So `see` must not
    /// call the store.
    pub fn for_each(&self, mut see: impl FnMut(&[u8], &[u8], &Record)) {
        for shard in &self.shards {
            for (slot, record) in shard.lock().records() {
                slot.with_key(|tenant, subject| see(tenant, subject, &record));
            }
        }
    }

    /// Returns the hash and the key of a charge, or `None` if the key is too long for a
    /// [`ShortKey`].
    #[inline(always)]
    fn short_key(&self, charge: &Charge<'_>) -> Option<(u64, ShortKey)> {
        let key = ShortKey::new(charge.tenant, charge.state_subject())?;
        Some((key.hash(self.shared.hasher(charge.policy)), key))
    }

    /// Returns the number of the shard for a hash, from the high bits of the hash.
    #[inline]
    fn shard_of(&self, hash: u64) -> usize {
        let scaled = (u128::from(hash) * self.shards.len() as u128) >> 64;
        usize::try_from(scaled).unwrap_or(0)
    }

    /// Locks the shard of a hash and counts the call. Returns `None` if another thread holds the
    /// lock, or if the call must first remove expired states (a sweep).
    #[inline(always)]
    fn try_lock_shard(&self, hash: u64) -> Option<ShardGuard<'_>> {
        let mut shard = self.shards.get(self.shard_of(hash))?.try_lock()?;
        shard.count_unless_sweep_due().then_some(shard)
    }

    /// Removes the expired states from one group of slots of a part of the store (shard), unless
    /// another thread holds the lock of the shard.
    fn sweep_elsewhere(&self, number: usize, now: u64) {
        if let Some(mut shard) = self.shards[number % self.shards.len()].try_lock() {
            shard.sweep_step(now, &self.shared);
        }
        self.calls.sweep_step(now, &self.shared.heap);
    }

    fn each_shard<'s, T>(&'s self, f: impl Fn(&Shard) -> T + 's) -> impl Iterator<Item = T> + 's {
        self.shards.iter().map(move |shard| f(&shard.lock()))
    }

    /// Returns the number of bytes that the store uses regardless of the number of states.
    fn fixed_bytes(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.shards) + self.calls.fixed_bytes()
    }
}

impl<C: Clock> Store for MemoryStore<C> {
    #[inline(always)]
    fn decide<'a>(&'a self, call: Call<'a>) -> Answer<'a, Result<Decision, Error>> {
        self.decide_by(&call, &self.clock, Answer::ready)
    }

    fn decide_many<'a>(
        &'a self,
        calls: &'a [Call<'a>],
    ) -> Answer<'a, Vec<Result<Decision, Error>>> {
        let now = BatchClock(self.clock.now());
        Answer::ready(
            calls.iter().map(|call| self.decide_by(call, &now, |decision| decision)).collect(),
        )
    }

    fn now(&self) -> Answer<'_, Result<Timestamp, Error>> {
        Answer::ready(Ok(self.clock.now()))
    }

    fn answers_immediately(&self) -> bool {
        true
    }

    fn supports(&self, policy: &Policy) -> Result<(), Error> {
        // A growing log is copied into memory of up to twice its capacity. During the copy, the old
        // memory is also in use.
        let records = usize::try_from(policy.rule().max_records()).unwrap_or(usize::MAX);
        let needed = records.saturating_mul(2 * 16);
        if needed <= self.shared.heap.max() {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Unsupported,
            format!(
                "one state of `{policy}` may take {needed} bytes, and all logs together have {}; \
                 raise max_spill_bytes, or give the log a grain",
                self.shared.heap.max(),
            ),
        ))
    }
}

/// A clock that stands still, so that all calls of a batch are decided at one time.
#[derive(Debug)]
struct BatchClock(Timestamp);

impl Clock for BatchClock {
    fn now(&self) -> Timestamp {
        self.0
    }
}

impl<C: fmt::Debug> fmt::Debug for MemoryStore<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").field("clock", &self.clock).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_takes_two_cache_lines_with_its_lock() {
        assert_eq!(size_of::<PaddedLock<Shard>>(), 128);
    }
}
