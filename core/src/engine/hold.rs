//! Holds: costs that are taken as an estimate, and settled later.

use sha1_smol::Sha1;
use smallvec::SmallVec;

use super::once::{later, remembered, reused};
use super::remembered::HeldCharge;
use super::state_holds::{HoldKey, StateHold, StateHolds};
use super::{PerCharge, Records, RememberedCall, RememberedHold, Take, change, report_after};
use crate::hold::AlreadySettled;
use crate::hold::support::held_of;
use crate::{Call, CallId, Charge, Decision, Error, ErrorKind, Operation, Policy, Timestamp};

/// Makes, settles or extends the hold of an id.
pub(super) fn carry_out(
    call: &Call<'_>,
    id: CallId<'_>,
    now: Timestamp,
    records: &mut impl Records,
) -> Result<Decision, Error> {
    let known = remembered(now, records)?;
    let fingerprint = call.fingerprint();
    if known.as_ref().is_some_and(|it| it.fingerprint != fingerprint || it.hold.is_none()) {
        return Err(reused(id));
    }
    match (call.operation, known) {
        (Operation::Hold | Operation::HoldUpTo { .. }, None) => {
            make(call, id, fingerprint, now, records)
        }
        (Operation::Hold | Operation::HoldUpTo { .. }, Some(known)) => {
            if known.hold.is_some_and(|hold| hold.was_asked_for_by(call)) {
                return Ok(known.decision);
            }
            Err(reused(id))
        }
        (_, None) => Err(unknown_hold(id.id)),
        (Operation::Extend, Some(known)) => extend(call, id, known, now, records),
        (_, Some(known)) => settle(call, id, known, now, records),
    }
}

fn make(
    call: &Call<'_>,
    id: CallId<'_>,
    fingerprint: [u8; 20],
    now: Timestamp,
    records: &mut impl Records,
) -> Result<Decision, Error> {
    records.make_room_to_remember()?;
    let min_amount = call.operation.min_amount();
    let operation = min_amount.map_or(Operation::Acquire, |min| Operation::AcquireUpTo { min });
    let decision = super::carry_out(&Call { operation, ..*call }, now, records)?;
    if decision.is_denied() {
        return Ok(decision);
    }
    let held = |(index, charge): (usize, Charge<'_>)| {
        let held = held_of(&decision, index, &charge);
        HeldCharge { cost: charge.cost, held, spent: 0 }
    };
    let lapses_at = later(now, id.ttl);
    let hold = RememberedHold {
        min_amount,
        taken_at_micros: now.as_micros(),
        lapses_at_micros: lapses_at,
        charges: call.charges.iter().enumerate().map(held).collect(),
        settlement: None,
    };
    let expires_at = expiry(lapses_at, id);
    for (index, (charge, held)) in call.charges.iter().zip(&hold.charges).enumerate() {
        let taken = held.held.filter(|&taken| taken > 0 && charge.policy.refunds_lapsed());
        let Some(cost) = taken else { continue };
        let (key, take) = (key_of(call, id), Take::new(now.as_micros(), cost));
        let hold = StateHold { key, take, spent: 0, lapses_at, expires_at, given_back: None };
        // The acquire has written the record, and made room for this.
        records.update(index, |record| record.change_holds(now.as_micros(), |it| it.put(hold)));
    }
    records.remember(RememberedCall {
        fingerprint,
        expires_at_micros: expires_at,
        decision: decision.clone(),
        hold: Some(Box::new(hold)),
    });
    Ok(decision)
}

/// Until when a hold can be settled: for as long again as its time to live.
fn expiry(lapses_at: u64, id: CallId<'_>) -> u64 {
    lapses_at.saturating_add(crate::time::micros_of_ceil(id.ttl))
}

impl RememberedHold {
    fn was_asked_for_by(&self, call: &Call<'_>) -> bool {
        self.min_amount == call.operation.min_amount()
            && self.charges.iter().map(|it| it.cost).eq(call.charges.iter().map(|it| it.cost))
    }
}

