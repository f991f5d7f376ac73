//! The work in the store that a change of the leases requires.

use std::sync::Arc;

use smallvec::SmallVec;

use super::in_flight::{InFlight, Settlement};
use super::key::LeaseId;
use crate::layers::generations::Keys;
use crate::{Charge, ChargeBuf};

/// One value for each charge of a call.
pub(super) type PerCharge<T> = SmallVec<[T; 1]>;

/// The settlements and the fetch that a change of the leases requires.
#[derive(Debug, Default)]
#[must_use = "an unspent cost stays charged until it is settled, and a lease waits for its fetch"]
pub(super) struct Todo {
    pub(super) settle: Vec<Unspent>,
    pub(super) fetch: Option<Arc<Fetch>>,
}

/// The hold that charges a chunk when a lease fetches the chunk.
#[derive(Debug)]
pub(super) struct Fetch {
    /// The lease that gets the chunk.
    pub(super) lease: LeaseId,
    /// The number of the hold, which is a part of the id of the hold.
    pub(super) number: u64,
    /// The charges of the lease, with the costs of the chunk.
    pub(super) charges: PerCharge<ChargeBuf<'static>>,
    pub(super) states: Keys,
}

impl Fetch {
    pub(super) fn charges(&self) -> impl Iterator<Item = Charge<'_>> {
        self.charges.iter().map(ChargeBuf::as_charge)
    }
}

/// The unspent cost of a chunk that is not used any more. A settlement returns this cost to the
/// store.
#[derive(Debug)]
pub(super) struct Unspent {
    pub(super) fetch: Arc<Fetch>,
    /// The used cost of each charge.
    used: PerCharge<u64>,
    /// The sum of the unspent costs of all charges.
    pub(super) cost: u64,
    /// The settlement, which counts as in flight until this value is dropped. Refused callers wait
    /// until the settlement has ended.
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

    /// Returns the charges of the hold, with the used costs as the costs to settle.
    pub(super) fn charges(&self) -> PerCharge<Charge<'_>> {
        self.fetch.charges().zip(&self.used).map(|(charge, used)| charge.cost(*used)).collect()
    }
}
