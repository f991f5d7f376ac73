//! The verdicts of a decision, computed from the states after the operation.

use super::evaluate::{Evaluated, Waits, evaluate, evaluate_all};
use super::record::Record;
use super::records::{Records, update};
use super::verdict::VerdictInput;
use crate::call::{Charge, Charges};
use crate::decision::{Decision, Verdict};
use crate::policy::Policy;

pub(super) fn peek(charges: Charges<'_>, now: u64, records: &mut impl Records) -> Decision {
    let evaluated = evaluate_all(charges, now, Waits::COUNTING, records);
    let decision = report(charges, now, &evaluated, records).with_lists_of(charges);
    if !charges.any_policy(Policy::stores_holds) {
        return decision;
    }
    decision.with_unspent(charges.iter().enumerate().map(|(index, charge)| {
        let holds = records.get(index).and_then(Record::holds);
        let unspent = holds.map_or(0, |holds| holds.unspent(now));
        charge.policy.stores_holds().then_some(unspent)
    }))
}

/// Returns the verdicts on evaluated charges, with the remaining amounts and the recovery times of
/// the current states.
pub(super) fn report(
    charges: Charges<'_>,
    now: u64,
    evaluated: &[Evaluated],
    records: &mut impl Records,
) -> Decision {
    let evaluated = charges.iter().zip(evaluated).enumerate();
    Decision::new(
        evaluated
            .map(|(index, (charge, evaluated))| verdict(&charge, evaluated, index, now, records)),
    )
}

/// Returns the verdicts that a peek with a cost of 0 would return now, after an operation. The
/// waits ignore future lapses: the store remembers the answer to a settlement, and this answer must
/// not depend on other holds.
pub(super) fn report_after(charges: Charges<'_>, now: u64, records: &mut impl Records) -> Decision {
    Decision::new(charges.iter().enumerate().map(|(index, charge)| {
        let evaluated = evaluate(&charge, index, 0, records.get(index), now, Waits::PLAIN);
        verdict(&charge, &evaluated, index, now, records)
    }))
}

/// Returns the verdict on an evaluated charge. Also stores the refunds of lapsed holds in the state
/// of the charge, so that the next call need not compute them again.
pub(super) fn verdict(
    charge: &Charge<'_>,
    evaluated: &Evaluated,
    index: usize,
    now: u64,
    records: &mut impl Records,
) -> Verdict {
    let policy = charge.policy;
    let record = records.get(index);
    let state = record.and_then(|record| record.state_under(policy, now));
    let input = VerdictInput {
        outcome: evaluated.outcome,
        wait: evaluated.wait,
        level: charge.rule().level(state.as_deref(), now),
        ends_at: record.and_then(|record| record.ends_at(policy, now)),
        blocked_until: record.map_or(0, |record| record.block.until),
        block_level: record.map_or(0, |record| record.block.level(now)),
        now,
    };
    let total = policy.warn_percent().and_then(|_| policy.rule().total(state.as_deref(), now));
    if record.is_some_and(|record| record.is_any_hold_over(now)) {
        update(index, records, |record| record.settle_lapsed(now));
    }
    match total {
        Some(total) => input.verdict_of_quota(policy, total),
        None => input.verdict(policy),
    }
}
