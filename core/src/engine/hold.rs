//! Holds: costs that are taken as an estimate, and settled later.

use sha1_smol::Sha1;
use smallvec::SmallVec;

use super::once::{later, remembered, reused};
use super::remembered::HeldCharge;
use super::state_holds::{HoldKey, KnownHold, StateHold, StateHolds};
use super::{
    PerCharge, Record, Records, RememberedCall, RememberedHold, Take, change, report_after,
};
use crate::decision::{AlreadySettled, held_of};
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
    check_open_holds(call, now, records)?;
    let min_amount = call.operation.min_amount();
    let operation = call.operation.without_hold();
    let decision = super::carry_out(&Call { operation, ..*call }, now, records)?;
    if decision.is_denied() {
        return Ok(decision);
    }
    let held = |(index, charge): (usize, Charge<'_>)| {
        let held = held_of(&decision, index, &charge);
        HeldCharge { cost: charge.cost, held, spent: 0, number: 0 }
    };
    let lapses_at = later(now, id.ttl);
    let mut hold = RememberedHold {
        min_amount,
        taken_at_micros: now.as_micros(),
        lapses_at_micros: lapses_at,
        charges: call.charges.iter().enumerate().map(held).collect(),
        settlement: None,
    };
    let expires_at = expiry(lapses_at, id);
    for (index, (charge, held)) in call.charges.iter().zip(&mut hold.charges).enumerate() {
        let Some(cost) = held.held.filter(|&taken| taken > 0) else { continue };
        let (key, now) = (key_of(call, id), now.as_micros());
        let add = |holds: &mut StateHolds| {
            if !charge.policy.refunds_lapsed() {
                return holds.join(epoch_of(&key, now), expires_at, now);
            }
            let take = Take::new(now, cost);
            holds.add(StateHold { key, take, spent: 0, lapses_at, expires_at })
        };
        // The acquire has written the record, and made room for this.
        records.update(index, |record| held.number = record.change_holds(now, add));
    }
    records.remember(RememberedCall {
        fingerprint,
        expires_at_micros: expires_at,
        decision: decision.clone(),
        hold: Some(Box::new(hold)),
    });
    Ok(decision)
}

