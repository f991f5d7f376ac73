//! Operations that charge only costs that all enforced policies admit: acquire, acquire up to,
//! reserve.

use super::evaluate::{Evaluated, Waits, evaluate, evaluate_all, skip_alternatives};
use super::record::Record;
use super::records::{PerCharge, Records, make_room};
use super::report::{report, verdict};
use crate::call::{Charge, Charges};
use crate::decision::{Decision, Outcome, Verdict};
use crate::error::Error;
use crate::time::Wait;

/// If each enforced policy admits its charges within the maximum of `waits`, makes all charges,
/// except charges that a shadow denies. Otherwise makes no charge. If a policy with a block denies
/// a charge, also blocks the subject. If a fair pool denies a charge, adds the cost to the demand.
pub(super) fn acquire(
    charges: Charges<'_>,
    now: u64,
    waits: Waits,
    records: &mut impl Records,
) -> Result<Decision, Error> {
    if let (1, Some(charge)) = (charges.len(), charges.get(0)) {
        return acquire_one(&charge, now, waits, records);
    }
    let mut evaluated = evaluate_all(charges, now, waits, records);
    if charges.has_lists() {
        skip_alternatives(charges, &mut evaluated);
    }
    let all = || charges.iter().zip(&evaluated).enumerate();
    let is_enforced = |charge: &Charge<'_>, evaluated: &Evaluated| {
        !charge.policy.is_shadow() && !evaluated.is_skipped
    };
    let enforced = || all().filter(|(_, (charge, evaluated))| is_enforced(charge, evaluated));
    let is_allowed = enforced().all(|(_, (_, evaluated))| evaluated.admits());

    // Several charges can belong to one state. Only the first of these charges writes the state,
    // with their total cost.
    let is_written = |index, charge: &Charge<'_>, evaluated: &Evaluated| {
        evaluated.first == index && evaluated.is_written(charge, is_allowed)
    };
    let written =
        all().filter(|(index, (charge, evaluated))| is_written(*index, charge, evaluated));
    let written = make_room(written.map(|(index, _)| index), records)?;
    for (index, (charge, evaluated)) in all().filter(|(index, _)| written.contains(index)) {
        records.update(index, |record| evaluated.write(&charge, record, now));
    }
    let decision = report(charges, now, &evaluated, records).with_lists_of(charges);
    let wait = enforced().map(|(_, (_, evaluated))| evaluated.wait).max().unwrap_or(Wait::ZERO);
    Ok(if is_allowed { with_wait(decision, wait) } else { decision })
}

/// Like [`acquire`], for a single charge. Most calls have a single charge, which needs less work.
fn acquire_one(
    charge: &Charge<'_>,
    now: u64,
    waits: Waits,
    records: &mut impl Records,
) -> Result<Decision, Error> {
    let evaluated = evaluate(charge, 0, charge.cost, records.get(0), now, waits);
    let is_shadow = charge.policy.is_shadow();
    if evaluated.is_written(charge, evaluated.admits() || is_shadow) {
        records.make_room(&[0])?;
        records.update(0, |record| evaluated.write(charge, record, now));
    }
    let decision = Decision::one(verdict(charge, &evaluated, 0, now, records));
    Ok(if evaluated.admits() && !is_shadow {
        with_wait(decision, evaluated.wait)
    } else {
        decision
    })
}

fn with_wait(decision: Decision, wait: Wait) -> Decision {
    decision.with_wait(wait.as_duration().unwrap_or_default())
}

impl Evaluated {
    /// Returns `true` if the record must be written, either to make the charge or to block the
    /// subject. `is_allowed` says whether the decision allows the whole call.
    fn is_written(&self, charge: &Charge<'_>, is_allowed: bool) -> bool {
        match self.outcome {
            _ if self.cost == 0 || self.is_skipped => false,
            Outcome::Allowed => is_allowed && !charge.is_check_only,
            Outcome::Denied => self.is_offense || self.is_demand(charge),
            Outcome::Blocked => charge.policy.restarts_block() && !self.is_above_limit,
            Outcome::TooLarge | Outcome::DenyListed | Outcome::Skipped => false,
        }
    }

    fn write(&self, charge: &Charge<'_>, record: &mut Record, now: u64) {
        match self.outcome {
            Outcome::Allowed => record.take(charge, self.cost, now),
            Outcome::Blocked => {
                record.change_block(now, |block| block.restart(charge.policy, now));
            }
            _ if self.is_demand(charge) => record.refuse(charge, self.cost, now),
            _ => record.change_block(now, |block| block.offend(charge.policy, now)),
        }
    }

    /// Returns `true` if the cost counts as a demand although it is denied.
    fn is_demand(&self, charge: &Charge<'_>) -> bool {
        charge.policy.is_fair_pool() && !self.is_above_limit
    }
}

/// Acquires the same amount for each charge. This is the maximum amount that all enforced policies
/// admit. If this maximum is below `min`, acquires nothing.
pub(super) fn acquire_up_to(
    charges: Charges<'_>,
    min: u64,
    now: u64,
    records: &mut impl Records,
) -> Result<Decision, Error> {
    // If the maximum is below `min`, the engine tries `min`. At least one policy denies this
    // amount, so that the verdicts contain the reason of the refusal.
    let amount = admissible_amount(charges, now, records).max(min);
    let cost = |charge: Charge<'_>| if charge.is_check_only { charge.cost } else { amount };
    let charges: PerCharge<Charge<'_>> =
        charges.iter().map(|charge| charge.cost(cost(charge))).collect();
    let decision = acquire(charges[..].into(), now, Waits::COUNTING, records)?;
    let is_made = |charge: &Charge<'_>, verdict: &Verdict| {
        decision.is_allowed() && verdict.outcome() == Outcome::Allowed && !charge.is_check_only
    };
    let amounts: PerCharge<u64> = (charges.iter().zip(decision.verdicts()))
        .map(|(charge, verdict)| if is_made(charge, verdict) { amount } else { 0 })
        .collect();
    Ok(decision.with_amounts(amounts))
}

/// Returns the maximum amount that all enforced policies admit, at most the lowest cost of a
/// charge. Returns 0 if an enforced policy denies a check-only charge.
fn admissible_amount(charges: Charges<'_>, now: u64, records: &mut impl Records) -> u64 {
    let mut amount = u64::MAX;
    for (index, charge) in charges.iter().enumerate() {
        let evaluated =
            evaluate(&charge, index, charge.cost, records.get(index), now, Waits::COUNTING);
        let is_shadow = charge.policy.is_shadow();
        match charge.is_check_only {
            true if !evaluated.admits() && !is_shadow => return 0,
            true => {}
            false if is_shadow => amount = amount.min(charge.cost),
            false => {
                let remaining = verdict(&charge, &evaluated, index, now, records).remaining();
                amount = amount.min(charge.cost).min(remaining);
            }
        }
    }
    amount
}
