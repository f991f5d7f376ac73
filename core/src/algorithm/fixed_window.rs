//! Fixed window: at most `limit` in each window.
//!
//! Admits iff `count + c ≤ L`, where `count` is what was taken in the current window. Windows are
//! half open: a request at the very end of one belongs to the next. Source: the oldest form of rate
//! limiting; its known weakness is that up to `2·L` may pass around a boundary.

use std::num::NonZeroU64;

use super::Level;
use crate::time::Wait;

/// Where windows begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Start {
    /// At multiples of the window since 1970, for everybody at once.
    Aligned,
    /// At multiples of the window, shifted by a phase of the subject's own, so that not everybody
    /// resets at the same instant.
    Phased,
    /// At the subject's first request after the last window ended.
    Anchored,
}

/// The numbers of a fixed window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FixedWindow {
    pub(crate) limit: u64,
    pub(crate) window: NonZeroU64,
    pub(crate) start: Start,
}

/// The current window: when it ends, and what was taken in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct State {
    /// When the window ends, microseconds since 1970.
    pub ends: u64,
    /// What was taken in it.
    pub count: u64,
}

impl FixedWindow {
    /// How long until `cost` is admitted.
    #[must_use]
    #[inline(always)]
    pub fn wait(&self, state: Option<State>, cost: u64, now: u64) -> Wait {
        let Some(max_before) = self.limit.checked_sub(cost) else {
            return Wait::NEVER;
        };
        match current(state, now) {
            Some(state) if state.count > max_before => Wait::until(state.ends, now),
            _ => Wait::ZERO,
        }
    }

    /// The state after `cost` was taken. `phase` shifts the windows of a [`Start::Phased`] policy.
    #[must_use]
    #[inline(always)]
    pub fn take(&self, state: Option<State>, cost: u64, now: u64, phase: u64) -> State {
        match current(state, now) {
            Some(state) => State { count: state.count.saturating_add(cost), ..state },
            None => State { ends: self.end_of_window_at(now, phase), count: cost },
        }
    }

    /// The state after `cost` was given back; `None` when nothing is left taken.
    #[must_use]
    pub fn give_back(&self, state: Option<State>, cost: u64, now: u64) -> Option<State> {
        let state = current(state, now)?;
        let count = state.count.saturating_sub(cost);
        (count > 0).then_some(State { count, ..state })
    }

    /// Takes back what a take of `cost` at `at` has left: all of it, in the window it was made in.
    /// `false` if that is over, and nothing changes.
    pub fn take_back(&self, state: &mut Option<State>, cost: u64, at: u64, now: u64) -> bool {
        let its_window = |it: &State| at < it.ends && it.ends - at <= self.window.get();
        let Some(current) = current(*state, now).filter(its_window) else {
            return false;
        };
        *state = self.give_back(Some(current), cost, now);
        true
    }

    /// How much is left of the current window, and when it ends.
    #[must_use]
    #[inline(always)]
    pub fn level(&self, state: Option<State>, now: u64) -> Level {
        match current(state, now) {
            Some(State { ends, count }) => {
                Level { remaining: self.limit.saturating_sub(count), recovers_at: ends }
            }
            None => Level { remaining: self.limit, recovers_at: now },
        }
    }

    /// When the state stops to matter.
    #[must_use]
    #[inline(always)]
    pub fn recovers_at(&self, state: State) -> u64 {
        state.ends
    }

    #[inline(always)]
    fn end_of_window_at(&self, now: u64, phase: u64) -> u64 {
        let into_window = match self.start {
            Start::Aligned => now % self.window,
            Start::Phased => (now + phase % self.window) % self.window,
            Start::Anchored => 0,
        };
        now + self.window.get() - into_window
    }
}

/// The state, unless its window has ended. A clock behind the window stays in it.
#[inline(always)]
fn current(state: Option<State>, now: u64) -> Option<State> {
    state.filter(|state| now < state.ends)
}
