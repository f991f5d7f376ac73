//! Token bucket with continuous refill. GCRA describes this bucket in the terms of
//! telecommunication.
//!
//! A cost `c` is admitted if and only if `debt(t) + c ≤ B`. The debt is the number of tokens that
//! are missing from a full bucket of capacity `B`. The debt shrinks continuously by `R` tokens per
//! period `P`. It is never below 0.
//!
//! The debt is stored in units. A token has `P/gcd(R, P)` units, so that a token and the refill of
//! one tick are whole numbers of units. No fraction is ever lost.
//!
//! Sources: J. Turner, "New directions in communications" (1986), describes the bucket. ITU-T
//! I.371, annex A, describes GCRA. The emission interval of GCRA is `P/R`, and the burst tolerance
//! is `(B − 1)·P/R`.

use std::num::NonZeroU64;

use super::check::{LAST, amount, at_most};
use super::shape::StateShape;
use super::traits::{Algorithm, Level, PackedAlgorithm, Take};
use super::unit::Unit;
use crate::time::{MAX_EXACT, MAX_SPAN_MICROS, Wait};

/// A bucket with continuous refill: its capacity, its refill and its tick.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TokenBucketRule {
    pub(crate) capacity: u64,
    /// The capacity in units. It is at most 2^52.
    pub(crate) full: u64,
    pub(crate) unit: Unit,
    pub(crate) refill: NonZeroU64,
    pub(crate) tick: NonZeroU64,
}

/// The state of a bucket with continuous refill: its debt at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct State {
    /// The time at which the bucket had the debt, in microseconds since 1970.
    pub time: u64,
    /// The debt, in the units of the policy that wrote the state.
    pub debt: u64,
}

impl State {
    /// Creates the state of a bucket from which `debt` units were missing at `time`.
    #[must_use]
    pub const fn new(time: u64, debt: u64) -> Self {
        Self { time, debt }
    }
}

impl TokenBucketRule {
    /// Returns the number of tokens in a full bucket.
    #[must_use]
    pub const fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Returns the number of units in a token.
    #[must_use]
    pub const fn unit(&self) -> u64 {
        self.unit.get()
    }

    /// Returns the number of units that are refilled in a tick.
    #[must_use]
    pub const fn refill(&self) -> u64 {
        self.refill.get()
    }

    /// Returns the number of microseconds in a tick.
    #[must_use]
    pub const fn tick_micros(&self) -> u64 {
        self.tick.get()
    }

    /// Returns the number of microseconds in which an empty bucket gets `tokens` tokens, rounded
    /// down to whole ticks.
    pub(crate) fn refill_time(&self, tokens: u64) -> u64 {
        let ticks = tokens.saturating_mul(self.unit.get()) / self.refill.get();
        ticks.saturating_mul(self.tick.get())
    }

    /// Returns the maximum debt after a charge beyond the limit, in units. The state represents a
    /// debt up to this maximum exactly, and the bucket refills it within
    /// [`MAX_SPAN`](crate::MAX_SPAN).
    pub(crate) fn max_debt(&self) -> u64 {
        (MAX_SPAN_MICROS / self.tick).saturating_mul(self.refill.get()).min(MAX_EXACT)
    }

    /// Converts a state that a policy with another capacity or another rate wrote. The number of
    /// used tokens stays the same.
    ///
    /// `older` is the number of units in a token of the other policy. The debt is converted into
    /// units of this policy, and rounded up. A fraction of a token becomes a whole token if the
    /// exact conversion would need a number above 2^52.
    #[doc(hidden)]
    #[must_use]
    pub fn adopt(&self, state: State, older: u64) -> State {
        let (older, unit) = (older.max(1), self.unit.get());
        if unit == older {
            return state;
        }
        let (tokens, fraction) = (state.debt / older, state.debt % older);
        let fraction = match fraction.checked_mul(unit) {
            Some(product) if product <= MAX_EXACT => product.div_ceil(older),
            _ => unit,
        };
        let debt = tokens.saturating_mul(unit).saturating_add(fraction).min(MAX_EXACT);
        State { debt, ..state }
    }

