//! A charge that owns its parts.

use std::fmt;

use smallvec::SmallVec;

use crate::{Charge, Policy};

/// A charge for a task or a future that outlives the request which it belongs to.
#[derive(Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct OwnedCharge {
    policy: Policy,
    tenant: Bytes,
    subject: Bytes,
    cost: u64,
    is_check_only: bool,
}

/// Most subjects need no allocation: the text of any address has at most 39 bytes.
type Bytes = SmallVec<[u8; 40]>;

impl fmt::Debug for OwnedCharge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_charge().fmt(f)
    }
}

impl OwnedCharge {
    /// The same charge.
    #[must_use]
    pub fn new(charge: &Charge<'_>) -> Self {
        let Charge { policy, tenant, subject, cost, is_check_only } = *charge;
        let (tenant, subject) = (Bytes::from_slice(tenant), Bytes::from_slice(subject));
        Self { policy: policy.clone(), tenant, subject, cost, is_check_only }
    }

    /// The policy.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The charge, to be made.
    #[must_use]
    pub fn as_charge(&self) -> Charge<'_> {
        let Self { policy, tenant, subject, cost, is_check_only } = self;
        Charge { policy, tenant, subject, cost: *cost, is_check_only: *is_check_only }
    }
}
