//! How a store decides: records under keys, and a call carried out on them.
//!
//! A backend that keeps its states in its own process needs nothing else: it implements [`Records`], locks out other
//! callers, and calls [`decide`]. Everything that can fail is checked before the first write. A backend that keeps its
//! states elsewhere stores a record's parts, and restores it from these: [`Record::restore`].

mod dispatch;
pub(crate) mod fast;
pub(crate) mod hold;
mod once;
mod record;
mod remembered;
pub(crate) mod state_holds;
pub(crate) mod verdict;

use std::time::Duration;

use smallvec::SmallVec;

pub use crate::algorithm::rule::Rule;
pub use crate::algorithm::shape::StateShape;
pub use crate::policy::StateName;
pub use dispatch::State;
pub use record::Record;
pub use remembered::{HeldCharge, RememberedCall, RememberedHold};

use self::verdict::VerdictInput;
use crate::algorithm::traits::Take;
use crate::call::hold_without_id;
use crate::time::{MAX_SPAN_MICROS, Wait, micros_of, micros_of_ceil};
use crate::{
    Call, Charge, Charges, Decision, Error, ErrorKind, Operation, Outcome, Policy, Timestamp,
    Verdict,
};

/// The records of a call, by the indices of its charges.
///
/// The record of a charge is the one of its policy's [`state_name`](crate::Policy::state_name), its tenant and its
/// [`state_subject`](Charge::state_subject). An implementation locks out all other callers from `get` to the last
/// `update`.
///
/// Stores outside of this crate implement it. So a method that is added later has a default
/// implementation, as [`remembered`](Self::remembered) has.
pub trait Records {
    /// The record of the charge at `index`.
    fn get(&mut self, index: usize) -> Option<&Record>;

    /// Makes sure that the next `update` of each of these indices cannot fail.
    ///
    /// # Errors
    ///
    /// If there is no room. Nothing may have been written then.
    fn make_room(&mut self, indices: &[usize]) -> Result<(), Error>;

    /// Changes the record of the charge at `index`, which is created empty if it does not exist.
    fn update(&mut self, index: usize, change: impl FnOnce(&mut Record));

    /// Removes the record of the charge at `index`, if it exists.
    fn remove(&mut self, index: usize);

    /// What is remembered under the call's [id](crate::CallId), expired or not. The id belongs to the
    /// [`slot_key`](Charge::slot_key) of the call's first charge.
    ///
    /// The default implementation is that of a store without ids.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`], if the store remembers no calls.
    fn remembered(&mut self) -> Result<Option<RememberedCall>, Error> {
        Err(Error::new(
            ErrorKind::Unsupported,
            "the store does not remember calls: it cannot carry out a call once under an id",
        ))
    }

    /// Makes sure that the next [`remember`](Self::remember) cannot fail.
    ///
    /// # Errors
    ///
    /// If there is no room. Nothing may have been written then.
    fn make_room_to_remember(&mut self) -> Result<(), Error> {
        Ok(())
    }

    /// Remembers a call under its id, in place of an earlier one.
    fn remember(&mut self, call: RememberedCall) {
        let _ = call;
    }
}

/// Carries out a call.
///
/// # Errors
///
/// If the call is not valid ([`Call::check`]), or there is no room for its records. Nothing was written then.
pub fn decide(
    call: &Call<'_>,
    now: Timestamp,
    records: &mut impl Records,
) -> Result<Decision, Error> {
    call.check()?;
    match call.id {
        None => carry_out(call, now, records),
        Some(id) if call.operation.is_of_hold() => hold::carry_out(call, id, now, records),
        Some(id) => once::carry_out(call, id, now, records),
    }
}

fn carry_out(
    call: &Call<'_>,
    now: Timestamp,
    records: &mut impl Records,
) -> Result<Decision, Error> {
    let now = now.as_micros();
    match call.operation {
        Operation::Acquire => acquire(call.charges, now, Wait::ZERO, records),
        Operation::AcquireUpTo { min } => acquire_up_to(call, min, now, records),
        Operation::Reserve { max_wait } => acquire(call.charges, now, bounded(max_wait), records),
        Operation::Peek => {
            let evaluated = evaluate_all(call.charges, now, Wait::ZERO, records);
            let decision = report(call.charges, now, &evaluated, records);
            Ok(with_unspent(decision, call.charges, now, records))
        }
        Operation::Charge => charge_all(call, now, records),
        Operation::Refund => Ok(refund(call, now, records)),
        Operation::Undo { at } => Ok(undo(call, at.as_micros(), now, records)),
        Operation::Reset => {
            (0..call.charges.len()).for_each(|index| records.remove(index));
            Ok(report_after(call, now, records))
        }
        Operation::Block { span } => block(call, now, span, records, |ends, until| ends != until),
        Operation::BlockAtLeast { span } => {
            block(call, now, span, records, |ends, until| ends < until)
        }
        // Without an id they are not valid, and with one they are not carried out here.
        Operation::Hold
        | Operation::HoldUpTo { .. }
        | Operation::Settle
        | Operation::SettleSoFar
        | Operation::Extend => Err(hold_without_id()),
    }
}

