//! The holds on one state, of policies that give back what is held once its time is over.
//!
//! Nothing sweeps: whatever looks at the state sees it as if what has lapsed had been given back at its time, and whatever
//! writes it gives that back first. In between nothing was written, so that is the same: a bucket that is refilled and then
//! given back to is at most full in either order, and in a window or a log the time of the return does not count.

use super::dispatch::State;
use crate::Policy;
use crate::algorithm::traits::Take;
use crate::policy::Rule;
use crate::time::Wait;

/// Which hold: a digest of its slot key and id.
pub(super) type HoldKey = [u8; 20];

/// A hold on one state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StateHold {
    pub(super) key: HoldKey,
    pub(super) take: Take,
    pub(super) spent: u64,
    pub(super) lapses_at: u64,
    pub(super) expires_at: u64,
    /// What was given back when it lapsed.
    pub(super) given_back: Option<u64>,
}

/// All holds on one state, in the order in which they lapse.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct StateHolds(Vec<StateHold>);

impl StateHold {
    fn is_due(&self, now: u64) -> bool {
        self.given_back.is_none() && self.lapses_at <= now
    }

    fn is_open(&self, now: u64) -> bool {
        self.given_back.is_none() && self.lapses_at > now
    }

    fn unspent(&self) -> u64 {
        self.take.cost.saturating_sub(self.spent)
    }

    /// Gives back what is not spent, at the time of the lapse, and returns how much that was.
    fn lapse(&self, state: &mut Option<State>, rule: &Rule) -> u64 {
        let unspent = self.unspent();
        if unspent == 0 || state.is_none() {
            return 0;
        }
        rule.take_back(state, unspent, self.take, self.lapses_at).unwrap_or(0)
    }
}

impl StateHolds {
    pub(super) fn is_any_due(&self, now: u64) -> bool {
        self.0.iter().any(|hold| hold.is_due(now))
    }

    /// Whether a write gives back or forgets one.
    pub(super) fn is_any_over(&self, now: u64) -> bool {
        self.0.iter().any(|hold| hold.is_due(now) || hold.expires_at <= now)
    }

    /// Gives back what is due.
    pub(super) fn lapse_due(&self, state: &mut Option<State>, rule: &Rule, now: u64) {
        for hold in self.0.iter().filter(|hold| hold.is_due(now)) {
            hold.lapse(state, rule);
        }
    }

    /// The same, notes how much that was, and forgets holds that have expired.
    pub(super) fn settle_due(&mut self, state: &mut Option<State>, rule: &Rule, now: u64) {
        for hold in self.0.iter_mut().filter(|hold| hold.is_due(now)) {
            hold.given_back = Some(hold.lapse(state, rule));
        }
        self.0.retain(|hold| now < hold.expires_at);
    }

    /// Those that are still to lapse.
    fn open(&self, now: u64) -> impl Iterator<Item = &StateHold> {
        self.0.iter().filter(move |hold| hold.is_open(now))
    }

    /// How much is held and not spent.
    pub(super) fn unspent(&self, now: u64) -> u64 {
        self.open(now).map(StateHold::unspent).fold(0, u64::saturating_add)
    }

    /// How long until a cost is admitted that has to wait for `wait` if nothing lapses. `state` is that of now.
    pub(super) fn wait(
        &self,
        mut state: Option<State>,
        rule: &Rule,
        cost: u64,
        now: u64,
        mut wait: Wait,
    ) -> Wait {
        for hold in self.open(now) {
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

    /// When the state has recovered that does so at `recovers_at` if nothing lapses. `state` is that of now.
    pub(super) fn recovers_at(
        &self,
        mut state: Option<State>,
        rule: &Rule,
        now: u64,
        mut recovers_at: u64,
    ) -> u64 {
        for hold in self.open(now) {
            if hold.lapses_at >= recovers_at {
                break;
            }
            hold.lapse(&mut state, rule);
            let then = rule.level(state.as_ref(), hold.lapses_at).recovers_at;
            recovers_at = recovers_at.min(then.max(hold.lapses_at));
        }
        recovers_at
    }

    /// The time from which no hold is known.
    pub(super) fn expire_at(&self) -> u64 {
        self.0.iter().map(|hold| hold.expires_at).max().unwrap_or(0)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn get(&self, key: &HoldKey) -> Option<&StateHold> {
        self.0.iter().find(|hold| hold.key == *key)
    }

    /// Adds a hold, or replaces it.
    pub(super) fn put(&mut self, hold: StateHold) {
        self.remove(&hold.key);
        let index = self.0.partition_point(|other| other.lapses_at <= hold.lapses_at);
        self.0.insert(index, hold);
    }

    pub(super) fn remove(&mut self, key: &HoldKey) {
        self.0.retain(|hold| hold.key != *key);
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.0.capacity() * size_of::<StateHold>()
    }

    /// The maximum number of bytes that one more hold may add to [`heap_bytes`](Self::heap_bytes).
    pub(super) fn growth(&self) -> usize {
        if self.0.len() < self.0.capacity() {
            return 0;
        }
        self.0.capacity().max(4) * size_of::<StateHold>()
    }
}

/// A state as it is now, and the holds on it that are still to lapse, in that order: what a store that keeps both elsewhere
/// needs to say how long a refusal lasts.
#[derive(Debug, Clone, Default)]
pub struct OpenHolds {
    state: Option<State>,
    holds: StateHolds,
}

impl OpenHolds {
    /// No holds on a state, which is in the units of the policy that is asked about.
    #[must_use]
    pub fn new(state: Option<State>) -> Self {
        Self { state, holds: StateHolds::default() }
    }

    /// Adds a hold that lapses after those before, or with them.
    pub fn push(&mut self, take: Take, spent: u64, lapses_at: u64) {
        let key = HoldKey::default();
        let hold =
            StateHold { key, take, spent, lapses_at, expires_at: lapses_at, given_back: None };
        self.holds.0.push(hold);
    }

    /// How long until `policy` admits a cost that has to wait for `wait` if nothing lapses.
    #[must_use]
    pub fn wait(&self, policy: &Policy, cost: u64, now: u64, wait: Wait) -> Wait {
        self.holds.wait(self.state.clone(), policy.rule(), cost, now, wait)
    }

    /// When the state has recovered that does so at `recovers_at` if nothing lapses.
    #[must_use]
    pub fn recovers_at(&self, policy: &Policy, now: u64, recovers_at: u64) -> u64 {
        self.holds.recovers_at(self.state.clone(), policy.rule(), now, recovers_at)
    }
}