fn extend(
    call: &Call<'_>,
    id: CallId<'_>,
    mut known: RememberedCall,
    now: Timestamp,
    records: &mut impl Records,
) -> Result<Decision, Error> {
    if let Some(hold) = &mut known.hold {
        if let Some(settlement) = &hold.settlement {
            return Err(already_settled(id, hold, settlement));
        }
        if now.as_micros() >= hold.lapses_at_micros {
            return Err(lapsed_hold(id.id, now.as_micros() - hold.lapses_at_micros));
        }
        let lapses_at = hold.lapses_at_micros.max(later(now, id.ttl));
        let expires_at = known.expires_at_micros.max(expiry(lapses_at, id));
        hold.lapses_at_micros = lapses_at;
        known.expires_at_micros = expires_at;
        records.remember(known);
        let prolong = |hold: StateHold| Some(StateHold { lapses_at, expires_at, ..hold });
        change_state_holds(call, id, now.as_micros(), records, |_| prolong);
    }
    Ok(report_after(call, now.as_micros(), records))
}

/// What a settlement does to one state.
#[derive(Clone, Copy)]
enum Change {
    Nothing,
    Charge(u64),
    GiveBack { cost: u64, of: Take },
}

fn settle(
    call: &Call<'_>,
    id: CallId<'_>,
    mut known: RememberedCall,
    now: Timestamp,
    records: &mut impl Records,
) -> Result<Decision, Error> {
    let Some(hold) = &mut known.hold else { return Err(reused(id)) };
    let is_final = call.operation == Operation::Settle;
    if let Some(settlement) = &hold.settlement {
        let spent = hold.charges.iter().map(|it| it.spent);
        if is_final && spent.eq(call.charges.iter().map(|charge| charge.cost)) {
            return Ok(settlement.clone());
        }
        return Err(already_settled(id, hold, settlement));
    }
    let now = now.as_micros();
    let given_back = give_back_lapsed(call, id, now, records);
    let mut changes: PerCharge<Change> = PerCharge::new();
    let charges = call.charges.iter().zip(&hold.charges).zip(given_back);
    for (index, ((charge, held), given_back)) in charges.enumerate() {
        let change = held.change_to(charge.cost, is_final, given_back, hold.taken_at_micros);
        changes.push(match change {
            Change::Charge(cost) => {
                let state = records.get(index).and_then(|it| it.state_under(charge.policy, now));
                match charge.policy.rule().chargeable(state.as_deref(), cost, now) {
                    0 => Change::Nothing,
                    cost => Change::Charge(cost),
                }
            }
            Change::GiveBack { .. } if records.get(index).is_none() => Change::Nothing,
            change => change,
        });
    }
    let is_charge = |change: &Change| matches!(change, Change::Charge(_));
    let charged: PerCharge<usize> = (changes.iter().enumerate())
        .filter(|(_, change)| is_charge(change))
        .map(|(index, _)| index)
        .collect();
    if !charged.is_empty() {
        records.make_room(&charged)?;
    }
    let mut amounts: SmallVec<[u64; 2]> = SmallVec::new();
    for (index, (charge, its)) in call.charges.iter().zip(&changes).enumerate() {
        amounts.push(match *its {
            Change::Nothing => 0,
            Change::Charge(cost) => {
                records.update(index, |record| record.charge(&charge, cost, now));
                cost
            }
            Change::GiveBack { cost, of } => {
                change(index, records, |record| record.take_back(&charge, cost, of, now))
            }
        });
    }
    for (charge, held) in call.charges.iter().zip(&mut hold.charges) {
        held.spent = if is_final { charge.cost } else { held.spent.max(charge.cost) };
    }
    let spent: PerCharge<u64> = hold.charges.iter().map(|charge| charge.spent).collect();
    change_state_holds(call, id, now, records, |index| {
        let spent = spent.get(index).copied().unwrap_or(0);
        move |hold| (!is_final).then_some(StateHold { spent, ..hold })
    });
    let out_of_reach = |(index, change): (usize, &Change)| match *change {
        Change::GiveBack { of, .. } if amounts.get(index) == Some(&0) => {
            let charge = call.charges.get(index)?;
            let state =
                records.get(index).and_then(|record| record.state_under(charge.policy, now));
            let rule = charge.policy.rule();
            rule.is_out_of_reach(state.as_deref(), of.at, now).then_some(index)
        }
        _ => None,
    };
    let out_of_reach: PerCharge<usize> =
        changes.iter().enumerate().filter_map(out_of_reach).collect();
    let charged = changes.iter().enumerate().filter(|(_, change)| is_charge(change));
    let charged = charged.map(|(index, _)| index);
    let decision = report_after(call, now, records).with_amounts(amounts);
    let decision = decision.with_charged(charged).with_out_of_reach(out_of_reach);
    if is_final {
        hold.settlement = Some(decision.clone());
    }
    records.remember(known);
    Ok(decision)
}

