//! Decisions on subjects that have no state.

use smallvec::SmallVec;

use crate::engine::{self, Record, Records};
use crate::{Call, Charge, Decision, Error, Operation, Timestamp};

/// Decides a call for subjects that have no usage. If this function refuses the call, the store
/// would refuse it in any state.
pub(super) fn decide(
    operation: Operation,
    charges: &[Charge<'_>],
    now: Timestamp,
) -> Result<Decision, Error> {
    let records = charges.iter().map(|_| None).collect();
    engine::decide(&Call::new(operation, charges), now, &mut EmptyRecords { charges, records })
}

/// The records for one call. They are empty before the call, and are dropped after the call.
struct EmptyRecords<'c> {
    charges: &'c [Charge<'c>],
    records: SmallVec<[Option<Record>; 2]>,
}

impl EmptyRecords<'_> {
    /// Returns the record of the charge at `index`. Several charges to one state share the record
    /// of the first of these charges.
    fn slot(&mut self, index: usize) -> Option<&mut Option<Record>> {
        let charge = self.charges.get(index)?;
        let first = self.charges.iter().position(|other| other.shares_state_with(charge))?;
        self.records.get_mut(first)
    }
}

impl Records for EmptyRecords<'_> {
    fn get(&mut self, index: usize) -> Option<&Record> {
        self.slot(index)?.as_ref()
    }

    fn make_room(&mut self, _: &[usize]) -> Result<(), Error> {
        Ok(())
    }

    fn update(&mut self, index: usize, change: impl FnOnce(&mut Record)) {
        let Some(policy) = self.charges.get(index).map(|charge| charge.policy) else {
            return;
        };
        if let Some(slot) = self.slot(index) {
            change(slot.get_or_insert_with(|| Record::new(policy)));
        }
    }

    fn remove(&mut self, index: usize) {
        if let Some(slot) = self.slot(index) {
            *slot = None;
        }
    }
}
