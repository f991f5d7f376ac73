//! What all algorithms have in common.

use super::shape::StateShape;
use crate::time::Wait;

/// An algorithm with the numbers of a policy. Times are microseconds since 1970.
pub trait Algorithm {
    /// What is kept for a subject. Without one, nothing is taken.
    type State: Clone;

    /// The algorithm's name in messages.
    const NAME: &'static str;

    /// Whether reservations are possible.
    const CAN_RESERVE: bool = false;

    /// The maximum that is ever admitted at one instant.
    fn limit(&self) -> u64;

    /// Microseconds in a tick, the resolution of the rule.
    fn tick(&self) -> u64 {
        1
    }

    /// The shape of the states.
    fn shape(&self) -> StateShape;

    /// Microseconds that a request counts for, with all that was taken at once.
    fn window(&self) -> u64 {
        self.max_retention()
    }

    /// The maximum number of microseconds until a state has recovered.
    fn max_retention(&self) -> u64;

    /// The maximum number of records of a state; 0 for all algorithms but logs.
    fn max_records(&self) -> u64 {
        0
    }

    /// How long until `cost` is admitted. Nothing else decides.
    fn wait(&self, state: Option<&Self::State>, cost: u64, now: u64) -> Wait;

    /// The state after `cost` was taken, which [`wait`](Self::wait) admits or [`can_reserve`](Self::can_reserve)
    /// allows. `phase` shifts the windows of a phased policy.
    fn take(
        &self,
        state: Option<Self::State>,
        cost: u64,
        now: u64,
        phase: impl FnOnce() -> u64,
    ) -> Self::State;

    /// The part of `cost` that can be charged beyond the limit: what the state can still hold.
    fn chargeable(&self, state: Option<&Self::State>, cost: u64, now: u64) -> u64;

    /// The state after `cost`, which is [`chargeable`](Self::chargeable), was charged beyond the limit.
    fn charge(
        &self,
        state: Option<Self::State>,
        cost: u64,
        now: u64,
        phase: impl FnOnce() -> u64,
    ) -> Self::State {
        self.take(state, cost, now, phase)
    }

    /// The state after `cost` was given back (`None` if nothing is left taken), and how much of it was, rounded down.
    fn give_back(&self, state: Self::State, cost: u64, now: u64) -> (Option<Self::State>, u64);

    /// Takes back what is left of a part of a take, `cost`, and returns how much that is, rounded down. Returns `None`,
    /// and changes nothing, if nothing is left of it.
    fn take_back(
        &self,
        state: &mut Option<Self::State>,
        cost: u64,
        take: Take,
        now: u64,
    ) -> Option<u64>;

    /// Returns `true` if [`take_back`](Self::take_back) does not search for a take at `at`,
    /// although the take may still count.
    fn is_out_of_reach(&self, _state: Option<&Self::State>, _at: u64, _now: u64) -> bool {
        false
    }

    /// How much is left, and when all is.
    fn level(&self, state: Option<&Self::State>, now: u64) -> Level;

    /// The time from which the state is indistinguishable from none.
    fn recovers_at(&self, state: &Self::State) -> u64;

    /// Whether `cost` can be reserved: the debt, which then exceeds the capacity for a while, is still represented
    /// exactly.
    fn can_reserve(&self, _state: Option<&Self::State>, _cost: u64, _now: u64) -> bool {
        false
    }

    /// Checks a state that comes from elsewhere.
    ///
    /// # Errors
    ///
    /// The value that no state of this rule has, and its bound.
    fn check(&self, state: &Self::State) -> Result<(), String>;
}

/// An algorithm whose state fits into two words. They are both 0 only for a state in which nothing is taken, and that
/// decides as no state does.
pub trait PackedAlgorithm: Algorithm<State: Copy> {
    /// The state in two words; `None` if it does not fit.
    fn pack(state: Self::State) -> Option<[u64; 2]>;

    /// The state in these words.
    fn unpack(words: [u64; 2]) -> Self::State;

    /// Whether the state after a charge to a policy always fits.
    fn always_fits(&self) -> bool {
        true
    }

    /// The state at `now`, if the functions below would otherwise each compute that.
    #[inline(always)]
    fn advance(&self, state: Self::State, _now: u64) -> Self::State {
        state
    }

    /// [`wait`](Algorithm::wait) of a state that was advanced to `now`.
    #[inline(always)]
    fn wait_advanced(&self, state: Self::State, cost: u64, now: u64) -> Wait {
        self.wait(Some(&state), cost, now)
    }

    /// [`take`](Algorithm::take) from a state that was advanced to `now`, of a cost that is admitted.
    #[inline(always)]
    fn take_advanced(
        &self,
        state: Self::State,
        cost: u64,
        now: u64,
        phase: impl FnOnce() -> u64,
    ) -> Self::State {
        self.take(Some(state), cost, now, phase)
    }

    /// [`level`](Algorithm::level) of a state that was advanced to `now`.
    #[inline(always)]
    fn level_advanced(&self, state: Self::State, now: u64) -> Level {
        self.level(Some(&state), now)
    }
}

/// A take of the past.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Take {
    /// When it was made: microseconds since 1970.
    pub at: u64,
    /// What was taken, at least 1.
    pub cost: u64,
}

impl Take {
    /// A take of `cost`.
    #[must_use]
    pub const fn new(at: u64, cost: u64) -> Self {
        Self { at, cost }
    }
}

/// How much of a limit is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Level {
    /// The maximum cost that would be admitted now, rounded down.
    pub remaining: u64,
    /// When the state will have recovered fully, if nothing more is taken; microseconds since 1970.
    pub recovers_at: u64,
}

impl Level {
    /// A level of `remaining`, until `recovers_at`.
    #[must_use]
    #[inline(always)]
    pub const fn new(remaining: u64, recovers_at: u64) -> Self {
        Self { remaining, recovers_at }
    }
}
