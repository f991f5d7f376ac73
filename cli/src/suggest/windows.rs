//! The algorithms with windows that are aligned to 1970.

use super::scaled_up;

/// The fixed window admits a request with the cost `c` if and only if `count + c ≤ L`, where
/// `count` is the sum of the earlier costs in the window. So the smallest limit is the largest sum
/// of a window.
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

/// The sliding counter admits a request with the cost `c` if and only if `prev·(W − e) + (cur +
/// c)·W ≤ L·W`. `prev` and `cur` are the sums of the previous and of the current window, and `e` is
/// the time since the start of the current window.
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
