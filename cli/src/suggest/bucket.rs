//! The token bucket and GCRA, with the capacity `L` and a continuous refill of `L` in each window.

use super::scaled_up;

/// The bucket is full at the first request of a subject, and never holds more than its capacity
/// `L`. So request `j` is admitted if and only if, for every request `i` up to `j`, the sum
/// `S(i..j)` of the costs from `i` to `j` is at most the capacity plus the refill since the time
/// `t_i`. The window `W` is the time in which the bucket fills:
///
/// ```text
/// S(i..j) ≤ L + L·(t_j − t_i)/W      that is      L ≥ W · S(i..j) / (W + t_j − t_i)
/// ```
///
/// Let `P_j` be the sum of the costs up to request `j`. The smallest `L` for the requests from `i`
/// to `j` is `W` times the slope of the line from the point `(t_i − W, P_{i−1})` to the point
/// `(t_j, P_j)`. For a fixed `j`, the steepest of these lines touches the lower convex hull of the
/// points `(t_i − W, P_{i−1})`. So this type stores only the corners of the hull, and finds the
/// touched corner by a binary search.
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
    /// Adds a request. `before` is the sum of the costs before it.
    pub(super) fn record(&mut self, window: u64, time: u64, before: u64, cost: u64) {
        self.add(Corner { time, sum: before });
        let sum = before + cost;
        let Some(touched) = self.hull.get(self.touched(window, time, sum)) else {
            return;
        };
        let costs = u128::from(sum - touched.sum) * u128::from(window);
        self.limit = self.limit.max(scaled_up(costs, window + time - touched.time));
    }

    /// Returns the index of the corner of the hull from which the line to the point `(time, sum)`
    /// is steepest.
    ///
    /// Each edge of the hull, extended to `time`, passes below or above the point `(time, sum)`.
    /// The slopes of the edges increase, so the edges that pass below the point come first. The
    /// result is the corner after these edges.
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

    /// Adds a point to the hull, and removes corners so that the slopes of the edges increase.
    fn add(&mut self, new: Corner) {
        while let [.., from, to] = self.hull.as_slice() {
            let last = u128::from(to.sum - from.sum) * u128::from(new.time - to.time);
            let next = u128::from(new.sum - to.sum) * u128::from(to.time - from.time);
            if last < next {
                break;
            }
            self.hull.pop();
        }
        // If two points have the same time, the second point is higher. So it is not a corner of
        // the lower hull.
        if self.hull.last().is_none_or(|last| last.time < new.time) {
            self.hull.push(new);
        }
    }

    pub(super) fn limit(&self) -> u64 {
        self.limit
    }
}
