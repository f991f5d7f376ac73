//! The full path decides any call. It calls [`engine::decide`].

use smallvec::SmallVec;
use tidegate_core::engine;
use tidegate_core::{Call, Clock, Decision, Error, Operation, Timestamp};

use super::MemoryStore;
use super::locked_call::{ChargeSlot, LockedCall};
use crate::interner::PolicyInterner;
use crate::shared::WhenFull;
use crate::slot::{AnyKey, KeyQuery, Slot};

/// The maximum number of attempts to decide a call that does not fit into the heap budget. Several
/// attempts are needed if other calls use the bytes that an eviction has freed.
const MAX_ATTEMPTS: u32 = 4;

impl<C: Clock> MemoryStore<C> {
    #[inline(never)]
    pub(super) fn decide_full(&self, call: &Call<'_>, time: Timestamp) -> Result<Decision, Error> {
        if let Some(decision) = self.acquire_multi(call, time) {
            return Ok(decision);
        }
        // The faster paths leave every call that is not valid to the full path, so the full path
        // must check the call.
        call.check()?;
        let mut last = self.decide_locked(call, time);
        for _ in 1..MAX_ATTEMPTS {
            match last {
                (Err(_), Some(bytes)) if self.evict_heap_entries(bytes, call, time.as_micros()) => {
                    last = self.decide_locked(call, time);
                }
                _ => break,
            }
        }
        last.0
    }

    /// Decides a valid call. If the heap budget is exhausted, returns the error and the number of
    /// bytes that the call needs.
    fn decide_locked(
        &self,
        call: &Call<'_>,
        time: Timestamp,
    ) -> (Result<Decision, Error>, Option<usize>) {
        let now = time.as_micros();
        let mut slots: SmallVec<[ChargeSlot<'_>; 4]> = (call.charges.iter())
            .map(|charge| {
                let key = AnyKey::new(charge.tenant, charge.state_subject());
                let hash = key.hash(self.shared.hasher(charge.policy));
                ChargeSlot { charge, key, hash, shard: self.shard_of(hash) }
            })
            .collect();
        // Shards are always locked in ascending order, so that two calls cannot deadlock.
        let mut numbers: SmallVec<[usize; 4]> = slots.iter().map(|slot| slot.shard).collect();
        numbers.sort_unstable();
        numbers.dedup();
        for slot in &mut slots {
            slot.shard = numbers.binary_search(&slot.shard).unwrap_or(0);
        }
        // Every call locks its id before it locks any shard of states, so that two calls cannot
        // deadlock.
        let id = self.calls.lock(call);
        let mut locked = LockedCall {
            slots,
            shards: numbers.iter().map(|&number| (number, self.shards[number].lock())).collect(),
            id,
            shared: &self.shared,
            now,
            // An operation that cannot be refused (a block, or a charge beyond the limit) possibly
            // writes records that do not fit into the two words of a packed record.
            may_box: !call.operation.can_be_refused(),
            is_of_hold: call.operation.is_of_hold(),
            is_grant: matches!(call.operation, Operation::Grant { .. }),
            unpacked: None,
            reserved: 0,
            missing_bytes: None,
        };
        let mut sweep = None;
        for (number, shard) in &mut locked.shards {
            if let Some(offset) = shard.count_and_sweep(now, &self.shared) {
                sweep = sweep.or(Some(number.wrapping_add(offset)));
            }
        }
        let decision = engine::decide(call, time, &mut locked);
        let missing_bytes = locked.missing_bytes;
        drop(locked);
        if let Some(number) = sweep {
            self.sweep_elsewhere(number, now);
        }
        (decision, missing_bytes)
    }

    /// Removes expired ids, and then evicts entries that use the heap, until `bytes` more bytes fit
    /// into the heap budget. Each step evicts from the shard whose heap entry expires first. The
    /// entries for the charges of `call` are kept. Returns `false` if the bytes cannot fit.
    // The heap budget applies to the whole store, so the function also evicts from other shards
    // than the shard of the new entry. It locks one shard at a time.
    #[cold]
    #[inline(never)]
    fn evict_heap_entries(&self, bytes: usize, call: &Call<'_>, now: u64) -> bool {
        if bytes > self.shared.heap.max() {
            return false;
        }
        self.calls.forget_expired(now, &self.shared.heap);
        if self.shared.heap.has_room(bytes) {
            return true;
        }
        if self.shared.when_full == WhenFull::Refuse {
            return false;
        }
        let is_pinned = |slot: &Slot, policies: &PolicyInterner| {
            call.charges.iter().any(|charge| {
                let key = AnyKey::new(charge.tenant, charge.state_subject());
                slot.matches(key, charge.policy, policies)
            })
        };
        let mut is_exhausted = vec![false; self.shards.len()];
        while !self.shared.heap.has_room(bytes) {
            let expiry = |number: usize| self.shards[number].lock().min_heap_expiry();
            let candidates = (0..self.shards.len()).filter(|&number| !is_exhausted[number]);
            let earliest = candidates
                .map(|number| (expiry(number), number))
                .filter(|(time, _)| *time < u64::MAX)
                .min();
            let Some((_, number)) = earliest else { return false };
            let mut shard = self.shards[number].lock();
            is_exhausted[number] = !shard.evict_heap_entries(bytes, now, &self.shared, is_pinned);
        }
        true
    }
}
