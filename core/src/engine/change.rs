//! Operations that no policy can refuse: charge, refund, undo, reset and block.

use std::time::Duration;

use super::block::Block;
use super::evaluate::{Evaluated, Waits, evaluate_all};
use super::record::Record;
use super::records::{PerCharge, Records, make_room, update};
use super::report::report_after;
use crate::algorithm::quota::{FOREVER, Grant, MAX_GRANTS};
use crate::algorithm::traits::Take;
use crate::call::{Charge, Charges};
use crate::decision::Decision;
use crate::error::{Error, ErrorKind};
use crate::policy::Policy;
use crate::time::{MAX_EXACT, MAX_SPAN_MICROS, Timestamp, micros_of_ceil};

/// Charges each cost, even beyond the limit. If a state cannot represent the whole cost, charges
/// the part that the state can represent.
pub(super) fn charge(
    charges: Charges<'_>,
    now: u64,
    records: &mut impl Records,
) -> Result<Decision, Error> {
    // Returns the amount that a charge adds to its state. If several charges belong to one state,
    // the first charge adds their total amount, and the other charges add 0.
    let total = |(index, charge): (usize, Charge<'_>)| {
        let is_first = charges.iter().take(index).all(|other| !other.shares_state_with(&charge));
        if !is_first || charge.is_check_only {
            return 0;
        }
        let state = records.get(index).and_then(|record| record.state_under(charge.policy, now));
        let cost = charges.total_cost_for(&charge);
        charge.rule().chargeable(state.as_deref(), cost, now)
    };
    let totals: PerCharge<u64> = charges.iter().enumerate().map(total).collect();
    let charged = || charges.iter().zip(&totals).enumerate().filter(|(_, (_, total))| **total > 0);
    make_room(charged().map(|(index, _)| index), records)?;
    for (index, (charge, &total)) in charged() {
        records.update(index, |record| record.charge(&charge, total, now));
    }
    Ok(report_after(charges, now, records).with_amounts(split(charges, &totals)))
}

/// Adds a grant to each state, or to none of them if a state has too many open grants.
pub(super) fn grant(
    charges: Charges<'_>,
    ends_at: Option<Timestamp>,
    now: u64,
    records: &mut impl Records,
) -> Result<Decision, Error> {
    let ends_at = ends_at.map_or(FOREVER, Timestamp::as_micros);
    let mut indices: PerCharge<usize> = PerCharge::new();
    for (index, charge) in charges.iter().enumerate() {
        let mut record = records.get(index).cloned().unwrap_or_else(|| Record::new(charge.policy));
        if !record.grant(&charge, Grant::new(ends_at, charge.cost), now) {
            return Err(too_many_grants(charge.policy));
        }
        if ends_at > now {
            indices.push(index);
        }
    }
    make_room(indices.iter().copied(), records)?;
    for index in indices {
        let Some(charge) = charges.get(index) else { continue };
        let grant = Grant::new(ends_at, charge.cost);
        records.update(index, |record| _ = record.grant(&charge, grant, now));
    }
    Ok(report_after(charges, now, records))
}

pub(super) fn refund(charges: Charges<'_>, now: u64, records: &mut impl Records) -> Decision {
    let refund = |(index, charge): (usize, Charge<'_>)| {
        if charge.cost == 0 || charge.is_check_only || records.get(index).is_none() {
            return 0;
        }
        update(index, records, |record| record.refund(&charge, now))
    };
    let amounts: PerCharge<u64> = charges.iter().enumerate().map(refund).collect();
    report_after(charges, now, records).with_amounts(amounts)
}

/// Reverts an acquire of the same `charges` that was made at `at`. Only the part of the acquire
/// that still counts is reverted.
pub(super) fn undo(
    charges: Charges<'_>,
    at: u64,
    now: u64,
    records: &mut impl Records,
) -> Decision {
    // The acquire charged each state once, with the total cost of its charges, so the undo reverts
    // this total.
    let evaluated = evaluate_all(charges, now, Waits::COUNTING, records);
    let undo = |(index, (charge, evaluated)): (usize, (Charge<'_>, &Evaluated))| {
        let cost = evaluated.cost;
        // An acquire never charges a cost above the limit, so an undo of a higher cost reverts
        // nothing. Only a quota with grants admits a higher cost.
        let max = if charge.policy.is_quota() { MAX_EXACT } else { charge.policy.limit() };
        let was_possible = (1..=max).contains(&cost) && !charge.is_check_only;
        if evaluated.first != index || !was_possible || records.get(index).is_none() {
            return 0;
        }
        update(index, records, |record| record.undo(&charge, cost, Take::new(at, cost), now))
    };
    let totals: PerCharge<u64> = charges.iter().zip(&evaluated).enumerate().map(undo).collect();
    report_after(charges, now, records).with_amounts(split(charges, &totals))
}

/// Distributes the amount of each state among the charges to the state, in their order. For
/// example, if two charges cost 3 each and their state has an amount of 4, they get 3 and 1.
/// `totals` contains the amount of a state at the index of the first charge to the state.
fn split(charges: Charges<'_>, totals: &[u64]) -> PerCharge<u64> {
    let mut rest: PerCharge<u64> = PerCharge::from_slice(totals);
    let amount = |charge: Charge<'_>| {
        let first = charges.iter().position(|other| other.shares_state_with(&charge));
        let Some(rest) = first.and_then(|first| rest.get_mut(first)) else { return 0 };
        let amount = charge.cost.min(*rest);
        *rest -= amount;
        amount
    };
    charges.iter().map(amount).collect()
}

pub(super) fn reset(charges: Charges<'_>, now: u64, records: &mut impl Records) -> Decision {
    for index in 0..charges.len() {
        if records.get(index).is_some() {
            update(index, records, |record| record.reset(now));
        }
    }
    report_after(charges, now, records)
}

/// Blocks the subjects for `span`. If `span` is zero, removes their blocks and offenses. Calls
/// `replaces` with the old block and the end of the new block; an end of 0 means no block. If
/// `replaces` returns `false`, the old block stays.
pub(super) fn block(
    charges: Charges<'_>,
    now: u64,
    span: Duration,
    records: &mut impl Records,
    replaces: impl Fn(Block, u64) -> bool,
) -> Result<Decision, Error> {
    let span = micros_of_ceil(span).min(MAX_SPAN_MICROS);
    let until = if span > 0 { now.saturating_add(span) } else { 0 };
    let mut old = |index| records.get(index).map_or(Block::NONE, |record| record.block);
    let indices: PerCharge<usize> =
        (0..charges.len()).filter(|&index| replaces(old(index), until)).collect();
    if until > 0 {
        records.make_room(&indices)?;
    }
    for index in indices {
        let Some(charge) = charges.get(index) else { continue };
        update(index, records, |record| {
            record.change_block(now, |block| match until {
                0 => *block = Block::NONE,
                _ => block.set_end(until, charge.policy, now),
            });
        });
    }
    Ok(report_after(charges, now, records))
}

/// Returns the error of a grant to a state that has too many open grants.
#[must_use]
pub fn too_many_grants(policy: &Policy) -> Error {
    let message = format!(
        "the subject has {MAX_GRANTS} open grants of `{}`, or their sum would exceed 2^52 = \
         {MAX_EXACT}; nothing was granted",
        policy.name()
    );
    Error::new(ErrorKind::TooManyGrants, message)
}
