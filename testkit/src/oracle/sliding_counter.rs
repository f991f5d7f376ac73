//! The rules of a sliding counter. The cost of the current window counts fully, and the cost of the
//! previous window counts in part. For example, when a quarter of the current window has passed,
//! three quarters of the previous window's cost count.

use tidegate_core::SlidingCounter;

use super::rules::{self, MAX_COUNT, Rules, Take, micros};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Past {
    ends: u64,
    previous: u64,
    current: u64,
}

#[derive(Debug)]
pub(super) struct Counter {
    limit: u64,
    window: u64,
    tick: u64,
}

impl Counter {
    pub(super) fn new(spec: &SlidingCounter, tick: u64) -> Self {
        Self { limit: spec.limit(), window: micros(spec.window()), tick }
    }

    /// Returns the costs of the windows that are the current and the previous window at `now`, or
    /// `None` if no cost counts any more.
    fn rolled(&self, past: &rules::Past, now: u64) -> Option<Past> {
        let rules::Past::SlidingCounter(past) = past else {
            return None;
        };
        if now < past.ends {
            return Some(past.clone());
        }
        let rolled = Past { ends: past.ends + self.window, previous: past.current, current: 0 };
        (now < rolled.ends && rolled.previous > 0).then_some(rolled)
    }
}

impl Rules for Counter {
    fn fits(&self, past: &rules::Past, cost: u64, now: u64) -> bool {
        let Some(past) = self.rolled(past, now) else {
            return cost <= self.limit;
        };
        // The window and the elapsed time are in ticks. If the clock has stepped back to before the
        // window, the elapsed time is 0.
        let window = u128::from(self.window / self.tick);
        let start = past.ends - self.window;
        let elapsed = u128::from(now.saturating_sub(start) / self.tick);
        let (previous, current) = (u128::from(past.previous), u128::from(past.current));
        previous * (window - elapsed) + (current + u128::from(cost)) * window
            <= u128::from(self.limit) * window
    }

    fn take(&self, past: &rules::Past, cost: u64, now: u64) -> rules::Past {
        let mut past = self.rolled(past, now).unwrap_or(Past {
            ends: (now / self.window + 1) * self.window,
            previous: 0,
            current: 0,
        });
        past.current += cost;
        rules::Past::SlidingCounter(past)
    }

    fn room(&self, past: &rules::Past, now: u64) -> u64 {
        MAX_COUNT.saturating_sub(self.rolled(past, now).map_or(0, |past| past.current))
    }

    fn refund(&self, past: &rules::Past, cost: u64, now: u64) -> (rules::Past, u64) {
        let Some(mut past) = self.rolled(past, now) else {
            return (rules::Past::Nothing, 0);
        };
        let before = past.current + past.previous;
        let from_current = cost.min(past.current);
        past.current -= from_current;
        past.previous -= (cost - from_current).min(past.previous);
        let amount = before - past.current - past.previous;
        if past.current == 0 && past.previous == 0 {
            (rules::Past::Nothing, amount)
        } else {
            (rules::Past::SlidingCounter(past), amount)
        }
    }

    fn undo(
        &self,
        past: &rules::Past,
        cost: u64,
        take: Take,
        now: u64,
    ) -> Option<(rules::Past, u64)> {
        let before = self.rolled(past, now)?;
        let start = before.ends - self.window;
        let mut after = before.clone();
        if (start..before.ends).contains(&take.at) {
            after.current -= cost.min(after.current);
        } else if (start.saturating_sub(self.window)..start).contains(&take.at) {
            after.previous -= cost.min(after.previous);
        }
        let amount = (before.current + before.previous) - (after.current + after.previous);
        if after == before {
            None
        } else if after.current == 0 && after.previous == 0 {
            Some((rules::Past::Nothing, amount))
        } else {
            Some((rules::Past::SlidingCounter(after), amount))
        }
    }

    fn recovers_at(&self, past: &rules::Past) -> u64 {
        match past {
            // The cost of the current window counts until the end of the next window.
            rules::Past::SlidingCounter(past) if past.current > 0 => past.ends + self.window,
            rules::Past::SlidingCounter(past) if past.previous > 0 => past.ends,
            _ => 0,
        }
    }
}
