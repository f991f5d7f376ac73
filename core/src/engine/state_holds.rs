//! The holds on one state, of policies that refund lapsed holds.
//!
//! Nothing sweeps. A call that reads the state sees it as if each lapsed hold had been refunded at
//! its time, and then writes that refund once. The state was not written in between, so this is the
//! same: a bucket that is refilled and then refunded is at most full in either order, and in a
//! window or a log the time of the refund does not count.

use std::collections::BTreeMap;

use super::dispatch::State;
use crate::Policy;
use crate::algorithm::traits::Take;
use crate::policy::Rule;
use crate::time::{MAX_EXACT, Wait};

/// The maximum number of future lapses that a wait counts on, so that a refusal does a bounded
/// amount of work.
pub const MAX_COUNTED_LAPSES: usize = 32;

/// The maximum of the unspent sum of holds, as in Redis scripts. Numbers up to it are exact in
/// doubles.
const MAX_UNSPENT: u64 = 2 * MAX_EXACT;

/// A digest of the slot key and the id of a hold.
pub(super) type HoldKey = [u8; 20];

/// The place of a hold on its state: a time, and the number of the hold. The older one of two holds
/// of one time is first.
type Place = (u64, u64);

/// A hold on one state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StateHold {
    pub(super) key: HoldKey,
    pub(super) take: Take,
    pub(super) spent: u64,
    pub(super) lapses_at: u64,
    pub(super) expires_at: u64,
}

/// All holds on one state.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct StateHolds {
    /// The open holds, by the time at which they lapse.
    open: BTreeMap<Place, StateHold>,
    /// The lapsed holds and the amounts that were refunded, by the time at which the holds expire.
    lapsed: BTreeMap<Place, (StateHold, u64)>,
    /// The number of the next hold.
    next_number: u64,
    /// The sum of what the open holds hold and have not spent.
    unspent: u64,
    /// The time from which none of the holds so far is known.
    ends_at: u64,
    /// The refunds since these holds were made.
    refunds: Refunds,
    /// The epoch of the holds of policies that do not refund lapsed holds.
    epoch: Option<Epoch>,
}

/// Refunds of a state that has holds. A refund does not name the charge that it refunds, so it may
/// have refunded a hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Refunds {
    amount: u64,
    /// The time of the last refund.
    at: u64,
}

/// The holds of policies that do not refund lapsed holds, from the first hold on a state to a
/// reset. The state does not record these holds. Each hold records the epoch, so that its
/// settlement recognizes a reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Epoch {
    number: u64,
    /// The time until which a hold of the epoch is known.
    ends_at: u64,
    refunds: Refunds,
}

impl Refunds {
    fn add(&mut self, amount: u64, now: u64) {
        if amount > 0 {
            *self = Self { amount: self.amount.saturating_add(amount).min(MAX_UNSPENT), at: now };
        }
    }

    /// Takes back a part of a hold, less the refunds that may have refunded it. Each refund counts
    /// once. Returns the amount, or `None` if nothing is left of the part.
    fn take_back(
        &mut self,
        state: &mut Option<State>,
        rule: &Rule,
        cost: u64,
        take: Take,
        now: u64,
    ) -> Option<u64> {
        if self.amount == 0 || self.at < take.at {
            return rule.take_back(state, cost, take, now);
        }
        let possible = rule.take_back(&mut state.clone(), cost, take, now)?;
        let refunded = self.amount.min(possible);
        self.amount -= refunded;
        let take = Take::new(take.at, take.cost - refunded);
        (possible > refunded)
            .then(|| rule.take_back(state, possible - refunded, take, now))
            .flatten()
    }
}

impl StateHold {
    fn unspent(&self) -> u64 {
        self.take.cost.saturating_sub(self.spent)
    }

    /// Refunds the unspent part at the time of the lapse, and returns the refunded amount.
    fn lapse(&self, state: &mut Option<State>, rule: &Rule, refunds: &mut Refunds) -> u64 {
        let unspent = self.unspent();
        if unspent == 0 || state.is_none() {
            return 0;
        }
        refunds.take_back(state, rule, unspent, self.take, self.lapses_at).unwrap_or(0)
    }
}

impl StateHolds {
    /// Upper bound on the heap bytes of one hold: a node of the tree that is half full, and its
    /// share of the inner nodes.
    const HOLD_BYTES: usize = size_of::<(Place, (StateHold, u64))>() * 5 / 2;

    /// Returns `true` if a hold has lapsed and is not refunded yet.
    pub(super) fn is_any_due(&self, now: u64) -> bool {
        self.open.first_key_value().is_some_and(|((lapses_at, _), _)| *lapses_at <= now)
    }

