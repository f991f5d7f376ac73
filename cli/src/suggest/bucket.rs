//! Token bucket and GCRA, with capacity `L` and a continuous refill of `L` in each window.

use super::scaled_up;

/// The bucket is full at a subject's first request, and at no request fuller than full. So request
/// `j` is admitted iff for every request `i` up to it the costs from `i` to `j` are at most what a
/// full bucket at `i` held and got since:
///
/// ```text
/// S(i..j) ≤ L + L·(t_j − t_i)/W      that is      L ≥ W · S(i..j) / (W + t_j − t_i)
/// ```
///
/// With `P` for the running sum of costs, the right side is `W` times the slope of the line from
/// the point `(t_i − W, P_{i−1})` to the point `(t_j, P_j)`. The steepest such line touches the
/// lower convex hull of the points, so that only the hull's corners are kept, and a binary search
/// finds the one it touches.
#[derive(Debug, Default)]
pub(super) struct Bucket {
    hull: Vec<Corner>,
    limit: u64,
}

/// The time of a request, and the sum of the costs before it.
#[derive(Clone, Copy, Debug)]
struct Corner {
    time: u64,
    sum: u64,
}

impl Bucket {
    /// Takes a request before which the costs add up to `before`.
    pub(super) fn record(&mut self, window: u64, time: u64, before: u64, cost: u64) {
        self.add(Corner { time, sum: before });
        let sum = before + cost;
        let Some(touched) = self.hull.get(self.touched(window, time, sum)) else {
            return;
        };
        let costs = u128::from(sum - touched.sum) * u128::from(window);
        self.limit = self.limit.max(scaled_up(costs, window + time - touched.time));
    }

    /// The corner that the steepest line to the point `(time, sum)` touches.
    ///
    /// Right of all corners, a later edge, made longer, passes above an earlier one. So the edges
    /// that pass below the point come first, and the line touches the corner behind them.
    fn touched(&self, window: u64, time: u64, sum: u64) -> usize {
        let (mut low, mut high) = (0, self.hull.len().saturating_sub(1));
        while low < high {
            let middle = low + (high - low) / 2;
            let edge = (self.hull.get(middle), self.hull.get(middle + 1));
            let (Some(from), Some(to)) = edge else {
                return middle;
            };
            let rise = u128::from(to.sum - from.sum) * u128::from(window + time - from.time);
            let needed = u128::from(sum - from.sum) * u128::from(to.time - from.time);
            if rise < needed {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Adds a point to the hull, whose edges get steeper from each to the next.
    fn add(&mut self, new: Corner) {
        while let [.., from, to] = self.hull.as_slice() {
            let last = u128::from(to.sum - from.sum) * u128::from(new.time - to.time);
            let next = u128::from(new.sum - to.sum) * u128::from(to.time - from.time);
            if last < next {
                break;
            }
            self.hull.pop();
        }
        // Of two at one time the earlier is lower, and the later no corner.
        if self.hull.last().is_none_or(|last| last.time < new.time) {
            self.hull.push(new);
        }
    }

    pub(super) fn limit(&self) -> u64 {
        self.limit
    }
}
