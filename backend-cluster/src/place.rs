//! Where in the cluster a charge is kept.

use redis::cluster_routing::Slot;
use smallvec::SmallVec;
use tidegate_core::{Call, Charge, Error, ErrorKind};
use tidegate_redis::wire::{Keys, Request};

/// The slot that a charge is kept in. This alone decides what is asked where.
pub(crate) fn slot_of(keys: &Keys, charge: &Charge<'_>) -> Slot {
    Slot::for_key(keys.of(charge))
}

/// The slot that all keys of a request lie in: a script may touch no other.
///
/// # Errors
///
/// [`ErrorKind::Protocol`] if they lie in several. The keys are made so that they never do.
pub(crate) fn slot_of_request(request: &Request<'_>) -> Result<Slot, Error> {
    let mut slots = request.keys().iter().map(Slot::for_key);
    let first = slots.next();
    match (first, slots.find(|slot| Some(*slot) != first)) {
        (Some(slot), None) => Ok(slot),
        (first, other) => {
            debug_assert!(false, "the keys of one request lie in slots {first:?} and {other:?}");
            Err(Error::new(
                ErrorKind::Protocol,
                format!("the keys of one script call lie in slots {first:?} and {other:?}"),
            ))
        }
    }
}

/// The charges of a call that are kept in one slot, by their places in the call.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) slot: Slot,
    pub(crate) places: SmallVec<[usize; 4]>,
}

/// The parts of a call, one for each slot, in the order of their first charges.
pub(crate) fn parts(keys: &Keys, call: &Call<'_>) -> SmallVec<[Part; 1]> {
    let mut parts: SmallVec<[Part; 1]> = SmallVec::new();
    let mut tags: SmallVec<[(&[u8], Slot); 4]> = SmallVec::new();
    for (place, charge) in call.charges.iter().enumerate() {
        let tag = charge.slot_key();
        let known = tags.iter().find(|(other, _)| *other == tag).map(|(_, slot)| *slot);
        let slot = known.unwrap_or_else(|| {
            let slot = slot_of(keys, &charge);
            tags.push((tag, slot));
            slot
        });
        match parts.iter_mut().find(|part| part.slot == slot) {
            Some(part) => part.places.push(place),
            None => parts.push(Part { slot, places: SmallVec::from_slice(&[place]) }),
        }
    }
    parts
}
