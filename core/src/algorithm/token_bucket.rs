//! Token bucket with continuous refill, and GCRA, which is the same bucket in telecom terms.
//!
//! Admits iff `debt(t) + c ≤ B`: the debt is what is missing from a full bucket of capacity `B`, and
//! shrinks by `R` tokens per `P`. It is kept in units of `1/(P/gcd(R, P))` token, in which both a
//! token and the refill of one tick are whole numbers, so no fraction is ever lost. Sources:
//! J. Turner, "New directions in communications" (1986); ITU-T I.371, annex A, for GCRA, whose
//! emission interval is `P/R` and whose burst tolerance is `(B − 1)·P/R`.

use super::{Level, Unit};
use crate::time::{MAX_EXACT, Wait};

/// The numbers of a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TokenBucket {
    /// Tokens in a full bucket; `capacity · unit ≤ 2^52`.
    pub(crate) capacity: u64,
    /// Units in a token.
    pub(crate) unit: Unit,
    /// Units that come back in a tick.
    pub(crate) refill: u64,
    /// Microseconds in a tick.
    pub(crate) tick: u64,
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
        self.wait_at(self.at(state, now), cost, now)
    }

    /// The state after `cost` was taken, or `None` if the debt could no longer be told exactly.
    ///
    /// With a `cost` that [`wait`](Self::wait) admits this is never `None`. A reservation takes a
    /// cost that is admitted only later: the debt then exceeds the capacity for a while.
    #[must_use]
    #[inline(always)]
    pub fn take(&self, state: Option<State>, cost: u64, now: u64) -> Option<State> {
        self.take_at(self.at(state, now), cost, now)
    }

    /// The state after `cost` was given back; `None` when the bucket is full.
    #[must_use]
    pub fn give_back(&self, state: Option<State>, cost: u64, now: u64) -> Option<State> {
        let state = self.at(state, now)?;
        let debt = state.debt.saturating_sub(cost.saturating_mul(self.unit.get()));
        (debt > 0).then_some(State { debt, ..state })
    }

    /// Takes back what a take of `cost` at `at` has left. `false` if nothing is, and nothing changes.
    ///
    /// Without the take the bucket might have been full all the time since, and what came back since
    /// would have been lost. So that much of the cost is taken to have come back already.
    pub fn take_back(&self, state: &mut Option<State>, cost: u64, at: u64, now: u64) -> bool {
        let Some(State { time, debt }) = self.at(*state, now) else {
            return false;
        };
        // The state's clock, which may be ahead of `now`. What was taken at `at` left no older one.
        let Some(since) = self.ticks_up(time).checked_sub(self.ticks(at)) else {
            return false;
        };
        let taken = cost.saturating_mul(self.unit.get());
        let left = taken.saturating_sub(since.saturating_mul(self.refill));
        if left == 0 {
            return false;
        }
        let debt = debt.saturating_sub(left);
        *state = (debt > 0).then_some(State { time, debt });
        true
    }

    /// How many whole tokens there are, and when the bucket is full.
    #[must_use]
    #[inline(always)]
    pub fn level(&self, state: Option<State>, now: u64) -> Level {
        self.level_at(self.at(state, now), now)
    }

    /// When the state stops to matter.
    #[must_use]
    #[inline(always)]
    pub fn recovers_at(&self, state: State) -> u64 {
        self.later(state.time, state.debt)
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

    /// The state at `now`; `None` when the bucket is full. A clock behind the state stands at it.
    #[inline(always)]
    pub(crate) fn at(&self, state: Option<State>, now: u64) -> Option<State> {
        let state = state?;
        let since = self.ticks(now).saturating_sub(self.ticks_up(state.time));
        let debt = state.debt.saturating_sub(since.saturating_mul(self.refill));
        (debt > 0).then_some(State { time: self.floor(now).max(state.time), debt })
    }

    /// [`wait`](Self::wait) of a state that is at `now`, and so are these.
    #[inline(always)]
    pub(crate) fn wait_at(&self, state: Option<State>, cost: u64, now: u64) -> Wait {
        let Some(most_before) = self.capacity.checked_sub(cost) else {
            return Wait::NEVER;
        };
        let Some(State { time, debt }) = state else {
            return Wait::NOW;
        };
        let too_much = debt.saturating_sub(most_before * self.unit.get());
        if too_much == 0 {
            return Wait::NOW;
        }
        Wait::until(self.later(time, too_much), now)
    }

    #[inline(always)]
    pub(crate) fn take_at(&self, state: Option<State>, cost: u64, now: u64) -> Option<State> {
        let state = state.unwrap_or(State { time: self.floor(now), debt: 0 });
        let debt = cost.checked_mul(self.unit.get())?.checked_add(state.debt)?;
        (debt <= MAX_EXACT).then_some(State { debt, ..state })
    }

    #[inline(always)]
    pub(crate) fn level_at(&self, state: Option<State>, now: u64) -> Level {
        match state {
            Some(state) => {
                let left = (self.capacity * self.unit.get()).saturating_sub(state.debt);
                Level { remaining: self.unit.whole_in(left), recovers_at: self.recovers_at(state) }
            }
            None => Level { remaining: self.capacity, recovers_at: now },
        }
    }

    /// The tick that `now` is in, as a time.
    #[inline(always)]
    fn floor(&self, now: u64) -> u64 {
        self.ticks(now) * self.tick
    }

    /// When `units` have come back, counted from `time`.
    #[inline(always)]
    fn later(&self, time: u64, units: u64) -> u64 {
        let ticks = if self.refill == 1 { units } else { units.div_ceil(self.refill) };
        self.ticks_up(time).saturating_add(ticks).saturating_mul(self.tick)
    }

    /// Whole ticks up to a time. Most policies have a tick of 1 µs, and a division is not for free.
    #[inline(always)]
    fn ticks(&self, micros: u64) -> u64 {
        if self.tick == 1 { micros } else { micros / self.tick }
    }

    /// The same for the time of a state, which lies on the grid of ticks, unless it was written by a
    /// policy with finer ones.
    #[inline(always)]
    fn ticks_up(&self, micros: u64) -> u64 {
        if self.tick == 1 { micros } else { micros.div_ceil(self.tick) }
    }
}
