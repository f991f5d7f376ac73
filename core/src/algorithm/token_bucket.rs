//! Token bucket with continuous refill, and GCRA, which is the same bucket in telecom terms.
//!
//! Admits iff `debt(t) + c ≤ B`: the debt is what is missing from a full bucket of capacity `B`, and
//! shrinks by `R` tokens per `P`. It is kept in units of `1/(P/gcd(R, P))` token, in which both a
//! token and the refill of one tick are whole numbers, so no fraction is ever lost. Sources:
//! J. Turner, "New directions in communications" (1986); ITU-T I.371, annex A, for GCRA, whose
//! emission interval is `P/R` and whose burst tolerance is `(B − 1)·P/R`.

use std::num::NonZeroU64;

use super::{Level, Unit};
use crate::time::{MAX_EXACT, Wait};

/// The numbers of a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TokenBucket {
    /// Tokens in a full bucket.
    pub(crate) capacity: u64,
    /// The same in units, at most 2^52.
    pub(crate) full: u64,
    /// Units in a token.
    pub(crate) unit: Unit,
    /// Units that come back in a tick.
    pub(crate) refill: NonZeroU64,
    /// Microseconds in a tick.
    pub(crate) tick: NonZeroU64,
}

/// What is missing from a full bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct State {
    /// When the debt was as it stands here, microseconds since 1970.
    pub time: u64,
    /// The debt, in units.
    pub debt: u64,
}

impl TokenBucket {
    /// How long until `cost` is admitted.
    #[must_use]
    #[inline(always)]
    pub fn wait(&self, state: Option<State>, cost: u64, now: u64) -> Wait {
        self.wait_at(self.at_or_full(state, now), cost, now)
    }

    /// The state after `cost` was taken, or `None` if the debt could no longer be told exactly.
    ///
    /// With a `cost` that [`wait`](Self::wait) admits this is never `None`. A reservation takes a
    /// cost that is admitted only later: the debt then exceeds the capacity for a while.
    #[must_use]
    #[inline(always)]
    pub fn take(&self, state: Option<State>, cost: u64, now: u64) -> Option<State> {
        self.take_at(self.at_or_full(state, now), cost)
    }

    /// The state after `cost` was given back; `None` when the bucket is full.
    #[must_use]
    pub fn give_back(&self, state: Option<State>, cost: u64, now: u64) -> Option<State> {
        let state = self.at(state?, now);
        let debt = state.debt.saturating_sub(cost.saturating_mul(self.unit.get()));
        (debt > 0).then_some(State { debt, ..state })
    }

    /// Takes back what a take of `cost` at `at` has left. `false` if nothing is, and nothing changes.
    ///
    /// Without the take the debt would be lower by `min(c, the least debt since)`, as a full bucket
    /// loses what it is refilled with. Since the last write the least debt is that of now. Before, it
    /// was `c - R·(t - at)` at least, with `t` the time of the last write: so much is given back, and no
    /// more than the debt of now. That is exact if nothing was written since the take but other undos,
    /// which leave the time of the state alone.
    pub fn take_back(&self, state: &mut Option<State>, cost: u64, at: u64, now: u64) -> bool {
        let Some(written) = *state else {
            return false;
        };
        // What was taken at `at` left no older state.
        let Some(between) = self.ticks_up(written.time).checked_sub(self.ticks(at)) else {
            return false;
        };
        let taken = cost.saturating_mul(self.unit.get());
        let left = taken.saturating_sub(between.saturating_mul(self.refill.get()));
        let debt = self.at(written, now).debt;
        if left == 0 || debt == 0 {
            return false;
        }
        *state = (left < debt).then(|| State { debt: written.debt - left, ..written });
        true
    }

    /// How many whole tokens there are, and when the bucket is full.
    #[must_use]
    #[inline(always)]
    pub fn level(&self, state: Option<State>, now: u64) -> Level {
        self.level_at(self.at_or_full(state, now), now)
    }

    /// When the state stops to matter.
    #[must_use]
    #[inline(always)]
    pub fn recovers_at(&self, state: State) -> u64 {
        self.later(state.time, state.debt)
    }

