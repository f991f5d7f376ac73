//! The holds that the oracle knows. For each hold, the oracle keeps the charges and the settlement.

use std::collections::BTreeMap;
use std::time::Duration;

use tidegate_core::{Algorithm, Call, Charge, ErrorKind, Operation, Outcome, Policy};

use super::Key;
use super::ledger::{self, Change, Ledger};
use super::refunds::KeyRefunds;
use super::reply::Reply;
use super::rules::{Take, micros};

/// The key of a hold: the slot key of its first charge (the tenant, or the subject without a
/// tenant), and its id.
pub(super) type HoldKey = (Vec<u8>, Vec<u8>);

/// A charge without its cost: the policy, the tenant, the subject, and whether the charge is
/// check-only.
type HeldCharge = (String, Vec<u8>, Vec<u8>, bool, u8);

/// A hold that has not expired.
#[derive(Debug, Clone)]
pub(super) struct Hold {
    charges: Vec<HeldCharge>,
    /// The minimum of a "hold up to", and the requested costs.
    requested: (Option<u64>, Vec<u64>),
    reply: Reply,
    made_at: u64,
    lapses_at: u64,
    expires_at: u64,
    /// The number of changes to holds before this hold was made. If two holds lapse at the same
    /// time, the hold with the smaller number lapses first. The number is `None` until the oracle
    /// has recorded the hold.
    turn: Option<u64>,
    /// The held amount of each charge, or `None` for a charge that a shadow denied.
    held: Vec<Option<u64>>,
    spent: Vec<u64>,
    settled: Option<(Vec<u64>, Reply)>,
    /// The amount of each charge that was refunded when the hold lapsed. It is `None` while the
    /// charge is open: before the lapse, and after the slots of the charge were revived.
    lapsed: Vec<Option<u64>>,
    /// For each charge, whether its slots were needed for another hold after the lapse, so that
    /// they cannot be revived.
    lost: Vec<bool>,
    /// For each charge, whether its state was reset after the hold was made. After a reset, nothing
    /// of the charge is held, and a settlement charges its whole cost.
    reset: Vec<bool>,
}

/// Returns the key of the hold that a call names, or `None` for a call without an id.
pub(super) fn key_of(call: &Call<'_>) -> Option<HoldKey> {
    let scope = call.charges.get(0).map(|charge| charge.slot_key().to_vec());
    Some((scope.unwrap_or_default(), call.id?.id.to_vec()))
}

fn held_charges(charges: &[Charge<'_>]) -> Vec<HeldCharge> {
    let held_charge = |charge: &Charge<'_>| {
        let (tenant, subject) = (charge.tenant.to_vec(), charge.subject.to_vec());
        (charge.policy.to_string(), tenant, subject, charge.is_check_only, charge.list)
    };
    charges.iter().map(held_charge).collect()
}

