//! The records of one call, while their shards are locked.

use std::sync::MutexGuard;

use smallvec::SmallVec;
use tidegate_core::engine::{Record, Records};
use tidegate_core::{Charge, Charges, Error};

use crate::key::Key;
use crate::shard::{Shard, Shared};

/// A call with one charge: one shard, one search.
pub(crate) struct One<'s> {
    pub(crate) shard: MutexGuard<'s, Shard>,
    pub(crate) shared: &'s Shared,
    pub(crate) charge: Charge<'s>,
    pub(crate) hash: u64,
    pub(crate) now: u64,
    /// Where the record is, if there is one; `None` until it was looked for.
    pub(crate) found: Option<Option<usize>>,
    pub(crate) reserved: usize,
}

impl One<'_> {
    fn index(&mut self) -> Option<usize> {
        let (shard, hash, charge) = (&self.shard, self.hash, &self.charge);
        *self.found.get_or_insert_with(|| shard.find(hash, charge))
    }
}

impl Records for One<'_> {
    fn get(&mut self, _: usize) -> Option<&Record> {
        let index = self.index()?;
        self.shard.record(index)
    }

    fn make_room(&mut self, _: &[usize]) -> Result<(), Error> {
        let index = self.index();
        let (hash, charge) = (self.hash, self.charge);
        let bytes = bytes_for(index.and_then(|index| self.shard.record(index)), &charge);
        if index.is_some() && bytes == 0 {
            return Ok(());
        }
        self.found = None;
        self.shard.make_room(
            |shard| usize::from(shard.find(hash, &charge).is_none()),
            bytes,
            self.now,
            self.shared,
            |entry| entry.is_of(&charge),
        )?;
        self.reserved += bytes;
        Ok(())
    }

    fn update(&mut self, _: usize, change: impl FnOnce(&mut Record)) {
        match self.index() {
            Some(index) => self.shard.update(index, self.shared, change),
            None => {
                let mut record = Record::new(self.charge.policy);
                change(&mut record);
                self.shard.insert(self.hash, &self.charge, record, self.shared);
                self.found = None;
            }
        }
    }

    fn remove(&mut self, _: usize) {
        if let Some(index) = self.index() {
            self.shard.remove(index, self.shared);
            self.found = None;
        }
    }
}

impl Drop for One<'_> {
    fn drop(&mut self) {
        self.shared.spill.release(self.reserved);
    }
}

/// A call with several charges: all their shards, each locked once.
pub(crate) struct Many<'s> {
    /// The locked shards by their numbers, which rise.
    pub(crate) shards: SmallVec<[(usize, MutexGuard<'s, Shard>); 4]>,
    pub(crate) shared: &'s Shared,
    pub(crate) charges: Charges<'s>,
    /// For each charge its hash, and its shard's place among the locked.
    pub(crate) places: SmallVec<[(u64, usize); 4]>,
    pub(crate) now: u64,
    pub(crate) reserved: usize,
}

impl<'s> Many<'s> {
    fn parts(&mut self, place: usize) -> Option<(Charge<'s>, u64, &mut Shard, &'s Shared)> {
        let &(hash, shard) = self.places.get(place)?;
        let shard = &mut self.shards.get_mut(shard)?.1;
        Some((self.charges.get(place)?, hash, shard, self.shared))
    }
}

impl Records for Many<'_> {
    fn get(&mut self, place: usize) -> Option<&Record> {
        let (charge, hash, shard, _) = self.parts(place)?;
        shard.record(shard.find(hash, &charge)?)
    }

    fn make_room(&mut self, writes: &[usize]) -> Result<(), Error> {
        let charges = self.charges;
        for at in 0..self.shards.len() {
            let here: SmallVec<[(u64, Charge<'_>); 4]> = (writes.iter())
                .filter(|&&place| self.places[place].1 == at)
                .filter_map(|&place| Some((self.places[place].0, charges.get(place)?)))
                .collect();
            let shard = &mut self.shards[at].1;
            let bytes = here.iter().map(|(hash, charge)| {
                bytes_for(shard.find(*hash, charge).and_then(|at| shard.record(at)), charge)
            });
            let bytes = bytes.sum();
            shard.make_room(
                |shard| here.iter().filter(|(hash, c)| shard.find(*hash, c).is_none()).count(),
                bytes,
                self.now,
                self.shared,
                |entry| charges.iter().any(|charge| entry.is_of(&charge)),
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

impl Drop for Many<'_> {
    fn drop(&mut self) {
        self.shared.spill.release(self.reserved);
    }
}

/// Bytes outside of the table that the next write to a record may take.
fn bytes_for(record: Option<&Record>, charge: &Charge<'_>) -> usize {
    let key = match record {
        Some(_) => 0,
        None => Key::heap_bytes_of(charge.tenant, charge.state_subject()),
    };
    key + Record::growth(record, charge.policy)
}