type PerCharge<T> = SmallVec<[T; 4]>;

/// A charge's evaluation before anything is written.
struct Evaluated {
    /// The index of the first charge to the same state.
    first: usize,
    /// The costs of all charges to that state.
    cost: u64,
    /// How long until that cost is admitted, if the subject is not blocked.
    wait: Wait,
    outcome: Outcome,
}

impl Evaluated {
    fn admits(&self) -> bool {
        self.outcome == Outcome::Allowed
    }

    /// Whether the charge writes something, if the whole call is `allowed` or not.
    fn writes(&self, charge: &Charge<'_>, allowed: bool) -> bool {
        match self.outcome {
            _ if self.cost == 0 => false,
            Outcome::Allowed => allowed && !charge.is_check_only,
            Outcome::Denied => charge.policy.block_micros() > 0 && self.wait != Wait::NEVER,
            Outcome::Blocked | Outcome::TooLarge => false,
        }
    }

    /// Takes an admitted cost, or writes the block that follows a denial.
    fn write(&self, charge: &Charge<'_>, record: &mut Record, now: u64) {
        match self.outcome {
            Outcome::Allowed => record.take(charge, self.cost, now),
            _ => record.block(now.saturating_add(charge.policy.block_micros()), now),
        }
    }
}

/// Takes all charges, if each is admitted within `max_wait`; otherwise only writes blocks.
fn acquire(
    charges: Charges<'_>,
    now: u64,
    max_wait: Wait,
    records: &mut impl Records,
) -> Result<Decision, Error> {
    if let (1, Some(charge)) = (charges.len(), charges.get(0)) {
        return acquire_one(&charge, now, max_wait, records);
    }
    let evaluated = evaluate_all(charges, now, max_wait, records);
    let all = || charges.iter().zip(&evaluated).enumerate();
    let in_force = || all().filter(|(_, (charge, _))| !charge.policy.is_shadow());
    let allowed = in_force().all(|(_, (_, it))| it.admits());

    // Each state is written once, at the index of its first charge.
    let written: PerCharge<usize> = all()
        .filter(|(index, (charge, it))| it.first == *index && it.writes(charge, allowed))
        .map(|(index, _)| index)
        .collect();
    if !written.is_empty() {
        records.make_room(&written)?;
        for (index, (charge, it)) in all().filter(|(index, _)| written.contains(index)) {
            records.update(index, |record| it.write(&charge, record, now));
        }
    }
    let decision = report(charges, now, &evaluated, records);
    let wait = in_force().map(|(_, (_, it))| it.wait).max().unwrap_or(Wait::ZERO);
    Ok(if allowed { with_wait(decision, wait) } else { decision })
}

