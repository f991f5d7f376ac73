//! The engine's access to the records of a call, while the shards of these records are locked.

use smallvec::SmallVec;
use tidegate_core::engine::{Record, Records, RememberedCall};
use tidegate_core::no_semver::PackedState;
use tidegate_core::{Charge, Error, ErrorKind};

use super::ShardGuard;
use crate::call_log::{self, LockedId};
use crate::shard::Shard;
use crate::shared::Shared;
use crate::slot::{AnyKey, BoxedEntry, KeyQuery, Slot, Uncommon};

/// A charge, and the data for finding its record.
pub(super) struct ChargeSlot<'s> {
    pub(super) charge: Charge<'s>,
    pub(super) key: AnyKey<'s>,
    pub(super) hash: u64,
    /// The position of the shard in [`LockedCall::shards`].
    pub(super) shard: usize,
}

impl ChargeSlot<'_> {
    fn find(&self, shard: &Shard) -> Option<usize> {
        shard.find(self.hash, self.key, self.charge.policy)
    }
}

/// A call, and the locks of the parts of the store (shards) that contain its records. A shard is
/// locked once, even if several charges use it.
pub(super) struct LockedCall<'s> {
    /// The locked shards and their numbers, in ascending order.
    pub(super) shards: SmallVec<[(usize, ShardGuard<'s>); 4]>,
    /// The locked id of the call, or `None` for a call without an id.
    pub(super) id: Option<LockedId<'s>>,
    pub(super) shared: &'s Shared,
    pub(super) slots: SmallVec<[ChargeSlot<'s>; 4]>,
    pub(super) now: u64,
    /// Whether the call can write records that do not fit into the two words of a packed record.
    /// Acquires usually write packed records.
    pub(super) may_box: bool,
    pub(super) is_of_hold: bool,
    pub(super) is_grant: bool,
    /// The record that [`get`](Records::get) unpacked last. It is stored here, because `get`
    /// returns a reference to it.
    pub(super) unpacked: Option<Record>,
    /// The bytes that this call has reserved in the heap budget. `drop` releases them.
    pub(super) reserved: usize,
    /// The number of bytes that did not fit into the heap budget, or `None` if all bytes fit.
    pub(super) missing_bytes: Option<usize>,
}

impl<'s> LockedCall<'s> {
    fn parts(&mut self, index: usize) -> Option<(&ChargeSlot<'s>, &mut Shard, &'s Shared)> {
        let slot = self.slots.get(index)?;
        Some((slot, &mut self.shards.get_mut(slot.shard)?.1, self.shared))
    }
}

impl Records for LockedCall<'_> {
    fn get(&mut self, index: usize) -> Option<&Record> {
        let slot = self.slots.get(index)?;
        let shard = &self.shards.get(slot.shard)?.1;
        match shard.slot(slot.find(shard)?)? {
            Slot::Uncommon(Uncommon::Boxed(entry)) => entry.as_ref().map(|entry| &entry.record),
            slot => {
                self.unpacked = shard.unpack(slot);
                self.unpacked.as_ref()
            }
        }
    }

    fn make_room(&mut self, writes: &[usize]) -> Result<(), Error> {
        let (slots, may_box, is_of_hold) = (&self.slots, self.may_box, self.is_of_hold);
        let grant_growth = if self.is_grant { Record::grant_growth() } else { 0 };
        for (at, (_, shard)) in self.shards.iter_mut().enumerate() {
            let here: SmallVec<[&ChargeSlot<'_>; 4]> = (writes.iter())
                .filter_map(|&index| slots.get(index))
                .filter(|slot| slot.shard == at)
                .collect();
            let bytes = here.iter().map(|charge| {
                let slot = charge.find(shard).and_then(|index| shard.slot(index));
                max_heap_growth(slot, charge, may_box, is_of_hold) + grant_growth
            });
            let bytes = bytes.sum();
            let result = shard.make_room(
                |shard| here.iter().filter(|slot| slot.find(shard).is_none()).count(),
                bytes,
                self.now,
                self.shared,
                |slot, policies| {
                    slots.iter().any(|own| slot.matches(own.key, own.charge.policy, policies))
                },
            );
            if result.is_err() && !self.shared.heap.has_room(bytes) {
                self.missing_bytes = Some(bytes);
            }
            result?;
            self.reserved += bytes;
        }
        Ok(())
    }

    fn update(&mut self, index: usize, change: impl FnOnce(&mut Record)) {
        let Some((slot, shard, shared)) = self.parts(index) else {
            return;
        };
        match slot.find(shard) {
            Some(index) => shard.update(index, shared, change),
            None => {
                let mut record = Record::new(slot.charge.policy);
                change(&mut record);
                shard.insert(slot.hash, &slot.charge, record, shared);
            }
        }
    }

    fn remove(&mut self, index: usize) {
        let Some((slot, shard, shared)) = self.parts(index) else {
            return;
        };
        if let Some(index) = slot.find(shard) {
            shard.remove(index, shared);
        }
    }

    fn remembered(&mut self) -> Result<Option<RememberedCall>, Error> {
        Ok(self.id.as_ref().and_then(LockedId::get))
    }

    fn make_room_to_remember(&mut self) -> Result<(), Error> {
        let Some(id) = &mut self.id else { return Ok(()) };
        id.make_room(self.now, &self.shared.heap)?;
        let bytes = call_log::max_bytes(self.slots.len(), self.is_of_hold);
        if self.shared.heap.reserve(bytes) {
            self.reserved += bytes;
            return Ok(());
        }
        self.missing_bytes = Some(bytes);
        let (used, max) = (self.shared.heap.used(), self.shared.heap.max());
        let message = format!(
            "logs, long subjects and ids take {used} bytes of at most {max}; {bytes} more for the id of a call do not \
             fit"
        );
        Err(Error::new(ErrorKind::OutOfMemory, message))
    }

    fn remember(&mut self, call: RememberedCall) {
        if let Some(id) = &mut self.id {
            id.insert(call, &self.shared.heap);
        }
    }
}

impl Drop for LockedCall<'_> {
    fn drop(&mut self) {
        self.shared.heap.release(self.reserved);
    }
}

/// Returns the maximum number of heap bytes that a write of the charge's record can add. `slot` is
/// the slot of the record in the table, or `None` for a new record.
fn max_heap_growth(
    slot: Option<&Slot>,
    own: &ChargeSlot<'_>,
    may_box: bool,
    is_of_hold: bool,
) -> usize {
    let Charge { policy, tenant, .. } = own.charge;
    let subject = own.charge.state_subject();
    let may_be_boxed = may_box
        || is_of_hold
        || policy.stores_holds()
        || policy.block_duration().is_some()
        || !PackedState::always_fits(policy);
    let charge_growth = match slot {
        Some(Slot::Uncommon(Uncommon::Boxed(Some(entry)))) => {
            Record::growth(Some(&entry.record), policy)
        }
        _ if may_be_boxed => {
            BoxedEntry::heap_bytes_for(tenant, subject) + Record::growth(None, policy)
        }
        Some(_) => 0,
        None => own.key.heap_bytes(),
    };
    charge_growth + if is_of_hold { Record::hold_growth() } else { 0 }
}
