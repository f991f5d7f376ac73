//! The record of a call that was executed under an id.

use crate::decision::Decision;

/// A call that was executed under an id. The store keeps the call, so that it can answer
/// repetitions.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RememberedCall {
    /// The digest of the call: see [`Call::fingerprint`](crate::Call::fingerprint).
    pub fingerprint: [u8; 20],
    /// The time at which the store forgets the call, in microseconds since 1970. It can be after
    /// [`Timestamp::MAX`](crate::Timestamp::MAX).
    pub expires_at_micros: u64,
    /// The answer to the call.
    pub decision: Decision,
    /// The hold, if the call made a hold.
    pub hold: Option<Box<RememberedHold>>,
}

impl RememberedCall {
    /// Creates a remembered call that made no hold.
    #[must_use]
    pub fn new(fingerprint: [u8; 20], expires_at_micros: u64, decision: Decision) -> Self {
        Self { fingerprint, expires_at_micros, decision, hold: None }
    }

    /// Returns an upper bound on the heap bytes of a remembered call with `charges` charges.
    #[must_use]
    pub const fn max_heap_bytes(charges: usize, is_of_hold: bool) -> usize {
        let decision = Decision::max_heap_bytes(charges);
        if !is_of_hold {
            return decision;
        }
        // A hold stores two answers: the answer to the hold, and the answer to its settlement.
        // A hold of slots stores its fences in two boxes.
        let fences = 32 + charges * size_of::<Option<u64>>();
        2 * decision + fences + size_of::<RememberedHold>() + charges * size_of::<HeldCharge>()
    }
}

/// A [hold](crate::Operation::Hold), as a store remembers it until the hold expires.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RememberedHold {
    /// The minimum amount, if the call was a [`HoldUpTo`](crate::Operation::HoldUpTo).
    pub min_amount: Option<u64>,
    /// The time at which the costs were charged, in microseconds since 1970.
    pub taken_at_micros: u64,
    /// The time until which the hold can be extended, in microseconds since 1970.
    pub lapses_at_micros: u64,
    /// The charges of the hold, in the order of the call.
    pub charges: Vec<HeldCharge>,
    /// The answer to the settlement. It is `None` until the hold is settled.
    pub settlement: Option<Decision>,
}

/// A charge of a hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeldCharge {
    /// The cost that the call requested.
    pub cost: u64,
    /// The amount that the hold charged. The amount is 0 for a check-only charge, and `None` if a
    /// shadow policy denied the charge.
    pub held: Option<u64>,
    /// The cost that was settled so far. After the final settlement, this is the actual cost.
    pub spent: u64,
    /// The number that identifies the hold on its state. If the policy refunds lapsed holds, each
    /// hold on the state has its own number; for slots, this is the fence. Otherwise this is the
    /// number of the state's epoch. Each reset of the state begins a new epoch with another number.
    pub number: u64,
}
