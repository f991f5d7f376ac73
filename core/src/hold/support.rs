//! What a hold takes, and which policies a store can keep holds of.

use crate::{Charge, Decision, Error, ErrorKind, Outcome, Policy};

/// What a hold that was admitted took of the charge at `index`: 0 of a check-only charge, `None` of a shadow that refused.
pub(crate) fn held_of(decision: &Decision, index: usize, charge: &Charge<'_>) -> Option<u64> {
    let is_taken = decision.verdicts().get(index)?.outcome() == Outcome::Allowed;
    let amount = decision.amounts().get(index).copied().unwrap_or(charge.cost);
    is_taken.then_some(if charge.is_check_only { 0 } else { amount })
}

/// Whether a store can keep states of this policy although it does not give back what has lapsed.
pub fn keeps_lapsed(policy: &Policy) -> Result<(), Error> {
    if !policy.refunds_lapsed() {
        return Ok(());
    }
    let message = format!(
        "`{policy}` gives back what has lapsed, which this store cannot; without `refund-lapsed`, what is held \
         stays charged until it is settled"
    );
    Err(Error::new(ErrorKind::Unsupported, message))
}
