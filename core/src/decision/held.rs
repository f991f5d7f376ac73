//! The amount that a hold charged.

use crate::{Charge, Decision, Outcome};

/// Returns the amount that an admitted hold charged for the charge at `index`. The amount is 0 if
/// the charge is check-only. Returns `None` if a shadow denied the charge.
pub(crate) fn held_of(decision: &Decision, index: usize, charge: &Charge<'_>) -> Option<u64> {
    let is_taken = decision.verdicts().get(index)?.outcome() == Outcome::Allowed;
    let amount = decision.amounts().get(index).copied().unwrap_or(charge.cost);
    is_taken.then_some(if charge.is_check_only { 0 } else { amount })
}