/// Checks that each state has room for one more hold.
fn check_open_holds(
    call: &Call<'_>,
    now: Timestamp,
    records: &mut impl Records,
) -> Result<(), Error> {
    let now = now.as_micros();
    for (index, charge) in call.charges.iter().enumerate() {
        if !charge.policy.refunds_lapsed() || charge.is_check_only || charge.cost == 0 {
            continue;
        }
        if records.get(index).is_some_and(|record| record.is_any_hold_over(now)) {
            change(index, records, |record| record.settle_lapsed(now));
        }
        let open = records.get(index).and_then(Record::holds).map_or(0, StateHolds::open_count);
        if open >= charge.policy.max_open_holds() as usize {
            return Err(too_many_holds(charge.policy, open));
        }
    }
    Ok(())
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
        let prolong = |hold: StateHold| Some(StateHold { lapses_at, expires_at, ..hold });
        let finder = Finder::new(call, id, hold, known.expires_at_micros);
        change_state_holds(call, &finder, now.as_micros(), records, |_| prolong);
        prolong_epochs(call, &finder, expires_at, now.as_micros(), records);
        hold.lapses_at_micros = lapses_at;
        known.expires_at_micros = expires_at;
        records.remember(known);
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
    let finder = Finder::new(call, id, hold, known.expires_at_micros);
    let refunded = refund_lapsed(call, &finder, now, records);
    let mut changes: PerCharge<Change> = PerCharge::new();
    let charges = call.charges.iter().zip(&hold.charges).zip(refunded);
    for (index, ((charge, held), refunded)) in charges.enumerate() {
        let change = held.change_to(charge.cost, is_final, refunded, hold.taken_at_micros);
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
                change(index, records, |record| record.refund_hold(&charge, cost, of, now))
            }
        });
    }
    for (charge, held) in call.charges.iter().zip(&mut hold.charges) {
        held.spent = if is_final { charge.cost } else { held.spent.max(charge.cost) };
    }
    let spent: PerCharge<u64> = hold.charges.iter().map(|charge| charge.spent).collect();
    change_state_holds(call, &finder, now, records, |index| {
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
    /// Returns the change if `total` was used, in the end or so far. `refunded` is the amount that
    /// was refunded when the hold lapsed, or `None` if the state no longer has what the hold took,
    /// as after a reset.
    fn change_to(self, total: u64, is_final: bool, refunded: Option<u64>, taken_at: u64) -> Change {
        let Some(held) = self.held else { return Change::Nothing };
        let held = refunded.map_or(0, |refunded| held.saturating_sub(refunded));
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

/// Finds the hold on the states of its charges.
struct Finder {
    key: HoldKey,
    numbers: PerCharge<u64>,
    lapses_at: u64,
    expires_at: u64,
}

impl Finder {
    fn new(call: &Call<'_>, id: CallId<'_>, hold: &RememberedHold, expires_at: u64) -> Self {
        Self {
            key: key_of(call, id),
            numbers: hold.charges.iter().map(|charge| charge.number).collect(),
            lapses_at: hold.lapses_at_micros,
            expires_at,
        }
    }

    fn at(&self, index: usize) -> KnownHold {
        KnownHold {
            key: self.key,
            number: self.numbers.get(index).copied().unwrap_or(0),
            lapses_at: self.lapses_at,
            expires_at: self.expires_at,
        }
    }
}

/// Refunds the lapsed holds on the states of a call. Returns for each charge the amount that was
/// refunded of this hold, or `None` if the hold was reset: see [`HeldCharge::change_to`].
fn refund_lapsed(
    call: &Call<'_>,
    finder: &Finder,
    now: u64,
    records: &mut impl Records,
) -> PerCharge<Option<u64>> {
    let refunded = |(index, charge): (usize, Charge<'_>)| {
        let known = finder.at(index);
        let holds = records.get(index).and_then(Record::holds)?;
        if !charge.policy.refunds_lapsed() {
            return holds.is_in_epoch(known.number).then_some(0);
        }
        change(index, records, |record| record.change_holds(now, |holds| holds.refunded(&known)))
    };
    call.charges.iter().enumerate().map(refunded).collect()
}

/// Changes the hold on each state of the call that knows it, or removes it.
fn change_state_holds<F: FnOnce(StateHold) -> Option<StateHold>>(
    call: &Call<'_>,
    finder: &Finder,
    now: u64,
    records: &mut impl Records,
    changes: impl Fn(usize) -> F,
) {
    for (index, charge) in call.charges.iter().enumerate() {
        let known = finder.at(index);
        let is_known =
            |record: &Record| record.holds().is_some_and(|holds| holds.refunded(&known).is_some());
        if charge.policy.refunds_lapsed() && records.get(index).is_some_and(is_known) {
            change(index, records, |record| {
                record.change_holds(now, |holds| holds.change(&known, changes(index)));
            });
        }
    }
}

/// Lets the epochs of a hold last for as long as it is known.
fn prolong_epochs(
    call: &Call<'_>,
    finder: &Finder,
    expires_at: u64,
    now: u64,
    records: &mut impl Records,
) {
    for (index, charge) in call.charges.iter().enumerate() {
        let number = finder.at(index).number;
        let is_in_epoch =
            |record: &Record| record.holds().is_some_and(|holds| holds.is_in_epoch(number));
        if !charge.policy.refunds_lapsed() && records.get(index).is_some_and(is_in_epoch) {
            records.update(index, |record| {
                record.change_holds(now, |holds| holds.join(number, expires_at, now));
            });
        }
    }
}

/// Returns the number of an epoch that a hold begins. It depends on the time, because an id can be
/// used again.
fn epoch_of(key: &HoldKey, now: u64) -> u64 {
    key.first_chunk().map_or(now, |bytes| u64::from_le_bytes(*bytes) ^ now)
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

/// Creates the error about a state with too many open holds.
#[must_use]
pub fn too_many_holds(policy: &Policy, open: usize) -> Error {
    let message = format!(
        "the subject has {open} open holds on `{policy}`; it must be fewer than {}, so settle or cancel some, or raise \
         `max-open-holds` of the policy",
        policy.max_open_holds()
    );
    Error::new(ErrorKind::TooManyHolds, message)
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
