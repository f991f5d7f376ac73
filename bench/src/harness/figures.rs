//! Computes ratios, medians and times in whole numbers.

use std::fmt;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::Outcome;

/// A figure in thousandths, such as a ratio of costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Thousandths(pub(crate) u64);

impl Thousandths {
    pub(crate) fn ratio(part: u64, whole: u64) -> Option<Self> {
        part.checked_mul(1_000)?.checked_div(whole).map(Self)
    }

    pub(crate) fn exact(self) -> String {
        format!("{}.{:03}", self.0 / 1_000, self.0 % 1_000)
    }
}

impl fmt::Display for Thousandths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hundredths = (self.0 + 5) / 10;
        write!(f, "{}.{:02}", hundredths / 100, hundredths % 100)
    }
}

/// Returns the median: the lower of the two middle figures if their number is even.
pub(crate) fn middle<T: Ord + Copy>(mut figures: Vec<T>) -> T {
    figures.sort_unstable();
    figures[(figures.len() - 1) / 2]
}

/// Returns a percentile of sorted figures, or the default if there are none.
pub(crate) fn percentile<T: Copy + Default>(sorted: &[T], percent: usize) -> T {
    let place = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
    sorted.get(place).copied().unwrap_or_default()
}

pub(crate) fn nanos(duration: Duration) -> Outcome<u64> {
    Ok(u64::try_from(duration.as_nanos())?)
}

/// Returns the CPU time of this thread, so that other work on the machine does not count.
pub(crate) fn thread_time() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime).try_into().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousandths_are_printed_to_the_nearest_hundredth() {
        for (thousandths, text) in [(0, "0.00"), (604, "0.60"), (605, "0.61"), (12_345, "12.35")] {
            assert_eq!(Thousandths(thousandths).to_string(), text);
        }
        assert_eq!(Thousandths(1_042).exact(), "1.042");
        assert_eq!(Thousandths::ratio(1, 3), Some(Thousandths(333)));
        assert_eq!(Thousandths::ratio(1, 0), None);
    }

    #[test]
    fn the_middle_is_not_moved_by_one_that_is_far_off() {
        assert_eq!(middle(vec![9_000, 1, 3, 2, 2]), 2);
        assert_eq!(middle(vec![2, 1]), 1);
        assert_eq!(middle(vec![7]), 7);
    }

    #[test]
    fn a_percentile_is_one_of_the_figures() {
        let sorted: Vec<u64> = (0..200).collect();
        assert_eq!(
            [0, 50, 99, 100].map(|percent| percentile(&sorted, percent)),
            [0, 100, 198, 199]
        );
        assert_eq!(percentile::<u64>(&[], 50), 0);
    }
}