    /// Returns the state at `now`. If `now` is before the time of the state, nothing is refilled.
    #[inline(always)]
    fn at(&self, State { time, debt }: State, now: u64) -> State {
        let (floor, ticks) = self.ticks_between(time, now);
        let debt = debt.saturating_sub(ticks.saturating_mul(self.refill.get()));
        State { time: floor.max(time), debt }
    }

    #[inline(always)]
    fn at_or_full(&self, state: Option<&State>, now: u64) -> State {
        self.at(state.copied().unwrap_or(State { time: 0, debt: 0 }), now)
    }

    #[inline(always)]
    fn debt_after(&self, state: State, cost: u64) -> u64 {
        state.debt.saturating_add(cost.saturating_mul(self.unit.get()))
    }

    #[inline(always)]
    fn later(&self, time: u64, units: u64) -> u64 {
        let ticks = match self.refill.get() {
            1 => units,
            refill => units.div_ceil(refill),
        };
        self.ticks_up(time).saturating_add(ticks).saturating_mul(self.tick.get())
    }

    /// Returns the start of the tick that contains `now`, and the number of ticks from `time`, the
    /// time of a state, to this start.
    #[inline(always)]
    fn ticks_between(&self, time: u64, now: u64) -> (u64, u64) {
        // Most policies have a tick of one microsecond, which needs no division.
        if self.tick == NonZeroU64::MIN {
            return (now, now.saturating_sub(time));
        }
        let ticks = self.ticks(now);
        (ticks * self.tick.get(), ticks.saturating_sub(self.ticks_up(time)))
    }

    #[inline(always)]
    fn ticks(&self, micros: u64) -> u64 {
        if self.tick == NonZeroU64::MIN { micros } else { micros / self.tick }
    }

    /// Converts `micros`, the time of a state, into ticks, and rounds up. The time is between two
    /// ticks only if a policy with a finer tick wrote the state.
    #[inline(always)]
    fn ticks_up(&self, micros: u64) -> u64 {
        if self.tick == NonZeroU64::MIN { micros } else { micros.div_ceil(self.tick.get()) }
    }
}

#[doc(hidden)]
impl Algorithm for TokenBucketRule {
    type State = State;

    const NAME: &'static str = "a bucket with continuous refill";
    const CAN_RESERVE: bool = true;

    fn limit(&self) -> u64 {
        self.capacity
    }

    fn tick(&self) -> u64 {
        self.tick.get()
    }

    fn shape(&self) -> StateShape {
        StateShape::TokenBucket
    }

    fn max_retention(&self) -> u64 {
        self.full.div_ceil(self.refill.get()) * self.tick.get()
    }

    #[inline(always)]
    fn wait(&self, state: Option<&State>, cost: u64, now: u64) -> Wait {
        self.wait_advanced(self.at_or_full(state, now), cost, now)
    }

    #[inline(always)]
    fn take(&self, state: Option<State>, cost: u64, now: u64, _: impl FnOnce() -> u64) -> State {
        let state = self.at_or_full(state.as_ref(), now);
        State { debt: self.debt_after(state, cost).min(MAX_EXACT), ..state }
    }

    fn chargeable(&self, state: Option<&State>, cost: u64, now: u64) -> u64 {
        let debt = self.at_or_full(state, now).debt;
        cost.min(self.max_debt().saturating_sub(debt) / self.unit.get())
    }

    fn refund(&self, state: State, cost: u64, now: u64) -> (Option<State>, u64) {
        let state = self.at(state, now);
        let units = cost.saturating_mul(self.unit.get()).min(state.debt);
        let debt = state.debt - units;
        ((debt > 0).then_some(State { debt, ..state }), units / self.unit.get())
    }

