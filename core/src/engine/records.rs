//! The interface between the engine and the memory of a store.

use smallvec::SmallVec;

use super::record::Record;
use super::remembered::RememberedCall;
use crate::error::{Error, ErrorKind};

/// The records of one call. Each record is identified by the index of its charge in the call.
///
/// Each record belongs to the [`state_name`](crate::Policy::state_name) of the charge's policy, the
/// tenant, and the [`state_subject`](crate::Charge::state_subject). An implementation must lock out
/// all other callers from the first `get` to the last `update` of a call.
///
/// Stores outside of this crate implement this trait. So every new method must have a default
/// implementation, like [`remembered`](Self::remembered).
pub trait Records {
    /// Returns the record of the charge at `index`, if there is one.
    fn get(&mut self, index: usize) -> Option<&Record>;

    /// Makes room for the records of the charges at `indices`, so that the next `update` of each
    /// record cannot fail.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no room. The engine then writes nothing.
    fn make_room(&mut self, indices: &[usize]) -> Result<(), Error>;

    /// Changes the record of the charge at `index`. If there is no record, first creates an empty
    /// record.
    fn update(&mut self, index: usize, change: impl FnOnce(&mut Record));

    /// Removes the record of the charge at `index`, if there is one.
    fn remove(&mut self, index: usize);

    /// Returns the call that the store remembers under the [id](crate::CallId) of the current call,
    /// even if the remembered call has expired. An id is valid together with the
    /// [`slot_key`](crate::Charge::slot_key) of the first charge: the same id with another slot key
    /// is another id.
    ///
    /// The default implementation always returns an error. It is for a store that does not remember
    /// calls.
    ///
    /// # Errors
    ///
    /// Returns an error of kind [`ErrorKind::Unsupported`] if the store does not remember calls.
    fn remembered(&mut self) -> Result<Option<RememberedCall>, Error> {
        Err(Error::new(
            ErrorKind::Unsupported,
            "the store does not remember calls, so it cannot execute a call with an id",
        ))
    }

    /// Makes room for one more remembered call, so that the next [`remember`](Self::remember)
    /// cannot fail.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no room. The engine then writes nothing.
    fn make_room_to_remember(&mut self) -> Result<(), Error> {
        Ok(())
    }

    /// Remembers a call under its id. Replaces an earlier call with the same id.
    fn remember(&mut self, call: RememberedCall) {
        let _ = call;
    }
}

pub(super) type PerCharge<T> = SmallVec<[T; 4]>;

pub(super) fn make_room(
    indices: impl Iterator<Item = usize>,
    records: &mut impl Records,
) -> Result<PerCharge<usize>, Error> {
    let indices: PerCharge<usize> = indices.collect();
    if !indices.is_empty() {
        records.make_room(&indices)?;
    }
    Ok(indices)
}

/// Changes a record, and removes the record if it is empty after the change. Returns the result of
/// `change`.
pub(super) fn update<T: Default>(
    index: usize,
    records: &mut impl Records,
    change: impl FnOnce(&mut Record) -> T,
) -> T {
    let (mut result, mut is_empty) = (T::default(), false);
    records.update(index, |record| {
        result = change(record);
        is_empty = record.is_empty();
    });
    if is_empty {
        records.remove(index);
    }
    result
}
