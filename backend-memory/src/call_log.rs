//! The log of executed calls, which remembers the calls under their ids.
//!
//! The log consists of shards, and each shard has its own lock. A call holds the lock of its id's
//! shard from the lookup of the id until the call is remembered. So calls with the same id are
//! executed one after the other. A call acquires this lock before it locks parts of the store
//! (shards of states), so that two calls cannot deadlock.

use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use sha1_smol::Sha1;
use tidegate_core::engine::RememberedCall;
use tidegate_core::{Call, Error, ErrorKind};

use crate::shared::HeapBudget;

/// The approximate number of remembered calls per shard of the log.
const CALLS_PER_SHARD: usize = 4096;

/// The maximum number of expired calls that are removed when a call is added, which bounds the work
/// of one call. With any maximum above 1, calls are removed faster than they are added.
const MAX_FORGOTTEN: usize = 4;

/// The maximum number of expired calls that are removed when the store is swept.
const MAX_SWEPT: usize = 64;

/// An upper bound on the number of bytes that a remembered call uses, without the heap bytes of its
/// decision. The bound assumes the worst case: the hash map has its lowest load (7 of 16 entries,
/// after the map has grown), and the nodes of the B-tree are half full.
const CALL_BYTES: usize =
    (size_of::<(Key, RememberedCall)>() + 1) * 16 / 7 + 2 * size_of::<(u64, Key)>();

/// The digest of a random prefix, the slot key (tenant or subject) of the call's first charge, and
/// the id of the call. Because the prefix is random, no client can choose many ids that are all in
/// one shard of the log.
type Key = [u8; 20];

pub(crate) struct CallLog {
    shards: Box<[Mutex<Shard>]>,
    prefix: [u8; 16],
    max_per_shard: usize,
    max_ids: usize,
    /// The shard from which expired calls are removed next.
    next: AtomicUsize,
}

#[derive(Default)]
struct Shard {
    calls: HashMap<Key, RememberedCall>,
    by_expiry: BTreeSet<(u64, Key)>,
}

impl CallLog {
    pub(crate) fn new(max_ids: usize) -> Self {
        let count = (max_ids / CALLS_PER_SHARD).next_power_of_two();
        let random = || RandomState::new().hash_one(());
        let prefix = u128::from(random()) << 64 | u128::from(random());
        Self {
            shards: (0..count).map(|_| Mutex::default()).collect(),
            prefix: prefix.to_le_bytes(),
            max_per_shard: max_ids / count,
            max_ids,
            next: AtomicUsize::new(0),
        }
    }

    /// Locks the shard of the log for the call's id. Returns `None` for a call without an id.
    pub(crate) fn lock(&self, call: &Call<'_>) -> Option<LockedId<'_>> {
        let id = call.id?;
        let scope = call.charges.get(0).map_or(&[][..], |charge| charge.slot_key());
        let mut digest = Sha1::from(self.prefix);
        digest.update(&scope.len().to_le_bytes());
        digest.update(scope);
        digest.update(id.id);
        let key = digest.digest().bytes();
        let index = usize::from(u16::from_le_bytes([key[0], key[1]])) % self.shards.len();
        let shard = lock(self.shards.get(index)?);
        Some(LockedId { shard, key, max: self.max_per_shard, max_ids: self.max_ids })
    }

    /// Returns the number of remembered calls, including expired calls that are not removed yet.
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).calls.len()).sum()
    }

    pub(crate) fn forget_expired(&self, now: u64, heap: &HeapBudget) {
        for shard in &self.shards {
            lock(shard).forget_expired(now, usize::MAX, heap);
        }
    }

    /// Removes some expired calls of one shard, so that they are also removed if no call with an id
    /// arrives.
    pub(crate) fn sweep_step(&self, now: u64, heap: &HeapBudget) {
        let next = self.next.fetch_add(1, Ordering::Relaxed) % self.shards.len().max(1);
        if let Some(Ok(mut shard)) = self.shards.get(next).map(Mutex::try_lock) {
            shard.forget_expired(now, MAX_SWEPT, heap);
        }
    }

    /// Returns the number of bytes that the log uses regardless of the number of remembered calls.
    pub(crate) fn fixed_bytes(&self) -> usize {
        size_of_val(&*self.shards)
    }
}

fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    // A shard changes its map and its B-tree together, and nothing can panic between the two
    // changes. So they match each other even if the lock is poisoned.
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shard {
    fn forget_expired(&mut self, now: u64, max: usize, heap: &HeapBudget) {
        for _ in 0..max {
            match self.by_expiry.first() {
                Some(&(expires_at, key)) if expires_at <= now => self.forget(&key, heap),
                _ => break,
            }
        }
    }

    fn forget(&mut self, key: &Key, heap: &HeapBudget) {
        if let Some(call) = self.calls.remove(key) {
            self.by_expiry.remove(&(call.expires_at_micros, *key));
            heap.release(bytes_of(&call));
        }
    }
}

fn bytes_of(call: &RememberedCall) -> usize {
    max_bytes(call.decision.verdicts().len(), call.hold.is_some())
}

/// Returns an upper bound on the bytes of a remembered call with `charges` charges.
pub(crate) fn max_bytes(charges: usize, is_of_hold: bool) -> usize {
    CALL_BYTES + RememberedCall::max_heap_bytes(charges, is_of_hold)
}

/// The lock of a shard of the log, and the key of an id in this shard.
pub(crate) struct LockedId<'a> {
    shard: MutexGuard<'a, Shard>,
    key: Key,
    max: usize,
    max_ids: usize,
}

impl LockedId<'_> {
    pub(crate) fn get(&self) -> Option<RememberedCall> {
        self.shard.calls.get(&self.key).cloned()
    }

    /// Makes room for one more call in the shard. Returns an error if the shard is full of calls
    /// that have not expired. Does not check the heap budget.
    pub(crate) fn make_room(&mut self, now: u64, heap: &HeapBudget) -> Result<(), Error> {
        // The engine makes room only for an id that is unknown or has expired. So if the log has a
        // record of the id, this record has expired.
        self.shard.forget(&self.key, heap);
        self.shard.forget_expired(now, MAX_FORGOTTEN, heap);
        let len = self.shard.calls.len();
        if len < self.max {
            return Ok(());
        }
        let message = format!(
            "the number of remembered ids is at max_ids, which is {} ({len} in the shard of this id), and none has \
             expired; it must be at least the number of new ids per second times their time to live in seconds",
            self.max_ids
        );
        Err(Error::new(ErrorKind::OutOfMemory, message))
    }

    pub(crate) fn insert(&mut self, call: RememberedCall, heap: &HeapBudget) {
        // The new record replaces an earlier record of the same id. For example, a settlement
        // changes the record of its hold.
        self.shard.forget(&self.key, heap);
        heap.adjust(0, bytes_of(&call));
        self.shard.by_expiry.insert((call.expires_at_micros, self.key));
        self.shard.calls.insert(self.key, call);
    }
}
