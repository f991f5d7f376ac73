//! Fixed window: at most `L` in each window of length `W`.
//!
//! A cost `c` is admitted if and only if `count + c ≤ L`, where `count` is the cost that was
//! charged in the current window. Windows are half open: a request at the exact end of a window
//! belongs to the next window.
//!
//! [`Start`] says when windows start. Neighboring windows are independent, so up to `2·L` can be
//! admitted in a short time around the end of a window. A [sliding log](super::sliding_log) never
//! admits more than `L` in such a time.
//!
//! Source: folklore. A counter that is reset at fixed times is the oldest form of rate limiting.

use std::num::NonZeroU64;

use super::check::{LAST, amount, at_most, multiple};
pub use super::shape::Start;
use super::shape::StateShape;
use super::traits::{Algorithm, Level, PackedAlgorithm, Take};
use crate::time::{MAX_EXACT, Wait};

/// A fixed window: its limit, its length and its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FixedWindowRule {
    pub(crate) limit: u64,
    pub(crate) window: NonZeroU64,
    pub(crate) start: Start,
}

/// The state of a subject under a fixed window: the current window and its count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct State {
    /// The end of the current window, in microseconds since 1970.
    pub ends: u64,
    /// The cost that was charged in the current window.
    pub count: u64,
}

impl State {
    /// Creates the state of a window that ends at `ends` and in which `count` was charged.
    #[must_use]
    pub const fn new(ends: u64, count: u64) -> Self {
        Self { ends, count }
    }
}

impl FixedWindowRule {
    /// Returns the limit per window.
    #[must_use]
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// Returns the length of the window in microseconds.
    #[must_use]
    pub const fn window_micros(&self) -> u64 {
        self.window.get()
    }

    /// Returns the rule that says when a window starts.
    #[must_use]
    pub const fn start(&self) -> Start {
        self.start
    }

    #[inline(always)]
    fn end_of_window_at(&self, now: u64, phase: impl FnOnce() -> u64) -> u64 {
        let into_window = match self.start {
            Start::Aligned => now % self.window,
            Start::Phased => (now + phase() % self.window) % self.window,
            Start::Anchored => 0,
        };
        now + self.window.get() - into_window
    }
}

#[doc(hidden)]
impl Algorithm for FixedWindowRule {
    type State = State;

    const NAME: &'static str = "a fixed window";

    fn limit(&self) -> u64 {
        self.limit
    }

    fn shape(&self) -> StateShape {
        StateShape::FixedWindow(self.start, self.window.get())
    }

    fn max_retention(&self) -> u64 {
        self.window.get()
    }

    #[inline(always)]
    fn wait(&self, state: Option<&State>, cost: u64, now: u64) -> Wait {
        let Some(max_before) = self.limit.checked_sub(cost) else {
            return Wait::NEVER;
        };
        match current(state.copied(), now) {
            Some(state) if state.count > max_before => Wait::between(now, state.ends),
            _ => Wait::ZERO,
        }
    }

    #[inline(always)]
    fn take(
        &self,
        state: Option<State>,
        cost: u64,
        now: u64,
        phase: impl FnOnce() -> u64,
    ) -> State {
        match current(state, now) {
            Some(state) => State { count: state.count.saturating_add(cost), ..state },
            None => State { ends: self.end_of_window_at(now, phase), count: cost },
        }
    }

    fn chargeable(&self, state: Option<&State>, cost: u64, now: u64) -> u64 {
        let count = current(state.copied(), now).map_or(0, |state| state.count);
        cost.min(MAX_EXACT.saturating_sub(count))
    }

    fn refund(&self, state: State, cost: u64, now: u64) -> (Option<State>, u64) {
        let Some(state) = current(Some(state), now) else { return (None, 0) };
        let amount = cost.min(state.count);
        let count = state.count - amount;
        ((count > 0).then_some(State { count, ..state }), amount)
    }

    /// Refunds the cost if the charge was made in the current window. A charge counts in full until
    /// its window ends, and not at all afterwards.
    fn undo(
        &self,
        state: &mut Option<State>,
        cost: u64,
        Take { at, .. }: Take,
        now: u64,
    ) -> Option<u64> {
        let has_charge = |state: &State| at < state.ends && state.ends - at <= self.window.get();
        let current = current(*state, now).filter(has_charge)?;
        let (rest, amount) = self.refund(current, cost, now);
        *state = rest;
        Some(amount)
    }

    #[inline(always)]
    fn level(&self, state: Option<&State>, now: u64) -> Level {
        match current(state.copied(), now) {
            Some(State { ends, count }) => Level::new(self.limit.saturating_sub(count), ends),
            None => Level::new(self.limit, now),
        }
    }

    #[inline(always)]
    fn recovers_at(&self, state: &State) -> u64 {
        state.ends
    }

    fn check(&self, &State { ends, count }: &State) -> Result<(), String> {
        let window = self.window.get();
        at_most("its window ends at", ends, LAST + window)?;
        if self.start == Start::Aligned {
            multiple("its window ends at", ends, window, "the window")?;
        }
        amount("its count is", count)
    }
}

#[doc(hidden)]
impl PackedAlgorithm for FixedWindowRule {
    #[inline(always)]
    fn pack(State { ends, count }: State) -> Option<[u64; 2]> {
        Some([ends, count])
    }

    #[inline(always)]
    fn unpack([ends, count]: [u64; 2]) -> State {
        State { ends, count }
    }
}

/// Returns the state if its window has not ended. If the clock steps back to a time before this
/// window, the window stays the current window.
#[inline(always)]
fn current(state: Option<State>, now: u64) -> Option<State> {
    state.filter(|state| now < state.ends)
}
