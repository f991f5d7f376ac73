//! The records of one call, while their shards are locked.

use std::sync::MutexGuard;

use smallvec::SmallVec;
use tidegate_core::engine::{Record, Records};
use tidegate_core::{Charge, Charges, Error};

use crate::shard::{Shard, Shared};
use crate::slot::{Slot, Whole};

/// A call with its charges' shards, each locked once.
pub(crate) struct Session<'s> {
    /// The locked shards by their numbers, which rise.
    pub(crate) shards: SmallVec<[(usize, MutexGuard<'s, Shard>); 4]>,
    pub(crate) shared: &'s Shared,
    pub(crate) charges: Charges<'s>,
    /// For each charge its hash, and its shard's place among the locked.
    pub(crate) places: SmallVec<[(u64, usize); 4]>,
    pub(crate) now: u64,
    /// Whether the call shuts its subjects out.
    pub(crate) blocks: bool,
    /// The record that was asked for last, if its slot holds numbers only.
    pub(crate) unpacked: Option<Record>,
    pub(crate) reserved: usize,
}

impl<'s> Session<'s> {
    fn parts(&mut self, place: usize) -> Option<(Charge<'s>, u64, &mut Shard, &'s Shared)> {
        let &(hash, shard) = self.places.get(place)?;
        let shard = &mut self.shards.get_mut(shard)?.1;
        Some((self.charges.get(place)?, hash, shard, self.shared))
    }
}

impl Records for Session<'_> {
    fn get(&mut self, place: usize) -> Option<&Record> {
        let &(hash, shard) = self.places.get(place)?;
        let (shard, charge) = (&self.shards.get(shard)?.1, self.charges.get(place)?);
        match shard.slot(shard.find(hash, &charge)?)? {
            Slot::Whole(whole) => Some(&whole.record),
            slot => {
                self.unpacked = shard.unpack(slot);
                self.unpacked.as_ref()
            }
        }
    }

    fn make_room(&mut self, writes: &[usize]) -> Result<(), Error> {
        let (charges, blocks) = (self.charges, self.blocks);
        for at in 0..self.shards.len() {
            let here: SmallVec<[(u64, Charge<'_>); 4]> = (writes.iter())
                .filter(|&&place| self.places[place].1 == at)
                .filter_map(|&place| Some((self.places[place].0, charges.get(place)?)))
                .collect();
            let shard = &mut self.shards[at].1;
            let bytes = here.iter().map(|(hash, charge)| {
                let slot = shard.find(*hash, charge).and_then(|index| shard.slot(index));
                bytes_for(slot, charge, blocks)
            });
            let bytes = bytes.sum();
            shard.make_room(
                |shard| here.iter().filter(|(hash, c)| shard.find(*hash, c).is_none()).count(),
                bytes,
                self.now,
                self.shared,
                |slot, policies| charges.iter().any(|charge| slot.is_of(&charge, policies)),
            )?;
            self.reserved += bytes;
        }
        Ok(())
    }

    fn update(&mut self, place: usize, change: impl FnOnce(&mut Record)) {
        let Some((charge, hash, shard, shared)) = self.parts(place) else {
            return;
        };
        match shard.find(hash, &charge) {
            Some(index) => shard.update(index, shared, change),
            None => {
                let mut record = Record::new(charge.policy);
                change(&mut record);
                shard.insert(hash, &charge, record, shared);
            }
        }
    }

    fn remove(&mut self, place: usize) {
        let Some((charge, hash, shard, shared)) = self.parts(place) else {
            return;
        };
        if let Some(index) = shard.find(hash, &charge) {
            shard.remove(index, shared);
        }
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        self.shared.spill.release(self.reserved);
    }
}

/// Bytes outside of the table that the next write to a slot may take.
fn bytes_for(slot: Option<&Slot>, charge: &Charge<'_>, blocks: bool) -> usize {
    let Charge { policy, tenant, subject, .. } = *charge;
    let may_be_whole = blocks || policy.blocks_for().is_some() || policy.rule().most_records() > 0;
    match slot {
        Some(Slot::Whole(whole)) => Record::growth(Some(&whole.record), policy),
        _ if may_be_whole => Whole::heap_bytes_of(tenant, subject) + Record::growth(None, policy),
        Some(_) => 0,
        None => Slot::spilled_by(tenant, subject),
    }
}
