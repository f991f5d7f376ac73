//! The admissions of a simulation, and functions that compute the maximum usage of a limit.

use std::time::Duration;

use super::time::micros;

/// An admission of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct Admission {
    /// The true time of the admission, in microseconds since the simulation began.
    pub at: u64,
    /// The cost of the admitted request.
    pub cost: u64,
}

/// The admissions of a simulation, ordered by time. The methods compute the usage of a limit from
/// all admissions, and use no code of a limiter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admissions(Vec<Admission>);

impl Admissions {
    pub(super) fn new(admissions: impl Iterator<Item = Admission>) -> Self {
        let mut admissions: Vec<_> = admissions.collect();
        admissions.sort_unstable();
        Self(admissions)
    }

    /// Returns all admissions.
    #[must_use]
    pub fn all(&self) -> &[Admission] {
        &self.0
    }

    /// Returns the sum of the admitted costs.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().map(|admission| admission.cost).sum()
    }

    /// Returns the sum of the admitted costs in each window of the length `window`, up to the last
    /// window with an admission. A simulation begins at midnight. So if a day is a multiple of
    /// `window`, these windows are the windows of a fixed-window policy.
    #[must_use]
    pub fn in_windows(&self, window: Duration) -> Vec<u64> {
        let length = micros(window).max(1);
        let mut windows = vec![];
        for admission in &self.0 {
            let index = usize::try_from(admission.at / length).unwrap_or(usize::MAX);
            while windows.len() <= index {
                windows.push(0);
            }
            windows[index] += admission.cost;
        }
        windows
    }

    /// Returns the maximum sum of costs that were admitted in any half-open interval of the length
    /// `time`.
    #[must_use]
    pub fn max_within(&self, time: Duration) -> u64 {
        let length = micros(time);
        let (mut first, mut sum, mut max) = (0, 0, 0);
        for admission in &self.0 {
            sum += admission.cost;
            while admission.at - self.0[first].at >= length && self.0[first] < *admission {
                sum -= self.0[first].cost;
                first += 1;
            }
            max = max.max(sum);
        }
        max
    }

    /// Returns the smallest burst `B` with which a bucket that refills `rate` tokens per second
    /// admits all these admissions: in any interval of `t` seconds, at most `B + rate · t` was
    /// admitted.
    #[must_use]
    pub fn burst_above(&self, rate: u64) -> u64 {
        // The debt of a bucket that refills `rate` tokens per second, in millionths of a token.
        let (mut debt, mut last, mut max) = (0_u128, 0, 0);
        for admission in &self.0 {
            debt = debt.saturating_sub(u128::from(rate) * u128::from(admission.at - last));
            debt += u128::from(admission.cost) * 1_000_000;
            (last, max) = (admission.at, max.max(debt));
        }
        u64::try_from(max.div_ceil(1_000_000)).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(times: &[(u64, u64)]) -> Admissions {
        Admissions::new(times.iter().map(|&(at, cost)| Admission { at, cost }))
    }

    #[test]
    fn windows_are_half_open() {
        let some = at(&[(0, 1), (9, 2), (10, 4), (35, 5)]);
        assert_eq!(some.in_windows(Duration::from_micros(10)), [3, 4, 0, 5]);
        assert_eq!(some.max_within(Duration::from_micros(10)), 6);
        assert_eq!(some.max_within(Duration::from_micros(11)), 7);
        assert_eq!(some.max_within(Duration::from_micros(1)), 5);
        assert_eq!(at(&[(3, 1), (3, 1)]).max_within(Duration::from_micros(1)), 2);
    }

    #[test]
    fn the_burst_is_the_excess_over_the_rate() {
        // One admission per 10 µs is a rate of 100,000 admissions per second.
        let steady = at(&[(0, 1), (10, 1), (20, 1), (30, 1)]);
        assert_eq!(steady.burst_above(100_000), 1);
        assert_eq!(steady.burst_above(50_000), 3);
        assert_eq!(at(&[(0, 5), (10, 1), (90, 5)]).burst_above(100_000), 5);
    }
}
