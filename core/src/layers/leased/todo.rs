//! The calls to the store that follow from a change of the leases: fetches of chunks and
//! settlements.

use std::sync::Arc;

use smallvec::SmallVec;

use super::in_flight::{InFlight, Settlement};
use super::key::LeaseId;
use crate::layers::generations::Keys;
use crate::{Charge, ChargeBuf};

pub(super) type PerCharge<T> = SmallVec<[T; 1]>;

#[derive(Debug, Default)]
#[must_use = "an unspent cost stays charged until it is settled, and a lease waits for its fetch"]
pub(super) struct Todo {
    pub(super) settle: Vec<Unspent>,
    pub(super) fetch: Option<Arc<Fetch>>,
}

/// The hold by which a lease fetches a chunk.
#[derive(Debug)]
pub(super) struct Fetch {
    pub(super) lease: LeaseId,
    /// The number of the hold, which is a part of its id.
    pub(super) number: u64,
    pub(super) charges: PerCharge<ChargeBuf<'static>>,
    pub(super) states: Keys,
}

impl Fetch {
    pub(super) fn charges(&self) -> impl Iterator<Item = Charge<'_>> {
        self.charges.iter().map(ChargeBuf::as_charge)
    }
}

/// The unspent cost of a chunk that is no longer used. A settlement returns this cost to the store.
#[derive(Debug)]
pub(super) struct Unspent {
    pub(super) fetch: Arc<Fetch>,
    used: PerCharge<u64>,
    pub(super) cost: u64,
    /// Counts the settlement as in flight until this field is dropped. A caller waits until then if
    /// the store has refused its acquire.
    _settlement: Settlement,
}

impl Unspent {
    pub(super) fn new(
        in_flight: &Arc<InFlight>,
        fetch: &Arc<Fetch>,
        used: impl Iterator<Item = u64>,
        cost: u64,
    ) -> Self {
        let _settlement = in_flight.begin_settlement(&fetch.states);
        Self { fetch: Arc::clone(fetch), used: used.collect(), cost, _settlement }
    }

    /// Returns the charges of the settlement: the charges of the hold, each with the cost that
    /// calls have used.
    pub(super) fn charges(&self) -> PerCharge<Charge<'_>> {
        self.fetch.charges().zip(&self.used).map(|(charge, used)| charge.cost(*used)).collect()
    }
}