    /// Returns `true` if [`settle_due`](Self::settle_due) would refund or forget a hold.
    pub(super) fn is_any_over(&self, now: u64) -> bool {
        let first = self.lapsed.first_key_value();
        self.is_any_due(now) || first.is_some_and(|((expires_at, _), _)| *expires_at <= now)
    }

    /// Refunds the due holds to a copy of their state.
    pub(super) fn lapse_due(&self, state: &mut Option<State>, rule: &Rule, now: u64) {
        let mut refunds = self.refunds;
        for hold in self.open.range(..=(now, u64::MAX)).map(|(_, hold)| hold) {
            hold.lapse(state, rule, &mut refunds);
        }
    }

    /// Refunds the due holds to their state, records the amounts, and forgets expired holds.
    pub(super) fn settle_due(&mut self, state: &mut Option<State>, rule: &Rule, now: u64) {
        while self.is_any_due(now)
            && let Some(((_, number), hold)) = self.open.pop_first()
        {
            self.unspent = self.unspent.saturating_sub(hold.unspent());
            let refunded = hold.lapse(state, rule, &mut self.refunds);
            self.lapsed.insert((hold.expires_at, number), (hold, refunded));
        }
        while self.lapsed.first_key_value().is_some_and(|((expires_at, _), _)| *expires_at <= now) {
            self.lapsed.pop_first();
        }
    }

    /// Returns the number of open holds.
    pub(super) fn open_count(&self) -> usize {
        self.open.len()
    }

    /// Returns the unspent sum of the open holds at `now`.
    pub(super) fn unspent(&self, now: u64) -> u64 {
        let due = self.open.range(..=(now, u64::MAX));
        due.fold(self.unspent, |unspent, (_, hold)| unspent.saturating_sub(hold.unspent()))
    }

    /// Returns how long until a cost is admitted whose wait is `wait` if no hold lapses. `state` is
    /// the state at `now`.
    ///
    /// The wait counts on the first [`MAX_COUNTED_LAPSES`] lapses. More lapses could only shorten
    /// it.
    pub(super) fn wait(
        &self,
        mut state: Option<State>,
        rule: &Rule,
        cost: u64,
        now: u64,
        mut wait: Wait,
    ) -> Wait {
        let mut refunds = self.refunds;
        let open = self.open.range((now + 1, 0)..).map(|(_, hold)| hold);
        for hold in open.take(MAX_COUNTED_LAPSES) {
            let lapses_after = Wait::between(now, hold.lapses_at);
            if lapses_after >= wait {
                break;
            }
            hold.lapse(&mut state, rule, &mut refunds);
            let then = rule.wait(state.as_ref(), cost, hold.lapses_at);
            wait = wait.min(lapses_after.plus(then));
        }
        wait
    }

    /// Returns the time from which no hold is known.
    pub(super) fn expire_at(&self) -> u64 {
        self.ends_at.max(self.epoch.map_or(0, |epoch| epoch.ends_at))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty() && self.lapsed.is_empty() && self.epoch.is_none()
    }

    /// Joins the epoch of the state, or begins the epoch `number`. Returns the number of the epoch.
    ///
    /// An epoch that has to last longer lasts half as long again as it needs to, so that a store
    /// need not write it for each hold.
    pub(super) fn join(&mut self, number: u64, expires_at: u64, now: u64) -> u64 {
        let epoch = Epoch { number, ends_at: 0, refunds: Refunds::default() };
        self.epoch = self.epoch.filter(|epoch| now < epoch.ends_at);
        let epoch = self.epoch.get_or_insert(epoch);
        if epoch.ends_at < expires_at {
            epoch.ends_at = (expires_at + (expires_at - now) / 2).min(2 * MAX_EXACT);
        }
        epoch.number
    }

    /// Forgets the refunds and the numbers if no hold is left that lapses, or has lapsed.
    pub(super) fn tidy(&mut self) {
        if self.open.is_empty() && self.lapsed.is_empty() {
            *self = Self { epoch: self.epoch, ..Self::default() };
        }
    }

    /// Returns `true` if the holds of this epoch were not reset.
    pub(super) fn is_in_epoch(&self, number: u64) -> bool {
        self.epoch.is_some_and(|epoch| epoch.number == number)
    }

    /// Records a refund, which may have refunded a hold.
    pub(super) fn note_refund(&mut self, amount: u64, now: u64) {
        if !self.open.is_empty() {
            self.refunds.add(amount, now);
        }
        if let Some(epoch) = &mut self.epoch {
            epoch.refunds.add(amount, now);
        }
    }

