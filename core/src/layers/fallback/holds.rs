//! The holds on the fallback store, and the places in its queues.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::decision::{Decision, Place};
use crate::time::{MAX_EXACT, micros_of_ceil};
use crate::{Clock, ErrorKind, Operation};

/// The difference between a place in a queue of the fallback store and the number that the caller
/// gets.
///
/// A place is a time in microseconds, so it is less than this number. The sum is less than 2^53, so
/// that it is exact in JSON. The inner store treats the sum as a place after all of its own places.
const OF_FALLBACK: u64 = MAX_EXACT;

/// The time until which the fallback store possibly knows a hold. While it knows none, the layer
/// sends no extension and no settlement to the fallback store.
#[derive(Debug, Default)]
pub(super) struct Holds {
    end_at: AtomicU64,
}

impl Holds {
    /// Records a hold with the time to live `life`, which is made or extended now. The fallback
    /// store knows the hold for twice this time, because a hold can be settled after its lapse.
    pub(super) fn add(&self, life: Duration, clock: &dyn Clock) {
        let life = micros_of_ceil(life).saturating_mul(2);
        let end_at = clock.now().as_micros().saturating_add(life);
        self.end_at.fetch_max(end_at, Ordering::Relaxed);
    }

    /// Returns the time for which the fallback store possibly still knows a hold. A layer that has
    /// recorded no hold does not read the clock.
    pub(super) fn time_left(&self, clock: &dyn Clock) -> Duration {
        match self.end_at.load(Ordering::Relaxed) {
            0 => Duration::ZERO,
            end_at => Duration::from_micros(end_at.saturating_sub(clock.now().as_micros())),
        }
    }
}

/// Returns `true` if an error of this kind says that the inner store has no open hold under the id,
/// so that the hold is possibly on the fallback store. If only the fallback store has made a hold,
/// its settlement charges the inner store under the same id, which then returns `IdReused`.
pub(super) fn is_missing(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::UnknownHold | ErrorKind::HoldLapsed | ErrorKind::IdReused)
}

/// Returns `true` if the operation has a place in a queue of the fallback store. After the inner
/// store has executed the operation, the call leaves this queue.
pub(super) fn leaves_fallback(operation: Operation) -> bool {
    match operation {
        Operation::HoldInTurn { place } | Operation::Leave { place } => place >= OF_FALLBACK,
        _ => false,
    }
}

/// Returns the operation for the fallback store. A place of the inner store is replaced by 0.
pub(super) fn with_own_place(operation: Operation) -> Operation {
    let own = |place: u64| place.saturating_sub(OF_FALLBACK);
    match operation {
        Operation::HoldInTurn { place } => Operation::HoldInTurn { place: own(place) },
        Operation::Leave { place } => Operation::Leave { place: own(place) },
        operation => operation,
    }
}

/// Returns the place for the caller.
pub(super) fn place_for_caller(place: Place) -> Place {
    Place::new(place.number.saturating_add(OF_FALLBACK), place.ahead)
}

/// Returns the answer to a settlement from the answer of the inner store to a charge.
pub(super) fn settled_by_charge(decision: Decision) -> Decision {
    let amounts = decision.amounts().iter().enumerate();
    let charged: Vec<usize> =
        amounts.filter(|(_, amount)| **amount > 0).map(|(index, _)| index).collect();
    decision.with_charged(charged)
}
