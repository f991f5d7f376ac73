//! Operations on holds: hold, hold up to, settle, settle so far, extend.

use sha1_smol::Sha1;

use super::acquire::acquire;
use super::evaluate::Waits;
use super::execute;
use super::once::{later, remembered, reused};
use super::queue;
use super::record::Record;
use super::records::{PerCharge, Records, make_room, update};
use super::remembered::{HeldCharge, RememberedCall, RememberedHold};
use super::report::report_after;
use super::state_holds::{HoldKey, KnownHold, StateHold, StateHolds};
use crate::algorithm::traits::Take;
use crate::call::{Call, CallId, Charge, Operation};
use crate::decision::{AlreadySettled, Decision, held_of};
use crate::error::{Error, ErrorKind};
use crate::policy::Policy;
use crate::time::{Timestamp, micros_of_ceil};

pub(super) fn execute(
    call: &Call<'_>,
    id: CallId<'_>,
    now: Timestamp,
    records: &mut impl Records,
) -> Result<Decision, Error> {
    let id = CallId { ttl: call.life_of_hold(id.ttl), ..id };
    let known = remembered(now, records)?;
    let fingerprint = call.fingerprint();
    if known.as_ref().is_some_and(|call| call.fingerprint != fingerprint || call.hold.is_none()) {
        return Err(reused(id));
    }
    match (call.operation, known) {
        (operation, None) if operation.is_acquire() => make(call, id, fingerprint, now, records),
        (operation, Some(known)) if operation.is_acquire() => {
            if !known.hold.as_ref().is_some_and(|hold| hold.is_repeated_by(call)) {
                return Err(reused(id));
            }
            let decision = known.decision.clone();
            if call.must_renew() {
                let _ = extend(call, id, known, now, records)?;
            }
            Ok(decision)
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
    let mut decision = match call.operation {
        Operation::HoldInTurn { place } => {
            let decision = acquire(call.charges, now.as_micros(), Waits::in_turn(place), records)?;
            queue::update(call, id, place, decision, now.as_micros(), records)?
        }
        operation => {
            let operation = operation.without_hold();
            execute::execute(&Call { operation, ..*call }, now, records)?
        }
    };
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
        let Some(cost) = held.held.filter(|&cost| cost > 0) else { continue };
        let (key, now) = (key_of(call, id), now.as_micros());
        let add = |holds: &mut StateHolds| {
            if !charge.policy.stores_holds() {
                return holds.join(charge.rule().member(), epoch_of(&key, now), expires_at, now);
            }
            let take = Take::new(now, cost);
            let hold = StateHold { key, take, spent: 0, lapses_at, expires_at };
            holds.add(hold, charge.policy, now)
        };
        // This update cannot fail, because `execute` has already created the record of the charge,
        // and has made room for the hold.
        records.update(index, |record| {
            held.number = record.change_holds(now, add);
            record.claim_slots(charge.policy);
        });
    }
    if call.charges.any_policy(Policy::is_concurrent) {
        let charges = call.charges.iter().zip(&hold.charges);
        decision = decision.with_fences(charges.map(|(charge, held)| {
            let takes_slots =
                charge.policy.is_concurrent() && held.held.is_some_and(|held| held > 0);
            takes_slots.then_some(held.number)
        }));
    }
    records.remember(RememberedCall {
        fingerprint,
        expires_at_micros: expires_at,
        decision: decision.clone(),
        hold: Some(Box::new(hold)),
    });
    Ok(decision)
}

fn check_open_holds(
    call: &Call<'_>,
    now: Timestamp,
    records: &mut impl Records,
) -> Result<(), Error> {
    let now = now.as_micros();
    for (index, charge) in call.charges.iter().enumerate() {
        // A shadow never refuses a call, so its number of open holds is not bounded.
        let policy = charge.policy;
        if !policy.stores_holds() || policy.is_shadow() || charge.is_check_only || charge.cost == 0
        {
            continue;
        }
        if records.get(index).is_some_and(|record| record.is_any_hold_over(now)) {
            update(index, records, |record| record.settle_lapsed(now));
        }
        let open = records.get(index).and_then(Record::holds).map_or(0, StateHolds::open_count);
        if open >= policy.max_open_holds() as usize {
            return Err(too_many_holds(policy, open));
        }
    }
    Ok(())
}

/// Returns the time at which a hold expires: one time to live after its lapse.
fn expiry(lapses_at: u64, id: CallId<'_>) -> u64 {
    lapses_at.saturating_add(micros_of_ceil(id.ttl))
}

impl RememberedHold {
    /// Returns `true` if `call` requests the same amounts as the earlier call that made this hold.
    fn is_repeated_by(&self, call: &Call<'_>) -> bool {
        let costs = call.charges.iter().map(|charge| charge.cost);
        self.min_amount == call.operation.min_amount()
            && self.charges.iter().map(|held| held.cost).eq(costs)
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
        let finder = Finder::new(call, id, hold, known.expires_at_micros);
        let late_by = now.as_micros().checked_sub(hold.lapses_at_micros);
        settle_lapsed(call, now.as_micros(), records, |record| {
            record.is_any_hold_over(now.as_micros())
        });
        match late_by {
            Some(late_by) if !can_revive(call, &finder, hold, now.as_micros(), records) => {
                return Err(lapsed_hold(id.id, late_by));
            }
            None if loses_slots(call, &finder, hold, records) => return Err(unknown_hold(id.id)),
            _ => {}
        }
        let lapses_at = hold.lapses_at_micros.max(later(now, id.ttl));
        let expires_at = known.expires_at_micros.max(expiry(lapses_at, id));
        let prolong = |hold: StateHold| Some(StateHold { lapses_at, expires_at, ..hold });
        change_state_holds(call, &finder, now.as_micros(), records, |_| prolong);
        prolong_epochs(call, &finder, expires_at, now.as_micros(), records);
        if late_by.is_some() {
            let finder = Finder { lapses_at, expires_at, ..finder };
            revive(call, &finder, hold, now.as_micros(), records);
        }
        hold.lapses_at_micros = lapses_at;
        known.expires_at_micros = expires_at;
        records.remember(known);
        settle_lapsed(call, now.as_micros(), records, |record| record.holds().is_some());
    }
    Ok(report_after(call.charges, now.as_micros(), records))
}

/// Settles the lapsed holds on the states of `call` that match `is_due`. A failed extension of a
/// hold on such states writes only this.
fn settle_lapsed(
    call: &Call<'_>,
    now: u64,
    records: &mut impl Records,
    is_due: impl Fn(&Record) -> bool,
) {
    if !call.charges.any_policy(Policy::stores_holds) {
        return;
    }
    for index in 0..call.charges.len() {
        if records.get(index).is_some_and(&is_due) {
            update(index, records, |record| record.change_holds(now, |_| ()));
        }
    }
}

/// Returns the charges with which the hold took slots: the index, the charge and the number of
/// slots.
fn slots<'c>(
    call: &'c Call<'_>,
    hold: &'c RememberedHold,
) -> impl Iterator<Item = (usize, Charge<'c>, u64)> {
    let charges = call.charges.iter().zip(&hold.charges).enumerate();
    charges.filter_map(|(index, (charge, held))| {
        let held = held.held.filter(|&held| held > 0 && charge.policy.is_concurrent())?;
        Some((index, charge, held))
    })
}

