//! The holds on one state, of policies that refund lapsed holds.
//!
//! Nothing sweeps. A call that reads the state sees it as if each lapsed hold had been refunded at its time, and then
//! writes that refund once. The state was not written in between, so this is the same: a bucket that is refilled and then
//! refunded is at most full in either order, and in a window or a log the time of the refund does not count.

use std::collections::BTreeMap;

use super::dispatch::State;
use crate::Policy;
use crate::algorithm::traits::Take;
use crate::policy::Rule;
use crate::time::{MAX_EXACT, Wait};

/// The maximum number of future lapses that a wait counts on, so that a refusal does a bounded amount of work.
pub const MAX_COUNTED_LAPSES: usize = 32;

/// The maximum of the sum of what is held and unspent, as in Redis scripts. Numbers up to it are exact in doubles.
const MAX_UNSPENT: u64 = 2 * MAX_EXACT;

/// A digest of the slot key and the id of a hold.
pub(super) type HoldKey = [u8; 20];

/// The place of a hold on its state: a time, and the number of the hold. Of two holds of one time, the hold that was made
/// first is first.
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
}

impl StateHold {
    fn unspent(&self) -> u64 {
        self.take.cost.saturating_sub(self.spent)
    }

    /// Refunds the unspent part at the time of the lapse, and returns the refunded amount.
    fn lapse(&self, state: &mut Option<State>, rule: &Rule) -> u64 {
        let unspent = self.unspent();
        if unspent == 0 || state.is_none() {
            return 0;
        }
        rule.take_back(state, unspent, self.take, self.lapses_at).unwrap_or(0)
    }
}

impl StateHolds {
    /// Upper bound on the heap bytes of one hold: a node of the tree that is half full, and its share of the inner nodes.
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
        for hold in self.open.range(..=(now, u64::MAX)).map(|(_, hold)| hold) {
            hold.lapse(state, rule);
        }
    }

    /// Refunds the due holds to their state, records the amounts, and forgets expired holds.
    pub(super) fn settle_due(&mut self, state: &mut Option<State>, rule: &Rule, now: u64) {
        while self.is_any_due(now)
            && let Some(((_, number), hold)) = self.open.pop_first()
        {
            self.unspent = self.unspent.saturating_sub(hold.unspent());
            let refunded = hold.lapse(state, rule);
            self.lapsed.insert((hold.expires_at, number), (hold, refunded));
        }
        while self.lapsed.first_key_value().is_some_and(|((expires_at, _), _)| *expires_at <= now) {
            self.lapsed.pop_first();
        }
    }

    /// The number of open holds.
    pub(super) fn open_count(&self) -> usize {
        self.open.len()
    }

    /// How much the open holds hold and have not spent at `now`.
    pub(super) fn unspent(&self, now: u64) -> u64 {
        let due = self.open.range(..=(now, u64::MAX));
        due.fold(self.unspent, |unspent, (_, hold)| unspent.saturating_sub(hold.unspent()))
    }

    /// Returns how long until a cost is admitted whose wait is `wait` if no hold lapses. `state` is the state at `now`.
    ///
    /// The wait counts on the first [`MAX_COUNTED_LAPSES`] lapses. More lapses could only shorten it.
    pub(super) fn wait(
        &self,
        mut state: Option<State>,
        rule: &Rule,
        cost: u64,
        now: u64,
        mut wait: Wait,
    ) -> Wait {
        let open = self.open.range((now + 1, 0)..).map(|(_, hold)| hold);
        for hold in open.take(MAX_COUNTED_LAPSES) {
            let lapses_after = Wait::between(now, hold.lapses_at);
            if lapses_after >= wait {
                break;
            }
            hold.lapse(&mut state, rule);
            let then = rule.wait(state.as_ref(), cost, hold.lapses_at);
            wait = wait.min(lapses_after.plus(then));
        }
        wait
    }

    /// The time from which no hold is known.
    pub(super) fn expire_at(&self) -> u64 {
        self.ends_at
    }

    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty() && self.lapsed.is_empty()
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

    /// Returns the amount that was refunded of a hold when it lapsed, or 0 if it is open. Returns `None` if the state does
    /// not know the hold.
    pub(super) fn refunded(&self, known: &KnownHold) -> Option<u64> {
        if self.open.get(&(known.lapses_at, known.number)).is_some_and(|it| it.key == known.key) {
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

/// How the record of a hold finds it on a state.
pub(super) struct KnownHold {
    pub(super) key: HoldKey,
    pub(super) number: u64,
    pub(super) lapses_at: u64,
    pub(super) expires_at: u64,
}

/// A state and the next holds on it that will lapse, in that order. A store that keeps both elsewhere computes the wait of a
/// refusal from them.
#[derive(Debug, Clone, Default)]
pub struct OpenHolds {
    state: Option<State>,
    holds: StateHolds,
}

impl OpenHolds {
    /// Creates the holds on a state, none so far. The state is in the units of the policy that is asked about.
    #[must_use]
    pub fn new(state: Option<State>) -> Self {
        Self { state, holds: StateHolds::default() }
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