    /// Returns an upper bound on the number of refunded tokens. If `amount` is below `cost`, the
    /// refund cleared the whole debt, which can include a fraction of a token. `amount` is rounded
    /// down, so the bound is then `amount + 1`.
    fn max_refund(&self, cost: u64, amount: u64) -> u64 {
        amount + u64::from(amount < cost)
    }

    /// Refunds the part of the charge that the bucket has not refilled since the charge.
    ///
    /// While a bucket is full, refill is lost. Therefore, if a part `c` of the charge had not been
    /// made, the debt would now be lower by `min(c, the minimum debt since the charge)`.
    ///
    /// Since the last write of the state, the minimum debt is the current debt. Between the charge
    /// and the last write, the minimum debt was at least `taken - R·(t - at)`. Here `taken` is the
    /// cost of the charge, `at` its time, and `t` the time of the last write. The undo refunds at
    /// most the lower of these two numbers.
    ///
    /// The refund is exact if only other undos have written the state since the charge, because an
    /// undo does not change the time of the state.
    fn undo(
        &self,
        state: &mut Option<State>,
        cost: u64,
        Take { at, cost: taken }: Take,
        now: u64,
    ) -> Option<u64> {
        let written = (*state)?;
        // A charge at the time `at` writes a state with the time `at` or a later time. So a state
        // with a time before `at` does not contain the charge.
        let between = self.ticks_up(written.time).checked_sub(self.ticks(at))?;
        let units = |tokens: u64| tokens.saturating_mul(self.unit.get());
        let owed = units(taken).saturating_sub(between.saturating_mul(self.refill.get()));
        let rest = units(cost).min(owed);
        let debt = self.at(written, now).debt;
        if rest == 0 || debt == 0 {
            return None;
        }
        *state = (rest < debt).then(|| State { debt: written.debt - rest, ..written });
        Some(rest.min(debt) / self.unit.get())
    }

    #[inline(always)]
    fn level(&self, state: Option<&State>, now: u64) -> Level {
        self.level_advanced(self.at_or_full(state, now), now)
    }

    #[inline(always)]
    fn recovers_at(&self, state: &State) -> u64 {
        self.later(state.time, state.debt)
    }

    fn can_reserve(&self, state: Option<&State>, cost: u64, now: u64) -> bool {
        self.debt_after(self.at_or_full(state, now), cost) <= MAX_EXACT
    }

    fn check(&self, &State { time, debt }: &State) -> Result<(), String> {
        at_most("the time of its debt is", time, LAST)?;
        amount("its debt in units is", debt)
    }
}

#[doc(hidden)]
impl PackedAlgorithm for TokenBucketRule {
    #[inline(always)]
    fn pack(State { time, debt }: State) -> Option<[u64; 2]> {
        Some([time, debt])
    }

    #[inline(always)]
    fn unpack([time, debt]: [u64; 2]) -> State {
        State { time, debt }
    }

    #[inline(always)]
    fn advance(&self, state: State, now: u64) -> State {
        self.at(state, now)
    }

    #[inline(always)]
    fn wait_advanced(&self, state: State, cost: u64, now: u64) -> Wait {
        if cost > self.capacity {
            return Wait::NEVER;
        }
        let excess = state.debt.saturating_sub(self.full - cost * self.unit.get());
        if excess == 0 {
            return Wait::ZERO;
        }
        Wait::between(now, self.later(state.time, excess))
    }

    #[inline(always)]
    fn take_advanced(&self, state: State, cost: u64, _: u64, _: impl FnOnce() -> u64) -> State {
        State { debt: state.debt + cost * self.unit.get(), ..state }
    }

    #[inline(always)]
    fn level_advanced(&self, state: State, now: u64) -> Level {
        let left = self.full.saturating_sub(state.debt);
        let recovers_at = if state.debt == 0 { now } else { self.recovers_at(&state) };
        Level::new(self.unit.whole_tokens(left), recovers_at)
    }
}
