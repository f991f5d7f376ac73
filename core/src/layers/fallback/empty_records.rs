//! What a store would say to a subject that it has never seen.

use smallvec::SmallVec;

use crate::engine::{self, Record, Records};
use crate::{Call, Charge, Decision, Error, Operation, Timestamp};

/// Decides as if nothing had been taken yet: what is refused here is refused whatever was taken.
pub(super) fn decide(
    operation: Operation,
    charges: &[Charge<'_>],
    now: Timestamp,
) -> Result<Decision, Error> {
    let records = charges.iter().map(|_| None).collect();
    engine::decide(&Call::new(operation, charges), now, &mut EmptyRecords { charges, records })
}

/// The records of a single call, empty at its beginning and forgotten at its end.
struct EmptyRecords<'c> {
    charges: &'c [Charge<'c>],
    records: SmallVec<[Option<Record>; 2]>,
}

impl EmptyRecords<'_> {
    /// The record of the first charge to the key of the one at `place`.
    fn slot(&mut self, place: usize) -> Option<&mut Option<Record>> {
        let charge = self.charges.get(place)?;
        let first = self.charges.iter().position(|other| other.shares_state_with(charge))?;
        self.records.get_mut(first)
    }
}

impl Records for EmptyRecords<'_> {
    fn get(&mut self, place: usize) -> Option<&Record> {
        self.slot(place)?.as_ref()
    }

    fn make_room(&mut self, _: &[usize]) -> Result<(), Error> {
        Ok(())
    }

    fn update(&mut self, place: usize, change: impl FnOnce(&mut Record)) {
        let Some(policy) = self.charges.get(place).map(|charge| charge.policy) else {
            return;
        };
        if let Some(slot) = self.slot(place) {
            change(slot.get_or_insert_with(|| Record::new(policy)));
        }
    }

    fn remove(&mut self, place: usize) {
        if let Some(slot) = self.slot(place) {
            *slot = None;
        }
    }
}
