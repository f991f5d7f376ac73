//! A call that owns its parts.

use std::fmt;
use std::time::Duration;

use smallvec::SmallVec;

use crate::owned_charge::OwnedCharge;
use crate::{Call, CallId, Charge, Operation};

/// A call for a task that outlives its caller.
pub struct OwnedCall {
    operation: Operation,
    charges: SmallVec<[OwnedCharge; 1]>,
    id: Option<Box<(Vec<u8>, Duration)>>,
}

impl fmt::Debug for OwnedCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.call(&self.charges()).fmt(f)
    }
}

impl OwnedCall {
    /// The same call.
    #[must_use]
    pub fn new(call: &Call<'_>) -> Self {
        Self {
            operation: call.operation,
            charges: call.charges.iter().map(|charge| OwnedCharge::new(&charge)).collect(),
            id: call.id.map(|id| Box::new((id.id.to_vec(), id.ttl))),
        }
    }

    /// The charges, which a [call](Self::call) borrows.
    #[must_use]
    pub fn charges(&self) -> SmallVec<[Charge<'_>; 1]> {
        self.charges.iter().map(OwnedCharge::as_charge).collect()
    }

    /// The call with its [`charges`](Self::charges).
    #[must_use]
    pub fn call<'c>(&'c self, charges: &'c [Charge<'c>]) -> Call<'c> {
        let call = Call::new(self.operation, charges);
        match self.id.as_deref() {
            Some((id, ttl)) => call.with_id(CallId::new(id, *ttl)),
            None => call,
        }
    }
}