/// The same for a single charge, as in most calls.
fn acquire_one(
    charge: &Charge<'_>,
    now: u64,
    max_wait: Wait,
    records: &mut impl Records,
) -> Result<Decision, Error> {
    let evaluated = evaluate(charge, 0, charge.cost, records.get(0), now, Waits::up_to(max_wait));
    let is_shadow = charge.policy.is_shadow();
    if evaluated.writes(charge, evaluated.admits() || is_shadow) {
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

/// Takes the same amount from each charge: the maximum that is admitted, or nothing if that is below `min`.
fn acquire_up_to(
    call: &Call<'_>,
    min: u64,
    now: u64,
    records: &mut impl Records,
) -> Result<Decision, Error> {
    // An amount below `min` is not admitted, so neither is `min`, which is decided on instead.
    let amount = admissible_amount(call.charges, now, records).max(min);
    let cost = |charge: Charge<'_>| if charge.is_check_only { charge.cost } else { amount };
    let charges: PerCharge<Charge<'_>> =
        call.charges.iter().map(|charge| charge.cost(cost(charge))).collect();
    let decision = acquire(charges[..].into(), now, Wait::ZERO, records)?;
    let is_taken = |charge: &Charge<'_>, verdict: &Verdict| {
        decision.is_allowed() && verdict.outcome() == Outcome::Allowed && !charge.is_check_only
    };
    let amounts: PerCharge<u64> = (charges.iter().zip(decision.verdicts()))
        .map(|(charge, verdict)| if is_taken(charge, verdict) { amount } else { 0 })
        .collect();
    Ok(decision.with_amounts(amounts))
}

/// The maximum that all policies in force admit of each charge; 0 if one of them refuses a check.
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

/// Charges as much of each cost as its state can hold.
fn charge_all(call: &Call<'_>, now: u64, records: &mut impl Records) -> Result<Decision, Error> {
    // What is charged to each state, at the index of its first charge.
    let mut totals: PerCharge<u64> = PerCharge::new();
    for (index, charge) in call.charges.iter().enumerate() {
        let is_first = call.charges.iter().take(index).all(|it| !it.shares_state_with(&charge));
        let total = if is_first && !charge.is_check_only {
            let state = records.get(index).and_then(|it| it.state_under(charge.policy, now));
            let cost = call.charges.total_cost_for(&charge);
            charge.policy.rule().chargeable(state.as_deref(), cost, now)
        } else {
            0
        };
        totals.push(total);
    }
    let written: PerCharge<usize> = (totals.iter().enumerate())
        .filter(|(_, total)| **total > 0)
        .map(|(index, _)| index)
        .collect();
    if !written.is_empty() {
        records.make_room(&written)?;
    }
    for (index, charge) in call.charges.iter().enumerate() {
        match totals.get(index) {
            Some(&total) if total > 0 => {
                records.update(index, |record| record.charge(&charge, total, now));
            }
            _ => {}
        }
    }
    Ok(report_after(call, now, records).with_amounts(split(call.charges, &totals)))
}

fn refund(call: &Call<'_>, now: u64, records: &mut impl Records) -> Decision {
    let give_back = |(index, charge): (usize, Charge<'_>)| {
        if charge.cost == 0 || charge.is_check_only || records.get(index).is_none() {
            return 0;
        }
        change(index, records, |record| record.give_back(&charge, now))
    };
    let amounts: PerCharge<u64> = call.charges.iter().enumerate().map(give_back).collect();
    report_after(call, now, records).with_amounts(amounts)
}

/// Takes back what is left of a take of the same charges at `at`.
fn undo(call: &Call<'_>, at: u64, now: u64, records: &mut impl Records) -> Decision {
    // For the sum of the costs to each state, as that is what was taken.
    let evaluated = evaluate_all(call.charges, now, Wait::ZERO, records);
    let take_back = |(index, (charge, it)): (usize, (Charge<'_>, &Evaluated))| {
        // A cost above the limit was never taken.
        let can_be_taken = (1..=charge.policy.limit()).contains(&it.cost) && !charge.is_check_only;
        if it.first != index || !can_be_taken || records.get(index).is_none() {
            return 0;
        }
        let take = Take::new(at, it.cost);
        change(index, records, |record| record.take_back(&charge, it.cost, take, now))
    };
    let totals: PerCharge<u64> =
        call.charges.iter().zip(&evaluated).enumerate().map(take_back).collect();
    report_after(call, now, records).with_amounts(split(call.charges, &totals))
}

/// Splits the amount of each state, which stands at the index of its first charge, among the charges to it: in order, to
/// each at most its cost.
fn split(charges: Charges<'_>, totals: &[u64]) -> PerCharge<u64> {
    let mut left: PerCharge<u64> = SmallVec::from_slice(totals);
    let amount = |charge: Charge<'_>| {
        let first = charges.iter().position(|other| other.shares_state_with(&charge));
        let left = first.and_then(|first| left.get_mut(first));
        left.map_or(0, |left| {
            let amount = charge.cost.min(*left);
            *left -= amount;
            amount
        })
    };
    charges.iter().map(amount).collect()
}

/// Blocks for `span`, or lifts blocks if it is zero. `replaces` is given the end of the block so far, and the end
/// of the new one; 0 is the end of no block.
fn block(
    call: &Call<'_>,
    now: u64,
    span: Duration,
    records: &mut impl Records,
    replaces: impl Fn(u64, u64) -> bool,
) -> Result<Decision, Error> {
    let span = micros_of_ceil(span).min(MAX_SPAN_MICROS);
    let until = if span > 0 { now.saturating_add(span) } else { 0 };
    let mut ends = |index| records.get(index).map_or(0, |record| record.blocked_until);
    let indices: PerCharge<usize> =
        (0..call.charges.len()).filter(|&index| replaces(ends(index), until)).collect();
    if until > 0 {
        records.make_room(&indices)?;
    }
    for index in indices {
        change(index, records, |record| record.block(until, now));
    }
    Ok(report_after(call, now, records))
}

/// Changes a record, and removes it if nothing is left in it. Returns what `change` does.
fn change<T: Default>(
    index: usize,
    records: &mut impl Records,
    change: impl FnOnce(&mut Record) -> T,
) -> T {
    let (mut result, mut is_empty) = (T::default(), false);
    records.update(index, |record| {
        result = change(record);
        is_empty = record.is_empty();
    });
    if is_empty {
        records.remove(index);
    }
    result
}

fn evaluate_all(
    charges: Charges<'_>,
    now: u64,
    max_wait: Wait,
    records: &mut impl Records,
) -> PerCharge<Evaluated> {
    let evaluate = |(index, charge): (usize, Charge<'_>)| {
        let (mut first, mut cost) = (index, charge.cost);
        if charges.len() > 1 {
            let is_same = |other: Charge<'_>| other.shares_state_with(&charge);
            first = charges.iter().position(is_same).unwrap_or(index);
            cost = charges.total_cost_for(&charge);
        }
        evaluate(&charge, first, cost, records.get(index), now, Waits::up_to(max_wait))
    };
    charges.iter().enumerate().map(evaluate).collect()
}

/// The treatment of waits by an evaluation.
#[derive(Clone, Copy)]
struct Waits {
    /// The maximum wait of a charge that is admitted.
    max: Wait,
    /// Whether a wait counts on holds that will lapse.
    counts_on_lapses: bool,
}

impl Waits {
    const COUNTING: Self = Self { max: Wait::ZERO, counts_on_lapses: true };
    const PLAIN: Self = Self { max: Wait::ZERO, counts_on_lapses: false };

    /// Returns the waits of an acquire. The place of a reservation must not depend on lapses.
    fn up_to(max: Wait) -> Self {
        Self { max, counts_on_lapses: max.is_zero() }
    }
}

fn evaluate(
    charge: &Charge<'_>,
    first: usize,
    cost: u64,
    record: Option<&Record>,
    now: u64,
    waits: Waits,
) -> Evaluated {
    let state = record.and_then(|record| record.state_under(charge.policy, now));
    let rule = charge.policy.rule();
    let mut wait = rule.wait(state.as_deref(), cost, now);
    if let Some(holds) = record.and_then(Record::holds)
        && !wait.is_zero()
        && waits.counts_on_lapses
    {
        wait = holds.wait(state.as_deref().cloned(), rule, cost, now, wait);
    }
    let can_wait = || wait <= waits.max && rule.can_reserve_cost(state.as_deref(), cost, now);
    let outcome = if record.is_some_and(|record| record.is_blocked(now)) {
        Outcome::Blocked
    } else if wait.is_zero() || can_wait() {
        Outcome::Allowed
    } else {
        Outcome::Denied
    };
    Evaluated { first, cost, wait, outcome }
}

/// The verdicts on evaluated charges, with the levels as they are now.
fn report(
    charges: Charges<'_>,
    now: u64,
    evaluated: &[Evaluated],
    records: &mut impl Records,
) -> Decision {
    let charges = charges.iter().zip(evaluated).enumerate();
    Decision::new(charges.map(|(index, (charge, it))| verdict(&charge, it, index, now, records)))
}

/// Adds what is held and not spent, where the states know.
fn with_unspent(
    decision: Decision,
    charges: Charges<'_>,
    now: u64,
    records: &mut impl Records,
) -> Decision {
    if !charges.any_policy(Policy::refunds_lapsed) {
        return decision;
    }
    decision.with_unspent(charges.iter().enumerate().map(|(index, charge)| {
        let holds = records.get(index).and_then(Record::holds);
        let unspent = holds.map_or(0, |holds| holds.unspent(now));
        charge.policy.refunds_lapsed().then_some(unspent)
    }))
}

/// Returns the verdict on a charge that was evaluated. Then refunds the holds on its state that
/// have lapsed, so that no later call has to compute these refunds again.
fn verdict(
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
        level: policy.rule().level(state.as_deref(), now),
        ends_at: record.and_then(|record| record.ends_at(policy, now)),
        blocked_until: record.map_or(0, |record| record.blocked_until),
        now,
    };
    if record.is_some_and(|record| record.is_any_hold_over(now)) {
        change(index, records, |record| record.settle_lapsed(now));
    }
    input.verdict(policy)
}

/// Returns the verdicts of a peek of cost 0 after an operation. Their waits do not count on lapses,
/// so that the record of a settlement does not depend on other holds.
fn report_after(call: &Call<'_>, now: u64, records: &mut impl Records) -> Decision {
    Decision::new(call.charges.iter().enumerate().map(|(index, charge)| {
        let evaluated = evaluate(&charge, index, 0, records.get(index), now, Waits::PLAIN);
        verdict(&charge, &evaluated, index, now, records)
    }))
}

fn bounded(max_wait: Duration) -> Wait {
    Wait::from_micros(micros_of(max_wait).min(MAX_SPAN_MICROS))
}
