//! Token bucket that refills by intervals: at the end of each period, `R` tokens are refilled.
//!
//! A cost `c` is admitted if and only if `debt(t) + c ≤ B`. The debt is the number of tokens that
//! are missing from a full bucket of capacity `B`. At the end of each period, the debt shrinks by
//! `R`. It is never below 0.
//!
//! The first period begins with the first charge to a full bucket. Each further period begins
//! exactly at the end of the previous period, until the bucket is full again. A request never
//! restarts a period.
//!
//! Source: J. Turner, "New directions in communications" (1986), which describes a counter that is
//! decremented periodically.

use std::num::NonZeroU64;

use super::check::{LAST, amount, at_most};
use super::shape::StateShape;
use super::traits::{Algorithm, Level, PackedAlgorithm, Take};
use crate::time::{MAX_EXACT, MAX_SPAN_MICROS, Wait};

/// A bucket that refills by intervals: its capacity, its refill and its period.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct IntervalBucketRule {
    pub(crate) capacity: u64,
    pub(crate) refill: NonZeroU64,
    pub(crate) period: NonZeroU64,
}

/// The state of a bucket that refills by intervals: the tokens that are missing from a full bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct State {
    /// The start of the current period, in microseconds since 1970.
    pub anchor: u64,
    /// The number of tokens that are missing from a full bucket.
    pub debt: u64,
}

impl State {
    /// Creates the state of a bucket with `debt` missing tokens, in a period that began at
    /// `anchor`.
    #[must_use]
    pub const fn new(anchor: u64, debt: u64) -> Self {
        Self { anchor, debt }
    }
}

impl IntervalBucketRule {
    /// Returns the number of tokens in a full bucket.
    #[must_use]
    pub const fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Returns the number of tokens that are added at the end of each period.
    #[must_use]
    pub const fn refill(&self) -> u64 {
        self.refill.get()
    }

    /// Returns the length of a period in microseconds.
    #[must_use]
    pub const fn period_micros(&self) -> u64 {
        self.period.get()
    }

    /// Returns the number of microseconds in which an empty bucket gets `tokens` tokens, rounded
    /// down to whole periods.
    pub(crate) fn refill_time(&self, tokens: u64) -> u64 {
        (tokens / self.refill.get()).saturating_mul(self.period.get())
    }

    /// Returns the maximum debt after a charge beyond the limit. The state represents a debt up to
    /// this maximum exactly, and the bucket refills it within [`MAX_SPAN`](crate::MAX_SPAN).
    pub(crate) fn max_debt(&self) -> u64 {
        (MAX_SPAN_MICROS / self.period).saturating_mul(self.refill.get()).min(MAX_EXACT)
    }

    /// Returns the state at `now`, or `None` if the bucket is full at `now`. If `now` is before the
    /// start of the period in the state, no tokens are refilled.
    #[inline]
    fn at(&self, state: Option<State>, now: u64) -> Option<State> {
        let state = state?;
        let periods = now.saturating_sub(state.anchor) / self.period;
        let debt = state.debt.saturating_sub(periods.saturating_mul(self.refill.get()));
        (debt > 0).then_some(State { anchor: state.anchor + periods * self.period.get(), debt })
    }

    /// Returns the time at which the bucket has refilled `tokens` tokens, if its current period
    /// began at `anchor`.
    #[inline]
    fn later(&self, anchor: u64, tokens: u64) -> u64 {
        anchor.saturating_add(tokens.div_ceil(self.refill.get()).saturating_mul(self.period.get()))
    }
}

#[doc(hidden)]
impl Algorithm for IntervalBucketRule {
    type State = State;

    const NAME: &'static str = "a bucket by intervals";
    const CAN_RESERVE: bool = true;

    fn limit(&self) -> u64 {
        self.capacity
    }

    fn shape(&self) -> StateShape {
        StateShape::IntervalBucket(self.period.get())
    }