    /// The microseconds in which so many tokens come back at least, rounded down to the tick.
    pub(crate) fn refill_time(&self, tokens: u64) -> u64 {
        let ticks = tokens.saturating_mul(self.unit.get()) / self.refill.get();
        ticks.saturating_mul(self.tick.get())
    }

    /// A state of this policy with another capacity or rate: what was used stays used.
    ///
    /// The debt goes over into this policy's units, rounded up: by less than one unit where the
    /// units are small enough to convert exactly, else to a whole token.
    #[must_use]
    pub fn adopt(&self, state: State, older: &Self) -> State {
        if self.unit == older.unit {
            return state;
        }
        let (older, unit) = (older.unit.get(), self.unit.get());
        let (tokens, fraction) = (state.debt / older, state.debt % older);
        let fraction = match fraction.checked_mul(unit) {
            Some(product) if product <= MAX_EXACT => product.div_ceil(older),
            _ => unit,
        };
        let debt = tokens.saturating_mul(unit).saturating_add(fraction).min(MAX_EXACT);
        State { debt, ..state }
    }

    /// The state at `now`. A clock behind the state stands at it.
    #[inline(always)]
    pub(crate) fn at(&self, State { time, debt }: State, now: u64) -> State {
        let (floor, ticks) = self.ticks_between(time, now);
        let debt = debt.saturating_sub(ticks.saturating_mul(self.refill.get()));
        State { time: floor.max(time), debt }
    }

    #[inline(always)]
    fn at_or_full(&self, state: Option<State>, now: u64) -> State {
        self.at(state.unwrap_or(State { time: 0, debt: 0 }), now)
    }

    /// [`wait`](Self::wait) of a state that is at `now`, and so are these.
    #[inline(always)]
    pub(crate) fn wait_at(&self, state: State, cost: u64, now: u64) -> Wait {
        if cost > self.capacity {
            return Wait::NEVER;
        }
        let too_much = state.debt.saturating_sub(self.full - cost * self.unit.get());
        if too_much == 0 {
            return Wait::ZERO;
        }
        Wait::until(self.later(state.time, too_much), now)
    }

    #[inline(always)]
    pub(crate) fn take_at(&self, state: State, cost: u64) -> Option<State> {
        let debt = state.debt.saturating_add(cost.saturating_mul(self.unit.get()));
        (debt <= MAX_EXACT).then_some(State { debt, ..state })
    }

    /// The same of what [`wait_at`](Self::wait_at) admits.
    #[inline(always)]
    pub(crate) fn take_admitted(&self, state: State, cost: u64) -> State {
        State { debt: state.debt + cost * self.unit.get(), ..state }
    }

    #[inline(always)]
    pub(crate) fn level_at(&self, state: State, now: u64) -> Level {
        let left = self.full.saturating_sub(state.debt);
        let recovers_at = if state.debt == 0 { now } else { self.recovers_at(state) };
        Level { remaining: self.unit.whole_tokens(left), recovers_at }
    }

    /// When `units` have come back, counted from `time`.
    #[inline(always)]
    fn later(&self, time: u64, units: u64) -> u64 {
        let ticks = match self.refill.get() {
            1 => units,
            refill => units.div_ceil(refill),
        };
        self.ticks_up(time).saturating_add(ticks).saturating_mul(self.tick.get())
    }

    /// The tick that `now` is in, as a time, and how many ticks it is since the time of a state.
    #[inline(always)]
    fn ticks_between(&self, time: u64, now: u64) -> (u64, u64) {
        // Asked once: most policies have such a tick.
        if self.tick == NonZeroU64::MIN {
            return (now, now.saturating_sub(time));
        }
        let ticks = self.ticks(now);
        (ticks * self.tick.get(), ticks.saturating_sub(self.ticks_up(time)))
    }

    /// Whole ticks up to a time. A division is not for free.
    #[inline(always)]
    fn ticks(&self, micros: u64) -> u64 {
        if self.tick == NonZeroU64::MIN { micros } else { micros / self.tick }
    }

    /// The same for the time of a state, which lies on the grid of ticks, unless it was written by a
    /// policy with finer ones.
    #[inline(always)]
    fn ticks_up(&self, micros: u64) -> u64 {
        if self.tick == NonZeroU64::MIN { micros } else { micros.div_ceil(self.tick.get()) }
    }
}
