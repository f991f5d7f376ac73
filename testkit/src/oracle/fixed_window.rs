//! The rules of a fixed window: the sum of the costs in the current window is at most the limit.

use tidegate_core::FixedWindow;
use tidegate_core::algorithm::fixed_window::Start;

use super::rules::{self, MAX_COUNT, Rules, Take, micros};

/// The end of a window, and the costs that were charged in the window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Past {
    ends: u64,
    costs: Vec<u64>,
}

#[derive(Debug)]
pub(super) struct Window {
    limit: u64,
    window: u64,
    start: Start,
    phase: u64,
}

impl Window {
    pub(super) fn new(spec: &FixedWindow, phase: u64) -> Self {
        Self { limit: spec.limit(), window: micros(spec.window()), start: spec.start(), phase }
    }

    /// Returns the current window of a key, or `None` if the recorded window has ended. If the
    /// clock has stepped back, the recorded window is still the current window.
    fn current(&self, past: &rules::Past, now: u64) -> Option<Past> {
        match past {
            rules::Past::FixedWindow(past) if now < past.ends => Some(past.clone()),
            _ => None,
        }
    }

    fn next_end(&self, now: u64) -> u64 {
        let shift = match self.start {
            Start::Aligned => 0,
            Start::Phased => self.phase % self.window,
            // An anchored window starts with its first charge.
            _ => return now + self.window,
        };
        // A window ends when `time + shift` is a multiple of the length of the window.
        ((now + shift) / self.window + 1) * self.window - shift
    }
}

impl Rules for Window {
    fn fits(&self, past: &rules::Past, cost: u64, now: u64) -> bool {
        let costs = self.current(past, now).map_or(vec![], |past| past.costs);
        sum(&costs) + u128::from(cost) <= u128::from(self.limit)
    }

    fn take(&self, past: &rules::Past, cost: u64, now: u64) -> rules::Past {
        let mut past =
            self.current(past, now).unwrap_or(Past { ends: self.next_end(now), costs: vec![] });
        past.costs.push(cost);
        rules::Past::FixedWindow(past)
    }

    fn room(&self, past: &rules::Past, now: u64) -> u64 {
        let taken = self.current(past, now).map_or(0, |past| sum(&past.costs));
        u64::try_from(u128::from(MAX_COUNT).saturating_sub(taken)).unwrap_or(0)
    }

    fn refund(&self, past: &rules::Past, cost: u64, now: u64) -> (rules::Past, u64) {
        let Some(past) = self.current(past, now) else {
            return (rules::Past::Nothing, 0);
        };
        let before = sum(&past.costs);
        let left = before.saturating_sub(u128::from(cost));
        let amount = u64::try_from(before - left).unwrap_or(u64::MAX);
        match u64::try_from(left) {
            Ok(0) | Err(_) => (rules::Past::Nothing, amount),
            Ok(count) => (rules::Past::FixedWindow(Past { costs: vec![count], ..past }), amount),
        }
    }

    fn undo(
        &self,
        past: &rules::Past,
        cost: u64,
        take: Take,
        now: u64,
    ) -> Option<(rules::Past, u64)> {
        let current = self.current(past, now)?;
        let window = current.ends.saturating_sub(self.window)..current.ends;
        // A fixed window does not record its charges separately, so an undo has the effect of a
        // refund.
        window.contains(&take.at).then(|| self.refund(past, cost, now))
    }

    fn recovers_at(&self, past: &rules::Past) -> u64 {
        match past {
            rules::Past::FixedWindow(past) => past.ends,
            _ => 0,
        }
    }
}

fn sum(costs: &[u64]) -> u128 {
    costs.iter().map(|&cost| u128::from(cost)).sum()
}
