//! The evaluation of charges: the outcome and the wait of each charge, computed before the engine
//! writes anything.

use super::record::Record;
use super::records::{PerCharge, Records};
use crate::call::{Charge, Charges};
use crate::decision::Outcome;
use crate::time::Wait;

pub(super) struct Evaluated {
    /// The index of the first charge of the call that has the same state as the evaluated charge.
    pub(super) first: usize,
    /// The total cost of all charges of the call that have the same state as the evaluated charge.
    pub(super) cost: u64,
    /// The time until the state admits the cost, regardless of a block.
    pub(super) wait: Wait,
    pub(super) outcome: Outcome,
    /// Whether the cost is above the limit. Such a cost is never an offense.
    pub(super) is_above_limit: bool,
    /// Whether the outcome is a denial after which the policy blocks the subject. A cost above the
    /// limit is not an offense, and neither is a denial that only open attempts cause: see
    /// [`Policy::count_failures`](crate::Policy::count_failures).
    pub(super) is_offense: bool,
    /// Whether another charge of the same list of alternatives pays.
    pub(super) is_skipped: bool,
}

impl Evaluated {
    pub(super) fn admits(&self) -> bool {
        self.outcome == Outcome::Allowed
    }
}

#[derive(Clone, Copy)]
pub(super) struct Waits {
    max: Wait,
    /// Whether the wait of a denied charge takes into account that open holds will lapse.
    counts_on_lapses: bool,
    /// The place of the call in the queue for slots, or 0 if the call has no place.
    place: u64,
}

impl Waits {
    pub(super) const COUNTING: Self = Self::in_turn(0);
    pub(super) const PLAIN: Self = Self { counts_on_lapses: false, ..Self::COUNTING };

    /// Creates the settings for an acquire by a call with the place `place`.
    pub(super) const fn in_turn(place: u64) -> Self {
        Self { max: Wait::ZERO, counts_on_lapses: true, place }
    }

    /// Creates the settings for an acquire, or for a reservation if `max` is not zero. The wait of
    /// a reservation must not depend on future lapses of open holds, because a client can still
    /// extend these holds.
    pub(super) fn up_to(max: Wait) -> Self {
        Self { max, counts_on_lapses: max.is_zero(), ..Self::COUNTING }
    }
}

pub(super) fn evaluate(
    charge: &Charge<'_>,
    first: usize,
    cost: u64,
    record: Option<&Record>,
    now: u64,
    waits: Waits,
) -> Evaluated {
    let state = record.and_then(|record| record.state_under(charge.policy, now));
    let rule = charge.rule();
    let mut wait = rule.wait(state.as_deref(), cost, now);
    let is_blocked = record.is_some_and(|record| record.is_blocked(now));
    if let Some(holds) = record.and_then(Record::holds) {
        let is_behind = || cost > 0 && holds.is_anyone_ahead(waits.place, now);
        if wait.is_zero() && !is_blocked && is_behind() {
            wait = Wait::UNKNOWN;
        }
        if !wait.is_zero() && waits.counts_on_lapses {
            wait = holds.wait(state.as_deref().cloned(), &rule, cost, now, wait);
        }
    }
    let can_wait = || wait <= waits.max && rule.can_reserve_cost(state.as_deref(), cost, now);
    let outcome = if is_blocked {
        Outcome::Blocked
    } else if wait.is_zero() || can_wait() {
        Outcome::Allowed
    } else {
        Outcome::Denied
    };
    let is_above_limit = cost > rule.limit_at(now);
    let is_offense = outcome == Outcome::Denied && charge.policy.blocks() && !is_above_limit && {
        let holds = record.and_then(Record::holds);
        let state = state.as_deref();
        !holds.is_some_and(|holds| holds.excuses_denial(state, &rule, cost, now))
    };
    Evaluated { first, cost, wait, outcome, is_above_limit, is_offense, is_skipped: false }
}

/// Evaluates all charges of a call. If several charges belong to one state, the state admits all of
/// them or none, so each of them is evaluated at the sum of their costs.
pub(super) fn evaluate_all(
    charges: Charges<'_>,
    now: u64,
    waits: Waits,
    records: &mut impl Records,
) -> PerCharge<Evaluated> {
    let evaluate = |(index, charge): (usize, Charge<'_>)| {
        let (mut first, mut cost) = (index, charge.cost);
        if charges.len() > 1 {
            let is_same = |other: Charge<'_>| other.shares_state_with(&charge);
            first = charges.iter().position(is_same).unwrap_or(index);
            cost = charges.total_cost_for(&charge);
        }
        evaluate(&charge, first, cost, records.get(index), now, waits)
    };
    charges.iter().enumerate().map(evaluate).collect()
}

/// Skips all charges of each list of alternatives except the charge that pays. If no charge pays,
/// or if a subject is blocked, the list refuses the call.
pub(super) fn skip_alternatives(charges: Charges<'_>, evaluated: &mut [Evaluated]) {
    for list in charges.lists() {
        let admits = |&index: &usize| evaluated.get(index).is_some_and(Evaluated::admits);
        let Some(payer) = list.clone().find(admits) else { continue };
        for index in list.filter(|&index| index != payer) {
            if let Some(evaluated) = evaluated.get_mut(index) {
                evaluated.is_skipped = evaluated.outcome != Outcome::Blocked;
            }
        }
    }
}
