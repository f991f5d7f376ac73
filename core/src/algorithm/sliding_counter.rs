//! Sliding counter: two fixed windows, the previous one weighted by how much of it still overlaps
//! the sliding window.
//!
//! Admits iff `prev·(W − e) + (cur + c)·W ≤ L·W`, where `e` is how far time is into the current
//! window; exactly, without ever rounding the weighted count. Source: the approximation of the
//! sliding log by two counters that Cloudflare described in 2017.

use std::num::NonZeroU64;

use super::Level;
use crate::time::Wait;

/// The numbers of a sliding counter. Windows are aligned to 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SlidingCounter {
    pub(crate) limit: u64,
    /// The window in ticks; `limit · window ≤ 2^52`.
    pub(crate) window: NonZeroU64,
    /// Microseconds in a tick.
    pub(crate) tick: NonZeroU64,
}

/// The current window and the one before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct State {
    /// When the current window ends, microseconds since 1970.
    pub ends: u64,
    /// What was taken in the window before it.
    pub previous: u64,
    /// What was taken in it.
    pub current: u64,
}

impl SlidingCounter {
    /// How long until `cost` is admitted.
    #[must_use]
    #[inline(always)]
    pub fn wait(&self, state: Option<State>, cost: u64, now: u64) -> Wait {
        let Some(max_before) = self.limit.checked_sub(cost) else {
            return Wait::NEVER;
        };
        let Some(State { ends, previous, current }) = self.roll(state, now) else {
            return Wait::ZERO;
        };
        // `prev·(W − e) ≤ (L − c − cur)·W`, or, where even `cur` is too much, the same one window
        // on, when `cur` has become `prev`.
        let (fading, room, ends) = match max_before.checked_sub(current) {
            Some(room) => (previous, room, ends),
            None => (current, max_before, ends + self.span()),
        };
        if fading.saturating_mul(self.left(ends, now)) <= room * self.window.get() {
            return Wait::ZERO;
        }
        let left_when_admitted = room * self.window.get() / fading;
        Wait::until(ends - left_when_admitted * self.tick.get(), now)
    }

    /// The state after `cost` was taken.
    #[must_use]
    #[inline(always)]
    pub fn take(&self, state: Option<State>, cost: u64, now: u64) -> State {
        match self.roll(state, now) {
            Some(state) => State { current: state.current.saturating_add(cost), ..state },
            None => {
                State { ends: now - now % self.span() + self.span(), previous: 0, current: cost }
            }
        }
    }

    /// The state after `cost` was given back, to the current window first and then to the one
    /// before; `None` when nothing is left taken.
    #[must_use]
    pub fn give_back(&self, state: Option<State>, cost: u64, now: u64) -> Option<State> {
        let State { ends, previous, current } = self.roll(state, now)?;
        let rest = cost.saturating_sub(current);
        let (previous, current) = (previous.saturating_sub(rest), current.saturating_sub(cost));
        (previous > 0 || current > 0).then_some(State { ends, previous, current })
    }

    /// Takes back what a take of `cost` at `at` has left, in whichever of the two windows that lies.
    /// `false` if it lies in neither, or nothing is taken there, and nothing changes.
    ///
    /// A clock behind the current window takes from that one, and what is taken back then is of the
    /// window before, if anything: it counts for less, and for a shorter time.
    pub fn take_back(&self, state: &mut Option<State>, cost: u64, at: u64, now: u64) -> bool {
        let Some(State { ends, previous, current }) = self.roll(*state, now) else {
            return false;
        };
        let before_the_end = ends.checked_sub(at).filter(|&span| span > 0);
        let (previous, current) = match before_the_end.map(|span| (span - 1) / self.span()) {
            Some(0) if current > 0 => (previous, current.saturating_sub(cost)),
            Some(1) if previous > 0 => (previous.saturating_sub(cost), current),
            _ => return false,
        };
        let is_left = previous > 0 || current > 0;
        *state = is_left.then_some(State { ends, previous, current });
        true
    }

    /// How much would be admitted now, and when both windows are past.
    #[must_use]
    #[inline(always)]
    pub fn level(&self, state: Option<State>, now: u64) -> Level {
        let Some(state) = self.roll(state, now) else {
            return Level { remaining: self.limit, recovers_at: now };
        };
        let faded = state.previous.saturating_mul(self.left(state.ends, now));
        let free = (self.limit * self.window.get()).saturating_sub(faded) / self.window;
        Level {
            remaining: free.saturating_sub(state.current),
            recovers_at: self.recovers_at(state),
        }
    }

    /// When the state stops to matter.
    #[must_use]
    #[inline(always)]
    pub fn recovers_at(&self, state: State) -> u64 {
        match state {
            State { ends, current: 1.., .. } => ends.saturating_add(self.span()),
            State { ends, previous: 1.., .. } => ends,
            _ => 0,
        }
    }

    /// The state in the window of `now`; `None` when nothing of it counts any more.
    #[inline(always)]
    fn roll(&self, state: Option<State>, now: u64) -> Option<State> {
        let state = state?;
        if now < state.ends {
            return Some(state);
        }
        let ends = state.ends.saturating_add(self.span());
        (now < ends && state.current > 0).then_some(State {
            ends,
            previous: state.current,
            current: 0,
        })
    }

    /// The window in microseconds.
    #[inline(always)]
    pub(crate) fn span(&self) -> u64 {
        self.window.get() * self.tick.get()
    }

    /// `W − e` in ticks, rounded up as `e` rounds down. A clock behind the window is at its start.
    #[inline(always)]
    fn left(&self, ends: u64, now: u64) -> u64 {
        (ends - now).div_ceil(self.tick.get()).min(self.window.get())
    }
}
