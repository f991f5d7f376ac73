//! Calls to a store: an operation on one or several charges.

mod charge;
mod charges;
mod check;
mod fingerprint;
mod id;
mod operation;
mod owned;

pub use charge::{Charge, ChargeBuf};
pub use charges::Charges;
pub(crate) use check::hold_without_id;
pub use check::{MAX_CHARGES, MAX_ID, MAX_SUBJECT};
pub use id::CallId;
#[cfg(feature = "tokio")]
pub(crate) use id::random_bits;
pub use operation::Operation;
pub use owned::OwnedCall;

use std::time::Duration;

use crate::policy::Algorithm;

/// The maximum time for which a place in a queue is kept without another call.
const MAX_LIFE_OF_PLACE: Duration = Duration::from_secs(5);

/// An operation on charges. A store executes it atomically and answers with one decision.
///
/// A call borrows its charges and its id, and is cheap to copy. An [`OwnedCall`] owns its parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Call<'a> {
    /// The operation of the call.
    pub operation: Operation,
    /// The charges of the call. Either all charges are made, or none is made.
    pub charges: Charges<'a>,
    /// The id under which the call is executed once: see [`CallId`].
    pub id: Option<CallId<'a>>,
}

impl<'a> Call<'a> {
    /// Creates a call without an id.
    #[must_use]
    #[inline]
    pub fn new(operation: Operation, charges: &'a [Charge<'a>]) -> Self {
        Self::with_charges(operation, charges.into())
    }

    /// Creates a call without an id. Unlike [`new`](Self::new), this function accepts charges in
    /// any form of [`Charges`].
    #[must_use]
    #[inline(always)]
    pub fn with_charges(operation: Operation, charges: Charges<'a>) -> Self {
        Self { operation, charges, id: None }
    }

    /// Creates a call that acquires `charges`.
    #[must_use]
    #[inline]
    pub fn acquire(charges: &'a [Charge<'a>]) -> Self {
        Self::new(Operation::Acquire, charges)
    }

    /// Returns the time after which a hold of this call lapses. It is the time to live `ttl`, or
    /// the shortest lease of the [slots](crate::Concurrent) that the call takes, if that is
    /// shorter. The lease of a shadow does not count, because a shadow never ends a hold.
    #[doc(hidden)]
    #[must_use]
    pub fn life_of_hold(&self, ttl: Duration) -> Duration {
        let leases = self.charges.iter().filter_map(|charge| match charge.policy.algorithm() {
            _ if charge.policy.is_shadow() || charge.is_check_only => None,
            Algorithm::Concurrent(slots) => Some(slots.lease()),
            _ => None,
        });
        leases.fold(ttl, Duration::min)
    }

    /// Returns the time for which a place in a queue is kept without another call, if the id of the
    /// call has the time to live `ttl`: see [`Operation::HoldInTurn`].
    #[doc(hidden)]
    #[must_use]
    pub fn life_of_place(&self, ttl: Duration) -> Duration {
        self.life_of_hold(ttl).min(MAX_LIFE_OF_PLACE)
    }

    /// Returns `true` if a repetition of this hold must renew the hold before it is answered: the
    /// hold takes [slots](crate::Concurrent) of an enforced policy. A caller that repeats a hold
    /// does not know whether it has the slots, so it has not renewed them.
    #[doc(hidden)]
    #[must_use]
    pub fn must_renew(&self) -> bool {
        self.charges.iter().any(|charge| charge.takes_slots() && !charge.policy.is_shadow())
    }

    /// Sets the id under which the call is executed once.
    #[must_use]
    pub fn with_id(self, id: CallId<'a>) -> Self {
        Self { id: Some(id), ..self }
    }
}
