//! The two algorithms that count by windows aligned to the epoch.

use super::scaled_up;

/// Fixed window: admits iff `count + c ≤ L`, so the limit is the largest sum of a window.
#[derive(Debug, Default)]
pub(super) struct Fixed {
    index: u64,
    count: u64,
    limit: u64,
}

impl Fixed {
    pub(super) fn record(&mut self, window: u64, time: u64, cost: u64) {
        let index = time / window;
        if index != self.index {
            self.index = index;
            self.count = 0;
        }
        self.count += cost;
        self.limit = self.limit.max(self.count);
    }

    pub(super) fn limit(&self) -> u64 {
        self.limit
    }
}

/// Sliding counter: admits iff `prev·(W − e) + (cur + c)·W ≤ L·W`, `e` into the window.
#[derive(Debug, Default)]
pub(super) struct Counter {
    index: u64,
    previous: u64,
    current: u64,
    limit: u64,
}

impl Counter {
    pub(super) fn record(&mut self, window: u64, time: u64, cost: u64) {
        let (index, into) = (time / window, time % window);
        if index != self.index {
            self.previous = if index - 1 == self.index { self.current } else { 0 };
            self.current = 0;
            self.index = index;
        }
        self.current += cost;
        let weighed = u128::from(self.previous) * u128::from(window - into)
            + u128::from(self.current) * u128::from(window);
        self.limit = self.limit.max(scaled_up(weighed, window));
    }

    pub(super) fn limit(&self) -> u64 {
        self.limit
    }
}
