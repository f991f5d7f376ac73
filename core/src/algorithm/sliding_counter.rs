//! Sliding counter: at most about `L` in any window of length `W`. A state needs only two counts.
//!
//! A cost `c` is admitted if and only if `prev·(W − e) + (cur + c)·W ≤ L·W`. `cur` is the cost that
//! was charged in the current window, and `prev` the cost that was charged in the previous window.
//! `e` is the time since the current window began.
//!
//! Divided by `W`, the condition is `prev·(W−e)/W+cur+c≤L`: the previous window counts only for the
//! part that the sliding window still overlaps. The products are compared without a division, so
//! the weighted count is never rounded.
//!
//! The sliding counter approximates the [sliding log](super::sliding_log). It assumes that the
//! requests of the previous window were evenly distributed over that window.
//!
//! Source: Cloudflare described this approximation in 2017.

use std::num::NonZeroU64;

use super::check::{LAST, amount, at_most, multiple};
use super::shape::StateShape;
use super::traits::{Algorithm, Level, PackedAlgorithm, Take};
use crate::time::{MAX_EXACT, Wait};

/// A sliding counter: its limit, and the window in ticks. Windows begin at multiples of their
/// length since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SlidingCounterRule {
    pub(crate) limit: u64,
    /// The length of the window in ticks. The limit times this length is at most 2^52.
    pub(crate) window: NonZeroU64,
    pub(crate) tick: NonZeroU64,
}

/// The state of a subject under a sliding counter: the costs of the current and of the previous
/// window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct State {
    /// The end of the current window, in microseconds since 1970.
    pub ends: u64,
    /// The cost that was charged in the previous window.
    pub previous: u64,
    /// The cost that was charged in the current window.
    pub current: u64,
}

impl State {
    /// Creates the state of a window that ends at `ends`. `current` is the cost that was charged in
    /// this window, and `previous` the cost that was charged in the previous window.
    #[must_use]
    pub const fn new(ends: u64, previous: u64, current: u64) -> Self {
        Self { ends, previous, current }
    }
}

impl SlidingCounterRule {
    /// Returns the limit on the weighted cost of both windows.
    #[must_use]
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// Returns the length of the window in microseconds.
    #[must_use]
    #[inline(always)]
    pub const fn window_micros(&self) -> u64 {
        self.window.get() * self.tick.get()
    }

    /// Returns the length of the window in ticks.
    #[must_use]
    pub const fn window_ticks(&self) -> u64 {
        self.window.get()
    }

    /// Returns the number of microseconds in a tick.
    #[must_use]
    pub const fn tick_micros(&self) -> u64 {
        self.tick.get()
    }

    /// Returns the state at `now`. If the window of the state has ended, its count becomes the
    /// count of the previous window. Returns `None` if both counts are 0 or too old.
    #[inline(always)]
    fn roll(&self, state: Option<State>, now: u64) -> Option<State> {
        let state = state?;
        if now < state.ends {
            return Some(state);
        }
        let ends = state.ends.saturating_add(self.window_micros());
        (now < ends && state.current > 0).then_some(State {
            ends,
            previous: state.current,
            current: 0,
        })
    }

    /// Returns `W − e`, the time until the current window ends, in ticks and rounded up. The result
    /// is at most `W`, even if `now` is before the start of the window.
    #[inline(always)]
    fn left(&self, ends: u64, now: u64) -> u64 {
        (ends - now).div_ceil(self.tick.get()).min(self.window.get())
    }
}

#[doc(hidden)]
impl Algorithm for SlidingCounterRule {
    type State = State;

    const NAME: &'static str = "a sliding counter";

    fn limit(&self) -> u64 {
        self.limit
    }

    fn tick(&self) -> u64 {
        self.tick.get()
    }

    fn shape(&self) -> StateShape {
        StateShape::SlidingCounter(self.window_micros())
    }

    fn window(&self) -> u64 {
        self.window_micros()
    }

    fn max_retention(&self) -> u64 {
        2 * self.window_micros()
    }

    #[inline(always)]
    fn wait(&self, state: Option<&State>, cost: u64, now: u64) -> Wait {
        let Some(max_before) = self.limit.checked_sub(cost) else {
            return Wait::NEVER;
        };
        let Some(State { ends, previous, current }) = self.roll(state.copied(), now) else {
            return Wait::ZERO;
        };
        // The cost is admitted if `prev·(W − e) ≤ (L − c − cur)·W`. If `cur` exceeds `L − c`, the
        // current window cannot admit the cost. In the next window, the count `cur` becomes `prev`,
        // and the new `cur` is 0.
        let (fading, room, ends) = match max_before.checked_sub(current) {
            Some(room) => (previous, room, ends),
            None => (current, max_before, ends + self.window_micros()),
        };
        if fading.saturating_mul(self.left(ends, now)) <= room * self.window.get() {
            return Wait::ZERO;
        }
        let left_when_admitted = room * self.window.get() / fading;
        Wait::between(now, ends - left_when_admitted * self.tick.get())
    }

