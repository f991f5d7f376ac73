//! The functions of each algorithm.

use super::shape::StateShape;
use crate::time::Wait;

/// An algorithm with the numbers of a policy. All times are in microseconds since 1970.
pub trait Algorithm {
    /// The state of a subject under this algorithm. A subject without usage has no state.
    type State: Clone;

    /// The name of the algorithm in messages.
    const NAME: &'static str;

    /// Whether the algorithm supports reservations.
    const CAN_RESERVE: bool = false;

    /// Returns the maximum cost that the algorithm ever admits at one instant.
    fn limit(&self) -> u64;

    /// Returns the resolution of the rule: the number of microseconds in a tick.
    fn tick(&self) -> u64 {
        1
    }

    /// Returns the shape of the states under this algorithm.
    fn shape(&self) -> StateShape;

    /// Returns the time for which a charge of the whole limit counts, in microseconds.
    fn window(&self) -> u64 {
        self.max_retention()
    }

    /// Returns the maximum number of microseconds until a state has recovered.
    fn max_retention(&self) -> u64;

    /// Returns the maximum number of records in a state. The state of a log has records; all other
    /// states have none.
    fn max_records(&self) -> u64 {
        0
    }

    /// Returns the time until `cost` is admitted. Zero means that the cost is admitted now. No
    /// other function decides whether a cost is admitted.
    fn wait(&self, state: Option<&Self::State>, cost: u64, now: u64) -> Wait;

    /// Charges `cost` and returns the new state. Before the call, [`wait`](Self::wait) must have
    /// admitted the cost, or [`can_reserve`](Self::can_reserve) must have allowed a reservation.
    /// `phase` shifts the windows of a phased policy.
    fn take(
        &self,
        state: Option<Self::State>,
        cost: u64,
        now: u64,
        phase: impl FnOnce() -> u64,
    ) -> Self::State;

    /// Returns the part of `cost` that [`charge`](Self::charge) can charge beyond the limit: the
    /// whole cost, or less if the state could not represent the usage after the charge.
    fn chargeable(&self, state: Option<&Self::State>, cost: u64, now: u64) -> u64;

    /// Charges `cost` beyond the limit, and returns the new state. The cost must be
    /// [`chargeable`](Self::chargeable).
    fn charge(
        &self,
        state: Option<Self::State>,
        cost: u64,
        now: u64,
        phase: impl FnOnce() -> u64,
    ) -> Self::State {
        self.take(state, cost, now, phase)
    }

    /// Refunds `cost`. Returns the new state, or `None` if no usage remains. Also returns the
    /// refunded amount, rounded down.
    fn refund(&self, state: Self::State, cost: u64, now: u64) -> (Option<Self::State>, u64);

    /// Returns an upper bound on the cost that [`refund`](Self::refund) has refunded. `amount` is
    /// the amount that `refund` returned for `cost`, rounded down.
    fn max_refund(&self, _cost: u64, amount: u64) -> u64 {
        amount
    }

    /// Reverts the part `cost` of an earlier charge, as far as the charge still counts. `take`
    /// describes the charge. Returns the refunded amount, rounded down. Returns `None` and changes
    /// nothing if the charge no longer counts.
    fn undo(&self, state: &mut Option<Self::State>, cost: u64, take: Take, now: u64)
    -> Option<u64>;

    /// Returns `true` if a charge that was made at `at` possibly still counts, but
    /// [`undo`](Self::undo) cannot find it.
    fn is_out_of_reach(&self, _state: Option<&Self::State>, _at: u64, _now: u64) -> bool {
        false
    }

    /// Returns the remaining amount of a state, and the time of its recovery.
    fn level(&self, state: Option<&Self::State>, now: u64) -> Level;

    /// Returns the time at which the state recovers. From this time, decisions with the state are
    /// the same as decisions without it.
    fn recovers_at(&self, state: &Self::State) -> u64;

    /// Returns `true` if the state can represent its debt plus `cost` exactly. A reservation
    /// charges its cost immediately, so the debt can exceed the capacity for some time.
    fn can_reserve(&self, _state: Option<&Self::State>, _cost: u64, _now: u64) -> bool {
        false
    }

    /// Checks a state that comes from outside of the process.
    ///
    /// # Errors
    ///
    /// Returns a message if no state under this rule has these values. The message names the wrong
    /// value and its bound.
    fn check(&self, state: &Self::State) -> Result<(), String>;
}

/// An algorithm with a state that fits into two words. If both words are 0, the state has no usage,
/// and decides like a missing state.
pub trait PackedAlgorithm: Algorithm<State: Copy> {
    /// Packs the state into two words. Returns `None` if the state does not fit.
    fn pack(state: Self::State) -> Option<[u64; 2]>;

    /// Unpacks the state from two words.
    fn unpack(words: [u64; 2]) -> Self::State;

    /// Returns `true` if each state that the policy can write fits into two words.
    fn always_fits(&self) -> bool {
        true
    }

    /// Advances the state to `now`, so that the methods `*_advanced` of this trait need not advance
    /// it again. The default implementation returns the state unchanged.
    #[inline(always)]
    fn advance(&self, state: Self::State, _now: u64) -> Self::State {
        state
    }

    /// Like [`wait`](Algorithm::wait), for a state that was [advanced](Self::advance) to `now`.
    #[inline(always)]
    fn wait_advanced(&self, state: Self::State, cost: u64, now: u64) -> Wait {
        self.wait(Some(&state), cost, now)
    }

    /// Like [`take`](Algorithm::take), for a state that was [advanced](Self::advance) to `now`. The
    /// cost must be admitted.
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

    /// Like [`level`](Algorithm::level), for a state that was [advanced](Self::advance) to `now`.
    #[inline(always)]
    fn level_advanced(&self, state: Self::State, now: u64) -> Level {
        self.level(Some(&state), now)
    }
}

/// The time and the cost of an earlier charge. An undo reverts this charge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Take {
    /// The time of the charge, in microseconds since 1970.
    pub at: u64,
    /// The cost that was charged. It is at least 1.
    pub cost: u64,
}

impl Take {
    /// Creates the description of a charge of `cost` that was made at `at`.
    #[must_use]
    pub const fn new(at: u64, cost: u64) -> Self {
        Self { at, cost }
    }
}

/// The remaining amount of a state, and the time of its recovery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Level {
    /// The maximum cost that would be admitted now, rounded down.
    pub remaining: u64,
    /// The time at which the state recovers if nothing more is charged, in microseconds since 1970.
    pub recovers_at: u64,
}

impl Level {
    /// Creates a level from the remaining amount and the time of recovery.
    #[must_use]
    #[inline(always)]
    pub const fn new(remaining: u64, recovers_at: u64) -> Self {
        Self { remaining, recovers_at }
    }
}