/// Returns `true` if the hold took slots of an enforced policy, and the state no longer contains
/// them. This is the case after a reset, and after the store has evicted the state.
fn loses_slots(
    call: &Call<'_>,
    finder: &Finder,
    hold: &RememberedHold,
    records: &mut impl Records,
) -> bool {
    slots(call, hold).any(|(index, charge, _)| {
        let holds = records.get(index).and_then(Record::holds);
        !charge.policy.is_shadow()
            && holds.and_then(|holds| holds.refunded(&finder.at(index))).is_none()
    })
}

/// Returns `true` if the hold has slots, and the extension of the lapsed hold can take all its
/// slots again. A shadow never prevents this. An extension cannot revive a hold without slots.
fn can_revive(
    call: &Call<'_>,
    finder: &Finder,
    hold: &RememberedHold,
    now: u64,
    records: &mut impl Records,
) -> bool {
    let mut enforced =
        slots(call, hold).filter(|(_, charge, _)| !charge.policy.is_shadow()).peekable();
    enforced.peek().is_some()
        && enforced.all(|(index, charge, cost)| {
            let record = records.get(index);
            record.is_some_and(|record| record.can_revive(&charge, &finder.at(index), cost, now))
        })
}

fn revive(
    call: &Call<'_>,
    finder: &Finder,
    hold: &RememberedHold,
    now: u64,
    records: &mut impl Records,
) {
    for (index, charge, cost) in slots(call, hold) {
        let known = finder.at(index);
        let can = |record: &Record| record.can_revive(&charge, &known, cost, now);
        if records.get(index).is_some_and(can) {
            records.update(index, |record| record.revive(&charge, &known, now));
        }
    }
}

