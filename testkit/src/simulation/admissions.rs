//! What was admitted, and the bounds that it keeps.

use std::time::Duration;

use super::time::micros;

/// An admission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct Admission {
    /// In microseconds since the simulation began, in true time.
    pub at: u64,
    /// What was taken.
    pub cost: u64,
}

/// What was admitted, in the order of time. Its methods find by how much a limit was used at most: by whole histories,
/// without any code of a limiter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admissions(Vec<Admission>);

impl Admissions {
    pub(super) fn new(admissions: impl Iterator<Item = Admission>) -> Self {
        let mut admissions: Vec<_> = admissions.collect();
        admissions.sort_unstable();
        Self(admissions)
    }

    /// All of them.
    #[must_use]
    pub fn all(&self) -> &[Admission] {
        &self.0
    }

    /// The sum of their costs.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().map(|it| it.cost).sum()
    }

    /// What was admitted in each window of this length, from the start of the simulation to the last window with an
    /// admission. Windows of a divisor of a day are those of a fixed window, as a simulation begins at midnight.
    #[must_use]
    pub fn in_windows(&self, window: Duration) -> Vec<u64> {
        let length = micros(window).max(1);
        let mut windows = vec![];
        for it in &self.0 {
            let index = usize::try_from(it.at / length).unwrap_or(usize::MAX);
            while windows.len() <= index {
                windows.push(0);
            }
            windows[index] += it.cost;
        }
        windows
    }

    /// The maximum that was admitted in any half-open time of this length.
    #[must_use]
    pub fn max_within(&self, time: Duration) -> u64 {
        let length = micros(time);
        let (mut first, mut sum, mut max) = (0, 0, 0);
        for it in &self.0 {
            sum += it.cost;
            while it.at - self.0[first].at >= length && self.0[first] < *it {
                sum -= self.0[first].cost;
                first += 1;
            }
            max = max.max(sum);
        }
        max
    }

    /// The minimum burst `B` with which `B + rate · t` were admitted at most in any time `t`, with the rate per second.
    #[must_use]
    pub fn burst_above(&self, rate: u64) -> u64 {
        // The debt of a bucket, in millionths.
        let (mut debt, mut last, mut max) = (0_u128, 0, 0);
        for it in &self.0 {
            debt = debt.saturating_sub(u128::from(rate) * u128::from(it.at - last));
            debt += u128::from(it.cost) * 1_000_000;
            (last, max) = (it.at, max.max(debt));
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
    fn the_burst_is_what_the_rate_does_not_explain() {
        // One in 10 us is 100,000 per second.
        let steady = at(&[(0, 1), (10, 1), (20, 1), (30, 1)]);
        assert_eq!(steady.burst_above(100_000), 1);
        assert_eq!(steady.burst_above(50_000), 3);
        assert_eq!(at(&[(0, 5), (10, 1), (90, 5)]).burst_above(100_000), 5);
    }
}