    #[inline(always)]
    fn take(&self, state: Option<State>, cost: u64, now: u64, _: impl FnOnce() -> u64) -> State {
        match self.roll(state, now) {
            Some(state) => State { current: state.current.saturating_add(cost), ..state },
            None => {
                let window = self.window_micros();
                State { ends: now - now % window + window, previous: 0, current: cost }
            }
        }
    }

    fn chargeable(&self, state: Option<&State>, cost: u64, now: u64) -> u64 {
        let current = self.roll(state.copied(), now).map_or(0, |state| state.current);
        cost.min(MAX_EXACT.saturating_sub(current))
    }

    fn refund(&self, state: State, cost: u64, now: u64) -> (Option<State>, u64) {
        let Some(State { ends, previous, current }) = self.roll(Some(state), now) else {
            return (None, 0);
        };
        let from_current = cost.min(current);
        let from_previous = (cost - from_current).min(previous);
        let (previous, current) = (previous - from_previous, current - from_current);
        let is_used = previous > 0 || current > 0;
        (is_used.then_some(State { ends, previous, current }), from_current + from_previous)
    }

    /// Refunds from the count of the window that contains `at`, the time of the charge.
    ///
    /// If the clock stepped back before the charge, `at` can be in the previous window, although
    /// the charge increased the count of the current window. The refund is then too small, because
    /// the count of the previous window has a lower weight and expires earlier.
    fn undo(
        &self,
        state: &mut Option<State>,
        cost: u64,
        Take { at, .. }: Take,
        now: u64,
    ) -> Option<u64> {
        let State { ends, previous, current } = self.roll(*state, now)?;
        let before_the_end = ends.checked_sub(at).filter(|&span| span > 0)?;
        let (from_previous, from_current) = match (before_the_end - 1) / self.window_micros() {
            0 if current > 0 => (0, cost.min(current)),
            1 if previous > 0 => (cost.min(previous), 0),
            _ => return None,
        };
        let (previous, current) = (previous - from_previous, current - from_current);
        let is_used = previous > 0 || current > 0;
        *state = is_used.then_some(State { ends, previous, current });
        Some(from_previous + from_current)
    }

    #[inline(always)]
    fn level(&self, state: Option<&State>, now: u64) -> Level {
        let Some(state) = self.roll(state.copied(), now) else {
            return Level::new(self.limit, now);
        };
        let faded = state.previous.saturating_mul(self.left(state.ends, now));
        let free = (self.limit * self.window.get()).saturating_sub(faded) / self.window;
        Level::new(free.saturating_sub(state.current), self.recovers_at(&state))
    }

    #[inline(always)]
    fn recovers_at(&self, state: &State) -> u64 {
        match *state {
            State { ends, current: 1.., .. } => ends.saturating_add(self.window_micros()),
            State { ends, previous: 1.., .. } => ends,
            _ => 0,
        }
    }

    fn check(&self, &State { ends, previous, current }: &State) -> Result<(), String> {
        let window = self.window_micros();
        at_most("its window ends at", ends, LAST + window)?;
        multiple("its window ends at", ends, window, "the window")?;
        at_most("its count of the previous window is", previous, MAX_EXACT)?;
        if previous > 0 {
            return at_most("its count is", current, MAX_EXACT);
        }
        amount("its count is", current)
    }
}

#[doc(hidden)]
impl PackedAlgorithm for SlidingCounterRule {
    #[inline(always)]
    fn pack(State { ends, previous, current }: State) -> Option<[u64; 2]> {
        Some([ends, two_halves(previous, current)?])
    }

    #[inline(always)]
    fn unpack([ends, counts]: [u64; 2]) -> State {
        let (previous, current) = (counts & u64::from(u32::MAX), counts >> u32::BITS);
        State { ends, previous, current }
    }

    fn always_fits(&self) -> bool {
        two_halves(self.limit, self.limit).is_some()
    }
}

#[inline(always)]
fn two_halves(low: u64, high: u64) -> Option<u64> {
    let fit = (low | high) >> u32::BITS == 0;
    fit.then_some(low | high << u32::BITS)
}