    fn max_retention(&self) -> u64 {
        self.capacity.div_ceil(self.refill.get()) * self.period.get()
    }

    #[inline]
    fn wait(&self, state: Option<&State>, cost: u64, now: u64) -> Wait {
        let Some(max_before) = self.capacity.checked_sub(cost) else {
            return Wait::NEVER;
        };
        let Some(State { anchor, debt }) = self.at(state.copied(), now) else {
            return Wait::ZERO;
        };
        let excess = debt.saturating_sub(max_before);
        if excess == 0 {
            return Wait::ZERO;
        }
        Wait::between(now, self.later(anchor, excess))
    }

    #[inline]
    fn take(&self, state: Option<State>, cost: u64, now: u64, _: impl FnOnce() -> u64) -> State {
        let state = self.at(state, now).unwrap_or(State { anchor: now, debt: 0 });
        State { debt: state.debt.saturating_add(cost).min(MAX_EXACT), ..state }
    }

    fn chargeable(&self, state: Option<&State>, cost: u64, now: u64) -> u64 {
        let debt = self.at(state.copied(), now).map_or(0, |state| state.debt);
        cost.min(self.max_debt().saturating_sub(debt))
    }

    fn refund(&self, state: State, cost: u64, now: u64) -> (Option<State>, u64) {
        let Some(state) = self.at(Some(state), now) else { return (None, 0) };
        let amount = cost.min(state.debt);
        let debt = state.debt - amount;
        ((debt > 0).then_some(State { debt, ..state }), amount)
    }

    /// Refunds the charge, less the tokens that were refilled between the charge and the last write
    /// of the state. The undo of a [bucket with continuous refill](super::token_bucket) explains
    /// the reason.
    ///
    /// `anchor` is the start of the period in which the state was last written, and `at` is the
    /// time of the charge. Between the charge and the last write, the bucket was refilled at most
    /// `(anchor − at) / period` times, rounded up.
    fn undo(
        &self,
        state: &mut Option<State>,
        cost: u64,
        Take { at, cost: taken }: Take,
        now: u64,
    ) -> Option<u64> {
        let (written, current) = ((*state)?, self.at(*state, now)?);
        // A charge at the time `at` writes a state whose period ends after `at`. So if the period
        // of the stored state ends at `at` or earlier, the state does not contain the charge.
        if at.saturating_sub(written.anchor) >= self.period.get() {
            return None;
        }
        let refills = written.anchor.saturating_sub(at).div_ceil(self.period.get());
        let rest = cost.min(taken.saturating_sub(refills.saturating_mul(self.refill.get())));
        if rest == 0 {
            return None;
        }
        *state = (rest < current.debt).then(|| State { debt: written.debt - rest, ..written });
        Some(rest.min(current.debt))
    }

    #[inline]
    fn level(&self, state: Option<&State>, now: u64) -> Level {
        match self.at(state.copied(), now) {
            Some(state) => {
                Level::new(self.capacity.saturating_sub(state.debt), self.recovers_at(&state))
            }
            None => Level::new(self.capacity, now),
        }
    }

    #[inline]
    fn recovers_at(&self, state: &State) -> u64 {
        self.later(state.anchor, state.debt)
    }

    fn can_reserve(&self, state: Option<&State>, cost: u64, now: u64) -> bool {
        let debt = self.at(state.copied(), now).map_or(0, |state| state.debt);
        debt.saturating_add(cost) <= MAX_EXACT
    }

    fn check(&self, &State { anchor, debt }: &State) -> Result<(), String> {
        at_most("its period began at", anchor, LAST)?;
        amount("its debt in tokens is", debt)
    }
}

#[doc(hidden)]
impl PackedAlgorithm for IntervalBucketRule {
    #[inline(always)]
    fn pack(State { anchor, debt }: State) -> Option<[u64; 2]> {
        Some([anchor, debt])
    }

    #[inline(always)]
    fn unpack([anchor, debt]: [u64; 2]) -> State {
        State { anchor, debt }
    }
}
