//! Slots: at most `L` in use at any instant.
//!
//! A cost `c` is admitted if and only if `count + c ≤ L`, where `count` is the number of slots in
//! use. Only a [hold](crate::Operation::Hold) takes slots. A settlement frees them. If the hold
//! lapses before it is settled, its slots become free at the time of the lapse. So the slots of a
//! holder that has crashed are free after at most the lease.
//!
//! The state is one number. The holds on the state say which slots become free when: see
//! [`Policy::refund_lapsed`](crate::Policy::refund_lapsed).
//!
//! Source: the counting semaphore of Dijkstra (1965), with leases (Gray and Cheriton, 1989).

use super::check::amount;
use super::shape::StateShape;
use super::traits::{Algorithm, Level, Take};
use crate::time::{MAX_EXACT, Wait};

/// Slots: their number and the lease of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ConcurrentRule {
    pub(crate) limit: u64,
    pub(crate) lease: u64,
}

/// The state of a subject: the number of its slots in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct State {
    /// The number of slots in use. It is at least 1.
    pub count: u64,
}

impl State {
    /// Creates the state of a subject with `count` slots in use.
    #[must_use]
    pub const fn new(count: u64) -> Self {
        Self { count }
    }
}

impl ConcurrentRule {
    /// Returns the number of slots.
    #[must_use]
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// Returns the lease in microseconds.
    #[must_use]
    pub const fn lease_micros(&self) -> u64 {
        self.lease
    }
}

#[doc(hidden)]
impl Algorithm for ConcurrentRule {
    type State = State;

    const NAME: &'static str = "slots";

    fn limit(&self) -> u64 {
        self.limit
    }

    fn shape(&self) -> StateShape {
        StateShape::Concurrent
    }

    fn max_retention(&self) -> u64 {
        self.lease
    }

    fn wait(&self, state: Option<&State>, cost: u64, _now: u64) -> Wait {
        let Some(max_before) = self.limit.checked_sub(cost) else {
            return Wait::NEVER;
        };
        // A slot can become free at any time, or never if its holder renews it forever.
        if count(state) > max_before && cost > 0 { Wait::UNKNOWN } else { Wait::ZERO }
    }

    fn take(
        &self,
        state: Option<State>,
        cost: u64,
        _now: u64,
        _phase: impl FnOnce() -> u64,
    ) -> State {
        State { count: count(state.as_ref()).saturating_add(cost) }
    }

    fn chargeable(&self, state: Option<&State>, cost: u64, _now: u64) -> u64 {
        cost.min(MAX_EXACT.saturating_sub(count(state)))
    }

    fn refund(&self, State { count }: State, cost: u64, _now: u64) -> (Option<State>, u64) {
        let amount = cost.min(count);
        ((count > amount).then_some(State { count: count - amount }), amount)
    }

    /// Frees slots. Slots count until they are freed, so the time of the hold does not matter.
    fn undo(&self, state: &mut Option<State>, cost: u64, _take: Take, now: u64) -> Option<u64> {
        let (rest, amount) = self.refund((*state)?, cost, now);
        *state = rest;
        Some(amount)
    }

    /// Returns the number of free slots. The time of recovery is an upper bound: if no holder
    /// renews its slots, all slots are free after at most the lease.
    fn level(&self, state: Option<&State>, now: u64) -> Level {
        let recovers_at = if count(state) > 0 { now.saturating_add(self.lease) } else { now };
        Level::new(self.limit.saturating_sub(count(state)), recovers_at)
    }

    /// Slots in use never recover by themselves. The holds on the state say when they lapse.
    fn recovers_at(&self, _state: &State) -> u64 {
        u64::MAX
    }

    fn check(&self, &State { count }: &State) -> Result<(), String> {
        amount("its count is", count)
    }
}

fn count(state: Option<&State>) -> u64 {
    state.map_or(0, |state| state.count)
}
