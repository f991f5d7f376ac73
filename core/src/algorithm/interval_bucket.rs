//! Token bucket that refills by intervals: `R` tokens at once, each time a whole period has passed.
//!
//! Admits iff `debt(t) + c ≤ B`. Periods are counted from the first charge to a full bucket, and go
//! on from there for as long as the bucket is not full again: no fraction of a period is ever lost,
//! whatever the times at which it is asked.

use std::num::NonZeroU64;

use super::Level;
use crate::time::{MAX_EXACT, Wait};

/// The numbers of a bucket that refills by intervals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct IntervalBucket {
    pub(crate) capacity: u64,
    pub(crate) refill: NonZeroU64,
    /// Microseconds between two refills.
    pub(crate) period: NonZeroU64,
}

/// What is missing from a full bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct State {
    /// When the current period began, microseconds since 1970.
    pub anchor: u64,
    /// The debt, in tokens.
    pub debt: u64,
}

impl IntervalBucket {
    /// How long until `cost` is admitted.
    #[must_use]
    #[inline]
    pub fn wait(&self, state: Option<State>, cost: u64, now: u64) -> Wait {
        let Some(max_before) = self.capacity.checked_sub(cost) else {
            return Wait::NEVER;
        };
        let Some(State { anchor, debt }) = self.at(state, now) else {
            return Wait::ZERO;
        };
        let too_much = debt.saturating_sub(max_before);
        if too_much == 0 {
            return Wait::ZERO;
        }
        Wait::until(self.later(anchor, too_much), now)
    }

    /// The state after `cost` was taken, or `None` if the debt could no longer be told exactly
    /// (as in [`TokenBucket::take`](super::token_bucket::TokenBucket::take)).
    #[must_use]
    #[inline]
    pub fn take(&self, state: Option<State>, cost: u64, now: u64) -> Option<State> {
        let state = self.at(state, now).unwrap_or(State { anchor: now, debt: 0 });
        let debt = state.debt.checked_add(cost)?;
        (debt <= MAX_EXACT).then_some(State { debt, ..state })
    }

    /// The state after `cost` was given back; `None` when the bucket is full.
    #[must_use]
    pub fn give_back(&self, state: Option<State>, cost: u64, now: u64) -> Option<State> {
        let state = self.at(state, now)?;
        let debt = state.debt.saturating_sub(cost);
        (debt > 0).then_some(State { debt, ..state })
    }

    /// Takes back what a take of `cost` at `at` has left. `false` if nothing is, and nothing changes.
    ///
    /// As with [continuous refill](super::token_bucket::TokenBucket::take_back), what came back between
    /// the take and the period of the last write is taken to be of this cost. Refills are a period apart
    /// at least, and the last of these came no later than that period began.
    pub fn take_back(&self, state: &mut Option<State>, cost: u64, at: u64, now: u64) -> bool {
        let (Some(written), Some(current)) = (*state, self.at(*state, now)) else {
            return false;
        };
        // What was taken at `at` left no older period.
        if at.saturating_sub(written.anchor) >= self.period.get() {
            return false;
        }
        let refills = written.anchor.saturating_sub(at).div_ceil(self.period.get());
        let left = cost.saturating_sub(refills.saturating_mul(self.refill.get()));
        if left == 0 {
            return false;
        }
        *state = (left < current.debt).then(|| State { debt: written.debt - left, ..written });
        true
    }

    /// How many tokens there are, and when the bucket is full.
    #[must_use]
    #[inline]
    pub fn level(&self, state: Option<State>, now: u64) -> Level {
        match self.at(state, now) {
            Some(state) => Level {
                remaining: self.capacity.saturating_sub(state.debt),
                recovers_at: self.recovers_at(state),
            },
            None => Level { remaining: self.capacity, recovers_at: now },
        }
    }

    /// When the state stops to matter.
    #[must_use]
    #[inline]
    pub fn recovers_at(&self, state: State) -> u64 {
        self.later(state.anchor, state.debt)
    }

    /// The microseconds in which so many tokens come back at least, rounded down to whole periods.
    pub(crate) fn refill_time(&self, tokens: u64) -> u64 {
        (tokens / self.refill.get()).saturating_mul(self.period.get())
    }

    /// The state at `now`; `None` when the bucket is full. A clock behind the anchor stands at it.
    #[inline]
    fn at(&self, state: Option<State>, now: u64) -> Option<State> {
        let state = state?;
        let periods = now.saturating_sub(state.anchor) / self.period;
        let debt = state.debt.saturating_sub(periods.saturating_mul(self.refill.get()));
        (debt > 0).then_some(State { anchor: state.anchor + periods * self.period.get(), debt })
    }

    /// When `tokens` have come back, counted from `anchor`.
    #[inline]
    fn later(&self, anchor: u64, tokens: u64) -> u64 {
        anchor.saturating_add(tokens.div_ceil(self.refill.get()).saturating_mul(self.period.get()))
    }
}
