//! A call that outlives its caller.

use std::time::Duration;

use tidegate_core::no_semver::OwnedCharge;
use tidegate_core::{Call, CallId, Charge, Operation};

/// A call that owns what it is about.
#[derive(Debug)]
pub(crate) struct OwnedCall {
    operation: Operation,
    charges: Vec<OwnedCharge>,
    id: Option<(Vec<u8>, Duration)>,
}

impl OwnedCall {
    pub(crate) fn new(call: &Call<'_>) -> Self {
        let id = call.id.map(|id| (id.id.to_vec(), id.ttl));
        Self {
            operation: call.operation,
            charges: call.charges.iter().map(|charge| OwnedCharge::new(&charge)).collect(),
            id,
        }
    }

    pub(crate) fn charges(&self) -> Vec<Charge<'_>> {
        self.charges.iter().map(OwnedCharge::as_charge).collect()
    }

    /// The call with its [`charges`](Self::charges).
    pub(crate) fn call<'c>(&'c self, charges: &'c [Charge<'c>]) -> Call<'c> {
        let call = Call::new(self.operation, charges);
        match &self.id {
            Some((id, ttl)) => call.with_id(CallId::new(id, *ttl)),
            None => call,
        }
    }
}
