//! A call that is remembered under its id.

use crate::Decision;

/// A call that was carried out under an id: what a store keeps to answer it again.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RememberedCall {
    /// The [`Call::fingerprint`](crate::Call::fingerprint).
    pub fingerprint: [u8; 20],
    /// The time from which the call is forgotten: microseconds since 1970. It may be after
    /// [`Timestamp::MAX`](crate::Timestamp::MAX).
    pub expires_at_micros: u64,
    /// The answer.
    pub decision: Decision,
    /// What is known of the hold, if the call was one.
    pub hold: Option<Box<RememberedHold>>,
}

impl RememberedCall {
    /// A call to remember.
    #[must_use]
    pub fn new(fingerprint: [u8; 20], expires_at_micros: u64, decision: Decision) -> Self {
        Self { fingerprint, expires_at_micros, decision, hold: None }
    }

    /// Upper bound on the bytes on the heap of a call on `charges` charges.
    #[must_use]
    pub const fn max_heap_bytes(charges: usize, is_of_hold: bool) -> usize {
        let decision = Decision::max_heap_bytes(charges);
        if !is_of_hold {
            return decision;
        }
        // The answer to the settlement as well.
        2 * decision + size_of::<RememberedHold>() + charges * size_of::<HeldCharge>()
    }
}

/// A [hold](crate::Operation::Hold), until it expires.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RememberedHold {
    /// The minimum of a [`HoldUpTo`](crate::Operation::HoldUpTo).
    pub min_amount: Option<u64>,
    /// When the costs were taken: microseconds since 1970.
    pub taken_at_micros: u64,
    /// Until when the hold can be extended: microseconds since 1970.
    pub lapses_at_micros: u64,
    /// The charges, in order.
    pub charges: Vec<HeldCharge>,
    /// The answer to the settlement, once it is settled.
    pub settlement: Option<Decision>,
}

/// A charge of a hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeldCharge {
    /// The cost that was asked for.
    pub cost: u64,
    /// What was taken; 0 of a check-only charge, `None` of a shadow that refused.
    pub held: Option<u64>,
    /// What was spent so far; the actual cost, once it is settled.
    pub spent: u64,
    /// The number by which the state knows the hold: its own number if the policy refunds lapsed
    /// holds, else the number of the epoch between two resets.
    pub number: u64,
}