#[derive(Clone, Copy)]
enum Change {
    Nothing,
    Charge(u64),
    Refund { cost: u64, of: Take },
}

impl Change {
    fn limited(self, charge: &Charge<'_>, record: Option<&Record>, now: u64) -> Self {
        match self {
            Self::Charge(cost) => {
                let state = record.and_then(|record| record.state_under(charge.policy, now));
                match charge.rule().chargeable(state.as_deref(), cost, now) {
                    0 => Self::Nothing,
                    cost => Self::Charge(cost),
                }
            }
            Self::Refund { .. } if record.is_none() => Self::Nothing,
            change => change,
        }
    }
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
        let spent = hold.charges.iter().map(|held| held.spent);
        if is_final && spent.eq(call.charges.iter().map(|charge| charge.cost)) {
            return Ok(settlement.clone());
        }
        return Err(already_settled(id, hold, settlement));
    }
    let now = now.as_micros();
    let finder = Finder::new(call, id, hold, known.expires_at_micros);
    let refunded = refund_lapsed(call, &finder, now, records);
    let change = |(index, ((charge, held), refunded)): (usize, ((Charge<'_>, &HeldCharge), _))| {
        let change = held.change_to(charge.cost, is_final, refunded, hold.taken_at_micros);
        change.limited(&charge, records.get(index), now)
    };
    let changes: PerCharge<Change> =
        call.charges.iter().zip(&hold.charges).zip(refunded).enumerate().map(change).collect();
    let is_charge = |change: &Change| matches!(change, Change::Charge(_));
    let charged = || (0..changes.len()).filter(|&index| changes.get(index).is_some_and(is_charge));
    make_room(charged(), records)?;
    let apply = |(index, (charge, change)): (usize, (Charge<'_>, &Change))| match *change {
        Change::Nothing => 0,
        Change::Charge(cost) => {
            records.update(index, |record| record.charge(&charge, cost, now));
            cost
        }
        Change::Refund { cost, of } => {
            update(index, records, |record| record.refund_hold(&charge, cost, of, now))
        }
    };
    let amounts: PerCharge<u64> =
        call.charges.iter().zip(&changes).enumerate().map(apply).collect();
    for (charge, held) in call.charges.iter().zip(&mut hold.charges) {
        held.spent = if is_final { charge.cost } else { held.spent.max(charge.cost) };
    }
    let spent: PerCharge<u64> = hold.charges.iter().map(|charge| charge.spent).collect();
    change_state_holds(call, &finder, now, records, |index| {
        let spent = spent.get(index).copied().unwrap_or(0);
        move |hold| (!is_final).then_some(StateHold { spent, ..hold })
    });
    let mut out_of_reach: PerCharge<usize> = PerCharge::new();
    for (index, (charge, change)) in call.charges.iter().zip(&changes).enumerate() {
        if let (Change::Refund { of, .. }, Some(0)) = (change, amounts.get(index)) {
            let record = records.get(index);
            let state = record.and_then(|record| record.state_under(charge.policy, now));
            if charge.rule().is_out_of_reach(state.as_deref(), of.at, now) {
                out_of_reach.push(index);
            }
        }
    }
    let decision = report_after(call.charges, now, records).with_amounts(amounts);
    let decision = decision.with_charged(charged()).with_out_of_reach(out_of_reach);
    if is_final {
        hold.settlement = Some(decision.clone());
    }
    records.remember(known);
    Ok(decision)
}

impl HeldCharge {
    /// Returns the change to the state if the actual cost of the charge is `total`. `is_final` is
    /// `true` for a settlement, and `false` for a cost that is only settled so far.
    ///
    /// `refunded` is the amount that was refunded when the hold lapsed. It is `None` if the state
    /// no longer contains the hold, for example after a reset.
    fn change_to(self, total: u64, is_final: bool, refunded: Option<u64>, taken_at: u64) -> Change {
        let Some(held) = self.held else { return Change::Nothing };
        let held = refunded.map_or(0, |refunded| held.saturating_sub(refunded));
        let charged = held.max(self.spent);
        if total > charged {
            Change::Charge(total - charged)
        } else if is_final && total < held {
            Change::Refund { cost: held - total, of: Take::new(taken_at, held) }
        } else {
            Change::Nothing
        }
    }
}

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

/// Refunds all lapsed holds on the states of `call`, which settles a hold. For each charge, returns
/// the amount that was refunded when the settled hold lapsed, or `None` if the state was reset: see
/// [`HeldCharge::change_to`].
fn refund_lapsed(
    call: &Call<'_>,
    finder: &Finder,
    now: u64,
    records: &mut impl Records,
) -> PerCharge<Option<u64>> {
    let refunded = |(index, charge): (usize, Charge<'_>)| {
        let known = finder.at(index);
        let holds = records.get(index).and_then(Record::holds)?;
        if !charge.policy.stores_holds() {
            return holds.is_in_epoch(charge.rule().member(), known.number).then_some(0);
        }
        update(index, records, |record| record.change_holds(now, |holds| holds.refunded(&known)))
    };
    call.charges.iter().enumerate().map(refunded).collect()
}

/// For each charge, applies `changes(index)` to the hold on the charge's state, if the state
/// contains the hold. If the result is `None`, removes the hold from the state.
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
        if charge.policy.stores_holds() && records.get(index).is_some_and(is_known) {
            update(index, records, |record| {
                record.change_holds(now, |holds| holds.change(&known, changes(index)));
            });
        }
    }
}

