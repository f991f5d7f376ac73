//! The records of one call, while their shards are locked.

use smallvec::SmallVec;
use tidegate_core::engine::{Numbers, Record, Records};
use tidegate_core::{Charge, Error};

use crate::memory::Guard;
use crate::shard::{Shard, Shared};
use crate::slot::{AnyKey, BoxedEntry, KeyQuery, Slot, Uncommon};

/// A charge, and where its record is.
pub(crate) struct ChargeSlot<'s> {
    pub(crate) charge: Charge<'s>,
    pub(crate) key: AnyKey<'s>,
    pub(crate) hash: u64,
    /// The place of its shard among the locked.
    pub(crate) shard: usize,
}

impl ChargeSlot<'_> {
    fn find(&self, shard: &Shard) -> Option<usize> {
        shard.find(self.hash, self.key, self.charge.policy)
    }
}

/// A call with its charges' shards, each locked once.
pub(crate) struct LockedCall<'s> {
    /// The locked shards by their numbers, which rise.
    pub(crate) shards: SmallVec<[(usize, Guard<'s>); 4]>,
    pub(crate) shared: &'s Shared,
    pub(crate) places: SmallVec<[ChargeSlot<'s>; 4]>,
    pub(crate) now: u64,
    /// Whether the call shuts its subjects out.
    pub(crate) blocks: bool,
    /// The record that was asked for last, if its slot holds numbers only.
    pub(crate) unpacked: Option<Record>,
    pub(crate) reserved: usize,
    /// The bytes outside of the tables that could not be set aside, if that was why there was no room.
    pub(crate) missing: Option<usize>,
}

impl<'s> LockedCall<'s> {
    fn parts(&mut self, place: usize) -> Option<(&ChargeSlot<'s>, &mut Shard, &'s Shared)> {
        let place = self.places.get(place)?;
        Some((place, &mut self.shards.get_mut(place.shard)?.1, self.shared))
    }
}

impl Records for LockedCall<'_> {
    fn get(&mut self, place: usize) -> Option<&Record> {
        let place = self.places.get(place)?;
        let shard = &self.shards.get(place.shard)?.1;
        match shard.slot(place.find(shard)?)? {
            Slot::Uncommon(Uncommon::Boxed(boxed)) => boxed.as_ref().map(|boxed| &boxed.record),
            slot => {
                self.unpacked = shard.unpack(slot);
                self.unpacked.as_ref()
            }
        }
    }

    fn make_room(&mut self, writes: &[usize]) -> Result<(), Error> {
        let (places, blocks) = (&self.places, self.blocks);
        for (at, (_, shard)) in self.shards.iter_mut().enumerate() {
            let here: SmallVec<[&ChargeSlot<'_>; 4]> = (writes.iter())
                .filter_map(|&place| places.get(place))
                .filter(|place| place.shard == at)
                .collect();
            let bytes = here.iter().map(|place| {
                let slot = place.find(shard).and_then(|index| shard.slot(index));
                bytes_for(slot, place, blocks)
            });
            let bytes = bytes.sum();
            let made = shard.make_room(
                |shard| here.iter().filter(|place| place.find(shard).is_none()).count(),
                bytes,
                self.now,
                self.shared,
                |slot, policies| {
                    places.iter().any(|place| slot.is_of(place.key, place.charge.policy, policies))
                },
            );
            if made.is_err() && !self.shared.heap.has_room(bytes) {
                self.missing = Some(bytes);
            }
            made?;
            self.reserved += bytes;
        }
        Ok(())
    }

    fn update(&mut self, place: usize, change: impl FnOnce(&mut Record)) {
        let Some((place, shard, shared)) = self.parts(place) else {
            return;
        };
        match place.find(shard) {
            Some(index) => shard.update(index, shared, change),
            None => {
                let mut record = Record::new(place.charge.policy);
                change(&mut record);
                shard.insert(place.hash, &place.charge, record, shared);
            }
        }
    }

    fn remove(&mut self, place: usize) {
        let Some((place, shard, shared)) = self.parts(place) else {
            return;
        };
        if let Some(index) = place.find(shard) {
            shard.remove(index, shared);
        }
    }
}

impl Drop for LockedCall<'_> {
    fn drop(&mut self) {
        self.shared.heap.release(self.reserved);
    }
}

/// Bytes outside of the table that the next write to a slot may take.
fn bytes_for(slot: Option<&Slot>, place: &ChargeSlot<'_>, blocks: bool) -> usize {
    let Charge { policy, tenant, .. } = place.charge;
    let subject = place.charge.state_subject();
    let may_be_whole = blocks || policy.blocks_for().is_some() || !Numbers::always_hold(policy);
    match slot {
        Some(Slot::Uncommon(Uncommon::Boxed(Some(boxed)))) => {
            Record::growth(Some(&boxed.record), policy)
        }
        _ if may_be_whole => {
            BoxedEntry::heap_bytes_for(tenant, subject) + Record::growth(None, policy)
        }
        Some(_) => 0,
        None => place.key.heap_bytes(),
    }
}