    /// Takes back a part of a hold from its state: see [`Refunds::take_back`].
    pub(super) fn take_back(
        &mut self,
        is_of_epoch: bool,
        state: &mut Option<State>,
        rule: &Rule,
        cost: u64,
        take: Take,
        now: u64,
    ) -> Option<u64> {
        let refunds = match &mut self.epoch {
            Some(epoch) if is_of_epoch => &mut epoch.refunds,
            _ => &mut self.refunds,
        };
        refunds.take_back(state, rule, cost, take, now)
    }

    /// Adds an open hold, and returns its number.
    pub(super) fn add(&mut self, hold: StateHold) -> u64 {
        let number = self.next_number;
        self.next_number += 1;
        self.put(number, hold);
        number
    }

    fn put(&mut self, number: u64, hold: StateHold) {
        self.unspent = self.unspent.saturating_add(hold.unspent()).min(MAX_UNSPENT);
        self.ends_at = self.ends_at.max(hold.expires_at);
        self.open.insert((hold.lapses_at, number), hold);
    }

    /// Returns the amount that was refunded of a hold when it lapsed, or 0 if it is open. Returns
    /// `None` if the state does not know the hold.
    pub(super) fn refunded(&self, known: &KnownHold) -> Option<u64> {
        if self.open.get(&(known.lapses_at, known.number)).is_some_and(|hold| hold.key == known.key)
        {
            return Some(0);
        }
        let lapsed = self.lapsed.get(&(known.expires_at, known.number));
        lapsed.filter(|(hold, _)| hold.key == known.key).map(|(_, refunded)| *refunded)
    }

    /// Changes a hold that the state knows, or removes it.
    pub(super) fn change(
        &mut self,
        known: &KnownHold,
        change: impl FnOnce(StateHold) -> Option<StateHold>,
    ) {
        match self.refunded(known) {
            None => {}
            Some(0) if self.open.contains_key(&(known.lapses_at, known.number)) => {
                let Some(hold) = self.open.remove(&(known.lapses_at, known.number)) else { return };
                self.unspent = self.unspent.saturating_sub(hold.unspent());
                if let Some(hold) = change(hold) {
                    self.put(known.number, hold);
                }
            }
            Some(_) => {
                let lapsed = self.lapsed.remove(&(known.expires_at, known.number));
                let Some((hold, refunded)) = lapsed else { return };
                if let Some(hold) = change(hold) {
                    self.ends_at = self.ends_at.max(hold.expires_at);
                    self.lapsed.insert((hold.expires_at, known.number), (hold, refunded));
                }
            }
        }
    }

    pub(super) fn heap_bytes(&self) -> usize {
        (self.open.len() + self.lapsed.len()) * Self::HOLD_BYTES
    }

    /// The maximum number of bytes that one more hold may add to [`heap_bytes`](Self::heap_bytes).
    pub(super) fn growth() -> usize {
        Self::HOLD_BYTES
    }
}

/// The place of a hold on a state, as the record of the hold has it.
pub(super) struct KnownHold {
    pub(super) key: HoldKey,
    pub(super) number: u64,
    pub(super) lapses_at: u64,
    pub(super) expires_at: u64,
}

/// A state and the next holds on it that will lapse, in that order. A store that keeps both
/// elsewhere computes the wait of a refusal from them.
#[derive(Debug, Clone, Default)]
pub struct OpenHolds {
    state: Option<State>,
    holds: StateHolds,
}

impl OpenHolds {
    /// Creates the holds on a state, none so far. The state is in the units of the policy of the
    /// call.
    #[must_use]
    pub fn new(state: Option<State>) -> Self {
        Self { state, holds: StateHolds::default() }
    }

    /// Sets the sum of the refunds that may have refunded these holds, and the time of the last
    /// one.
    #[must_use]
    pub fn refunded(mut self, amount: u64, at: u64) -> Self {
        self.holds.refunds = Refunds { amount, at };
        self
    }

    /// Adds a hold that lapses after the previous ones, or with them.
    pub fn push(&mut self, take: Take, spent: u64, lapses_at: u64) {
        let key = HoldKey::default();
        self.holds.add(StateHold { key, take, spent, lapses_at, expires_at: lapses_at });
    }

    /// Returns how long until `policy` admits a cost whose wait is `wait` if no hold lapses.
    #[must_use]
    pub fn wait(&self, policy: &Policy, cost: u64, now: u64, wait: Wait) -> Wait {
        self.holds.wait(self.state.clone(), policy.rule(), cost, now, wait)
    }
}