/// Prolongs the epoch of each state of the hold, so that it does not end before `expires_at`, when
/// the hold expires.
fn prolong_epochs(
    call: &Call<'_>,
    finder: &Finder,
    expires_at: u64,
    now: u64,
    records: &mut impl Records,
) {
    for (index, charge) in call.charges.iter().enumerate() {
        let (member, number) = (charge.rule().member(), finder.at(index).number);
        let is_in_epoch =
            |record: &Record| record.holds().is_some_and(|holds| holds.is_in_epoch(member, number));
        if !charge.policy.stores_holds() && records.get(index).is_some_and(is_in_epoch) {
            records.update(index, |record| {
                record.change_holds(now, |holds| holds.join(member, number, expires_at, now));
            });
        }
    }
}

/// Returns the number of the epoch that begins with the hold `key`. The number also depends on the
/// time, because a client can use the same id for a later hold, whose key is then equal.
fn epoch_of(key: &HoldKey, now: u64) -> u64 {
    key.first_chunk().map_or(now, |bytes| u64::from_le_bytes(*bytes) ^ now)
}

/// Returns the key under which the states store the hold: a digest of the slot key and the id.
fn key_of(call: &Call<'_>, id: CallId<'_>) -> HoldKey {
    let scope = call.charges.get(0).map_or(&[][..], |charge| charge.slot_key());
    let mut digest = Sha1::from(scope.len().to_le_bytes());
    digest.update(scope);
    digest.update(id.id);
    digest.digest().bytes()
}

/// Creates the error for an id under which no hold is remembered.
#[must_use]
pub fn unknown_hold(id: &[u8]) -> Error {
    let id = id.escape_ascii();
    let message = format!(
        "no hold is known under the id \"{id}\": it was never made, or has expired; use `charge` for the cost that \
         was used"
    );
    Error::new(ErrorKind::UnknownHold, message)
}

/// Creates the error for a subject that has the maximum number of open holds.
#[must_use]
pub fn too_many_holds(policy: &Policy, open: usize) -> Error {
    let message = format!(
        "the subject has {open} open holds on `{policy}`; it must have fewer than {} to make another one: settle or \
         cancel some, or raise `max-open-holds` of the policy",
        policy.max_open_holds()
    );
    Error::new(ErrorKind::TooManyHolds, message)
}

/// Creates the error for the extension of a hold that lapsed `micros_ago` microseconds ago.
#[must_use]
pub fn lapsed_hold(id: &[u8], micros_ago: u64) -> Error {
    let id = id.escape_ascii();
    let message = format!(
        "the hold \"{id}\" lapsed {micros_ago} µs ago, so it can be settled, but not extended"
    );
    Error::new(ErrorKind::HoldLapsed, message)
}

fn already_settled(id: CallId<'_>, hold: &RememberedHold, settlement: &Decision) -> Error {
    let costs = hold.charges.iter().map(|held| held.spent).collect();
    AlreadySettled::new(costs, settlement.clone()).into_error(id.id)
}