/// Returns `true` if a call with these charges belongs to a hold. The numbers and the settings of
/// slots can have changed.
fn is_of(held: &[HeldCharge], charges: &[Charge<'_>]) -> bool {
    let is_same = |((held, charge), other): ((&HeldCharge, &Charge<'_>), &HeldCharge)| {
        let (text, tenant, subject, is_check_only, list) = held;
        let is_same_key = || {
            let Ok(policy) = text.parse::<Policy>() else { return false };
            let held = Charge::new(&policy, subject).tenant(tenant);
            ledger::is_slots(&policy)
                && ledger::key_of(&held) == ledger::key_of(charge)
                && (*is_check_only, *list) == (charge.is_check_only, charge.list)
        };
        held == other || is_same_key()
    };
    let others = held_charges(charges);
    held.len() == charges.len() && held.iter().zip(charges).zip(&others).all(is_same)
}

/// Executes a call that names a hold. Returns the answer, and the hold after the call.
pub(super) fn execute(
    ledger: &mut Ledger,
    refunds: &mut BTreeMap<Key, KeyRefunds>,
    hold: Option<&Hold>,
    call: &Call<'_>,
    is_alone: impl Fn(&Charge<'_>) -> bool,
    next_fence: impl Fn(&Charge<'_>) -> u64,
    now: u64,
) -> (Reply, Option<Hold>) {
    let charges: Vec<Charge<'_>> = call.charges.iter().collect();
    let mistakes = ledger::mistakes(call.operation, &charges);
    let Some(id) = call.id.filter(|_| mistakes.is_empty()) else {
        return (Reply::Error([mistakes, vec![ErrorKind::InvalidCall]].concat()), hold.cloned());
    };
    let hold = hold.filter(|hold| now < hold.expires_at);
    let fail = |kind| (Reply::Error(vec![kind]), hold.cloned());
    let costs: Vec<u64> = charges.iter().map(|charge| charge.cost).collect();
    if hold.is_some_and(|hold| !is_of(&hold.charges, &charges)) {
        return fail(ErrorKind::IdReused);
    }
    let min = match call.operation {
        Operation::HoldUpTo { min } => Some(min),
        _ => None,
    };
    match (call.operation, hold) {
        (operation, Some(hold)) if operation.is_acquire() => {
            if hold.requested != (min, costs) {
                return fail(ErrorKind::IdReused);
            }
            let needs_slots =
                |charge: &Charge<'_>| ledger::takes_slots(charge) && !charge.policy.is_shadow();
            if !charges.iter().any(needs_slots) {
                return (hold.reply.clone(), Some(hold.clone()));
            }
            match extend(ledger, refunds, hold, &charges, id.ttl, now) {
                Ok(extended) => (hold.reply.clone(), Some(extended)),
                Err(kind) => fail(kind),
            }
        }
        (operation, None) if operation.is_acquire() => {
            let operation = min.map_or(Operation::Acquire, |min| Operation::AcquireUpTo { min });
            let reply = ledger::execute_valid(ledger, &Call::new(operation, &charges), now);
            let Reply::Decision { allowed: true, verdicts, amounts, .. } = &reply else {
                return (reply, None);
            };
            let held =
                charges.iter().zip(verdicts).enumerate().map(|(place, (charge, verdict))| {
                    let taken = amounts.get(place).copied().unwrap_or(charge.cost);
                    let taken = if charge.is_check_only { 0 } else { taken };
                    (verdict.outcome == Outcome::Allowed).then_some(taken)
                });
            let ttl = life(&charges, id.ttl);
            let held: Vec<Option<u64>> = held.collect();
            let mut fences: Vec<Option<u64>> = vec![];
            if charges.iter().any(|charge| ledger::is_slots(charge.policy)) {
                fences.extend(charges.iter().zip(&held).map(|(charge, held)| {
                    let is_grant =
                        ledger::is_slots(charge.policy) && held.is_some_and(|held| held > 0);
                    is_grant.then(|| next_fence(charge))
                }));
            }
            let reply = reply.with_fences(fences);
            let hold = Hold {
                held,
                charges: held_charges(&charges),
                requested: (min, costs),
                made_at: now,
                lapses_at: now + ttl,
                expires_at: now + 2 * ttl,
                turn: None,
                spent: vec![0; charges.len()],
                settled: None,
                lapsed: vec![None; charges.len()],
                lost: vec![false; charges.len()],
                reset: vec![false; charges.len()],
                reply: reply.clone(),
            };
            for (charge, held) in charges.iter().zip(&hold.held) {
                if held.is_some_and(|held| held > 0) {
                    let key_refunds = refunds.entry(ledger::key_of_refunds(charge)).or_default();
                    key_refunds.hold(charge, is_alone(charge), hold.expires_at, now);
                }
            }
            (reply, Some(hold))
        }
        (_, None) => fail(ErrorKind::UnknownHold),
        (Operation::Extend, Some(hold)) => {
            match extend(ledger, refunds, hold, &charges, id.ttl, now) {
                Ok(extended) => (ledger::look(ledger, &charges, now), Some(extended)),
                Err(kind) => fail(kind),
            }
        }
        (operation, Some(hold)) => match &hold.settled {
            Some((at, reply)) if operation == Operation::Settle && *at == costs => {
                (reply.clone(), Some(hold.clone()))
            }
            Some(_) => fail(ErrorKind::AlreadySettled),
            None => {
                let mut hold = hold.clone();
                let is_final = operation == Operation::Settle;
                let (mut amounts, mut charged) = (vec![], vec![]);
                for (place, charge) in charges.iter().enumerate() {
                    let change = hold.change(place, charge.cost, is_final);
                    hold.spent[place] = hold.spent[place].max(charge.cost);
                    let key_refunds = refunds.entry(ledger::key_of_refunds(charge)).or_default();
                    let amount =
                        key_refunds.for_holds_of(charge).settle(ledger, charge, change, now);
                    if amount > 0 && matches!(change, Change::Charge(_)) {
                        charged.push(place);
                    }
                    amounts.push(amount);
                }
                let reply = ledger::look(ledger, &charges, now);
                let reply = reply.with_amounts(amounts).with_charged(charged);
                hold.settled = is_final.then(|| (costs, reply.clone()));
                (reply, Some(hold))
            }
        },
    }
}

/// Extends a hold. If the hold has lapsed and has slots, revives it if there is room for all slots
/// of enforced policies, and no other hold has needed their room. Returns the hold after the call.
fn extend(
    ledger: &mut Ledger,
    refunds: &mut BTreeMap<Key, KeyRefunds>,
    hold: &Hold,
    charges: &[Charge<'_>],
    ttl: Duration,
    now: u64,
) -> Result<Hold, ErrorKind> {
    if hold.settled.is_some() {
        return Err(ErrorKind::AlreadySettled);
    }
    let slots = |(place, charge): (usize, &Charge<'_>)| {
        let held = hold.held[place].filter(|&held| held > 0 && ledger::is_slots(charge.policy))?;
        Some((place, held))
    };
    let slots: Vec<(usize, u64)> = charges.iter().enumerate().filter_map(slots).collect();
    let enforced: Vec<_> =
        slots.iter().filter(|(place, _)| !charges[*place].policy.is_shadow()).collect();
    let is_late = now >= hold.lapses_at;
    let can_revive = |ledger: &Ledger, place: usize, held: u64| {
        !hold.reset[place]
            && !hold.lost[place]
            && !ledger.behind.contains(&ledger::key_of(&charges[place]))
            && ledger::has_room(ledger, &charges[place], held, now)
    };
    if is_late
        && (enforced.is_empty()
            || !enforced.iter().all(|(place, held)| can_revive(ledger, *place, *held)))
    {
        return Err(ErrorKind::HoldLapsed);
    }
    if !is_late && enforced.iter().any(|(place, _)| hold.reset[*place]) {
        return Err(ErrorKind::UnknownHold);
    }
    let (mut extended, ttl) = (hold.clone(), life(charges, ttl));
    for (place, held) in slots.into_iter().filter(|_| is_late) {
        if can_revive(ledger, place, held) {
            ledger::take_slots(ledger, &charges[place], held, now);
            extended.lapsed[place] = None;
        }
    }
    extended.lapses_at = hold.lapses_at.max(now + ttl);
    extended.expires_at = hold.expires_at.max(extended.lapses_at + ttl);
    for (place, charge) in charges.iter().enumerate() {
        if hold.held[place].is_some_and(|held| held > 0) && !hold.reset[place] {
            let key_refunds = refunds.entry(ledger::key_of_refunds(charge)).or_default();
            key_refunds.hold(charge, false, extended.expires_at, now);
        }
    }
    Ok(extended)
}

/// Returns the time after which a hold lapses, in microseconds: its time to live, or the shortest
/// lease of the slots that it takes.
pub(super) fn life(charges: &[Charge<'_>], ttl: Duration) -> u64 {
    let lease = |charge: &Charge<'_>| match charge.policy.algorithm() {
        Algorithm::Concurrent(slots) if !charge.is_check_only && !charge.policy.is_shadow() => {
            Some(slots.lease())
        }
        _ => None,
    };
    micros(charges.iter().filter_map(lease).min().map_or(ttl, |lease| lease.min(ttl)))
}

impl Hold {
    /// Returns the fences of the hold.
    pub(super) fn fences(&self) -> &[Option<u64>] {
        match &self.reply {
            Reply::Decision { fences, .. } => fences,
            Reply::Error(_) => &[],
        }
    }

    pub(super) fn is_expired(&self, now: u64) -> bool {
        self.expires_at <= now
    }

    /// Returns `true` until [`set_turn`](Self::set_turn) is called for the first time.
    pub(super) fn is_new(&self) -> bool {
        self.turn.is_none()
    }

    /// Returns the time at which the hold lapses, and the order of the hold among holds that lapse
    /// at the same time. Returns `None` if all charges of the hold have lapsed, or if the hold is
    /// settled.
    pub(super) fn lapses_at(&self) -> Option<(u64, Option<u64>)> {
        let is_open = self.settled.is_none() && self.lapsed.iter().any(Option::is_none);
        is_open.then_some((self.lapses_at, self.turn))
    }

    /// Returns the place of the hold's charge to `key` if the charge has lapsed, and its slots can
    /// still be revived. Also returns the number of slots.
    pub(super) fn revivable_on(&self, key: &Key, now: u64) -> Option<(usize, u64)> {
        let place = self.place_on(key).filter(|_| self.is_known_on(key, now))?;
        self.lapsed[place].map(|freed| (place, freed))
    }

    /// Returns the time at which the hold expires.
    pub(super) fn expires_at(&self) -> (u64, Option<u64>) {
        (self.expires_at, self.turn)
    }

    /// Ends the right of the holder to revive the slots of the charge at `place`.
    pub(super) fn lose(&mut self, place: usize) {
        self.lost[place] = true;
    }

    /// Returns `true` if the state of `key` records the hold, and the hold is neither settled nor
    /// expired.
    pub(super) fn is_known_on(&self, key: &Key, now: u64) -> bool {
        self.settled.is_none() && now < self.expires_at && self.is_recorded_on(key)
    }

    /// Returns `true` if the state of `key` records the hold, and the hold is neither settled nor
    /// lapsed.
    pub(super) fn is_open_on(&self, key: &Key) -> bool {
        let is_open = |place: usize| self.lapsed[place].is_none();
        self.settled.is_none() && self.place_on(key).is_some_and(is_open)
    }

    pub(super) fn is_recorded_on(&self, key: &Key) -> bool {
        self.place_on(key).is_some()
    }

    /// Returns the place of the charge that the state of `key` records.
    fn place_on(&self, key: &Key) -> Option<usize> {
        (self.charges.iter().enumerate()).position(|(place, (policy, tenant, subject, ..))| {
            let Ok(policy) = policy.parse::<Policy>() else { return false };
            let charge = Charge::new(&policy, subject).tenant(tenant);
            let is_held = self.held[place].is_some_and(|held| held > 0) && !self.is_gone(place);
            is_held && policy.stores_holds() && ledger::key_of(&charge) == *key
        })
    }

    /// Returns `true` if the state of the charge at `place` no longer contains the hold.
    fn is_gone(&self, place: usize) -> bool {
        self.reset[place] || self.lost[place]
    }

    /// Returns the unspent part of the hold in the state of `key`. It is 0 if this state does not
    /// record the hold, or if the hold has lapsed.
    pub(super) fn unspent_of(&self, key: &Key) -> u64 {
        let mut unspent = 0;
        for (place, (policy, tenant, subject, ..)) in self.charges.iter().enumerate() {
            let Ok(policy) = policy.parse::<Policy>() else { continue };
            let charge = Charge::new(&policy, subject).tenant(tenant);
            let is_open =
                self.settled.is_none() && self.lapsed[place].is_none() && !self.is_gone(place);
            if is_open && policy.stores_holds() && ledger::key_of(&charge) == *key {
                unspent += self.held[place].unwrap_or(0).saturating_sub(self.spent[place]);
            }
        }
        unspent
    }

    pub(super) fn set_turn(&mut self, turn: u64) {
        self.turn = self.turn.or(Some(turn));
    }

    pub(super) fn reset(&mut self, call: &Call<'_>) {
        for ((policy, tenant, subject, ..), reset) in self.charges.iter().zip(&mut self.reset) {
            let Ok(policy) = policy.parse::<Policy>() else { continue };
            let key = ledger::key_of(&Charge::new(&policy, subject).tenant(tenant));
            *reset |= call.charges.iter().any(|charge| ledger::key_of(&charge) == key);
        }
    }

    /// Lets the open charges of the hold lapse. For each open charge that its state stores, calls
    /// `change` to refund the unspent part. `change` returns the refunded amount.
    pub(super) fn lapse(&mut self, mut change: impl FnMut(&Charge<'_>, Change) -> u64) {
        let refund = |(place, charge): (usize, &HeldCharge)| {
            let (policy, tenant, subject, ..) = charge;
            let policy: Policy = policy.parse().ok()?;
            let lapses = policy.stores_holds() && !self.is_gone(place);
            let held = self.held[place].filter(|_| lapses && self.lapsed[place].is_none())?;
            let unspent = held.saturating_sub(self.spent[place]);
            let take = Take { at: self.made_at, cost: held };
            let charge = Charge::new(&policy, subject).tenant(tenant);
            (unspent > 0).then(|| change(&charge, Change::Refund(unspent, take)))
        };
        let amounts: Vec<_> = self.charges.iter().enumerate().map(refund).collect();
        for (lapsed, amount) in self.lapsed.iter_mut().zip(amounts) {
            *lapsed = lapsed.or(Some(amount.unwrap_or(0)));
        }
    }

    fn change(&self, place: usize, total: u64, is_final: bool) -> Change {
        let Some(held) = self.held[place] else { return Change::Nothing };
        let refunded = self.lapsed[place].unwrap_or(0);
        let held = if self.is_gone(place) { 0 } else { held - refunded };
        let charged = held.max(self.spent[place]);
        if total > charged {
            Change::Charge(total - charged)
        } else if is_final && total < held {
            Change::Refund(held - total, Take { at: self.made_at, cost: held })
        } else {
            Change::Nothing
        }
    }
}