impl HeldCharge {
    /// What to do if `total` was used, in the end or so far, and so much was given back when the hold lapsed.
    fn change_to(self, total: u64, is_final: bool, given_back: u64, taken_at: u64) -> Change {
        let Some(held) = self.held else { return Change::Nothing };
        let held = held.saturating_sub(given_back);
        let charged = held.max(self.spent);
        if total > charged {
            Change::Charge(total - charged)
        } else if is_final && total < held {
            Change::GiveBack { cost: held - total, of: Take::new(taken_at, held) }
        } else {
            Change::Nothing
        }
    }
}

/// Gives back what has lapsed of the call's states, and returns for each charge what was given back of this hold.
fn give_back_lapsed(
    call: &Call<'_>,
    id: CallId<'_>,
    now: u64,
    records: &mut impl Records,
) -> PerCharge<u64> {
    if !call.charges.any_policy(Policy::refunds_lapsed) {
        return SmallVec::from_elem(0, call.charges.len());
    }
    let key = key_of(call, id);
    let given_back = |(index, charge): (usize, Charge<'_>)| {
        let has_holds = |record: &super::Record| record.holds().is_some();
        if !charge.policy.refunds_lapsed() || !records.get(index).is_some_and(has_holds) {
            return 0;
        }
        let given_back = |holds: &mut StateHolds| holds.get(&key).and_then(|hold| hold.given_back);
        change(index, records, |record| record.change_holds(now, given_back)).unwrap_or(0)
    };
    call.charges.iter().enumerate().map(given_back).collect()
}

/// Changes what the states of the call know of the hold, or removes that.
fn change_state_holds<F: FnOnce(StateHold) -> Option<StateHold>>(
    call: &Call<'_>,
    id: CallId<'_>,
    now: u64,
    records: &mut impl Records,
    changes: impl Fn(usize) -> F,
) {
    if !call.charges.any_policy(Policy::refunds_lapsed) {
        return;
    }
    let key = key_of(call, id);
    for (index, charge) in call.charges.iter().enumerate() {
        if !charge.policy.refunds_lapsed() {
            continue;
        }
        let is_known =
            |record: &super::Record| record.holds().is_some_and(|it| it.get(&key).is_some());
        if !records.get(index).is_some_and(is_known) {
            continue;
        }
        change(index, records, |record| {
            record.change_holds(now, |holds| {
                let Some(hold) = holds.get(&key).cloned() else { return };
                match changes(index)(hold) {
                    Some(hold) => holds.put(hold),
                    None => holds.remove(&key),
                }
            });
        });
    }
}

/// A digest of the slot key and the id, under which the states of a hold know it.
fn key_of(call: &Call<'_>, id: CallId<'_>) -> HoldKey {
    let scope = call.charges.get(0).map_or(&[][..], |charge| charge.slot_key());
    let mut digest = Sha1::from(scope.len().to_le_bytes());
    digest.update(scope);
    digest.update(id.id);
    digest.digest().bytes()
}

/// The error about a hold of which nothing is known.
#[must_use]
pub fn unknown_hold(id: &[u8]) -> Error {
    let id = id.escape_ascii();
    let message = format!(
        "no hold is known under the id \"{id}\": it was never made, or has expired; what was used can be charged \
         with `charge`"
    );
    Error::new(ErrorKind::UnknownHold, message)
}

/// The error about a hold that lapsed `micros_ago` microseconds ago, and cannot be extended.
#[must_use]
pub fn lapsed_hold(id: &[u8], micros_ago: u64) -> Error {
    let id = id.escape_ascii();
    let message = format!(
        "the time of the hold \"{id}\" was over {micros_ago} µs ago: it can be settled, but not extended"
    );
    Error::new(ErrorKind::HoldLapsed, message)
}

fn already_settled(id: CallId<'_>, hold: &RememberedHold, settlement: &Decision) -> Error {
    let costs = hold.charges.iter().map(|it| it.spent).collect();
    AlreadySettled::new(costs, settlement.clone()).into_error(id.id)
}
