//! A call that outlives its caller.

use std::time::Duration;

use tidegate_core::{Call, CallId, Charge, Operation, Policy};

/// A call that owns what it is about.
#[derive(Debug)]
pub(crate) struct OwnedCall {
    operation: Operation,
    charges: Vec<OwnedCharge>,
    id: Option<(Vec<u8>, Duration)>,
}

#[derive(Debug)]
struct OwnedCharge {
    policy: Policy,
    tenant: Vec<u8>,
    subject: Vec<u8>,
    cost: u64,
    is_check_only: bool,
}

impl OwnedCharge {
    fn charge(&self) -> Charge<'_> {
        let charge = Charge::new(&self.policy, &self.subject).tenant(&self.tenant).cost(self.cost);
        if self.is_check_only { charge.check_only() } else { charge }
    }
}

impl OwnedCall {
    pub(crate) fn new(call: &Call<'_>) -> Self {
        let own = |charge: Charge<'_>| OwnedCharge {
            policy: charge.policy.clone(),
            tenant: charge.tenant.to_vec(),
            subject: charge.subject.to_vec(),
            cost: charge.cost,
            is_check_only: charge.is_check_only,
        };
        let id = call.id.map(|id| (id.id.to_vec(), id.ttl));
        Self { operation: call.operation, charges: call.charges.iter().map(own).collect(), id }
    }

    pub(crate) fn charges(&self) -> Vec<Charge<'_>> {
        self.charges.iter().map(OwnedCharge::charge).collect()
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
