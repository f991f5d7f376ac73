//! Samples, their medians and ratios, in whole numbers.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::Outcome;

/// A figure in thousandths, such as a ratio of costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Thousandths(pub(crate) u64);

impl Thousandths {
    /// Ratio of two figures; `None` if `whole` is 0.
    pub(crate) fn of(part: u64, whole: u64) -> Option<Self> {
        part.checked_mul(1_000)?.checked_div(whole).map(Self)
    }

    /// Text with three decimals.
    pub(crate) fn exact(self) -> String {
        format!("{}.{:03}", self.0 / 1_000, self.0 % 1_000)
    }
}

impl fmt::Display for Thousandths {
    /// Text with two decimals, rounded to the nearest.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hundredths = (self.0 + 5) / 10;
        write!(f, "{}.{:02}", hundredths / 100, hundredths % 100)
    }
}

/// One measurement.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sample {
    pub(crate) per_second: u64,
    /// The server's CPU time for each decision, in nanoseconds.
    pub(crate) cpu: u64,
    /// Nanoseconds within which half of the calls were answered, and 99 of 100.
    pub(crate) p50: u64,
    pub(crate) p99: u64,
    /// Bytes of a key, if there is one.
    pub(crate) memory: Option<u64>,
}

impl Sample {
    pub(crate) fn new(
        decisions: usize,
        took: Duration,
        cpu: Duration,
        sorted_latencies: &[Duration],
        memory: Option<u64>,
    ) -> Outcome<Self> {
        let decisions = u64::try_from(decisions)?;
        let within = |percent: usize| {
            let place = sorted_latencies.len() * percent / 100;
            nanos(sorted_latencies.get(place).copied().unwrap_or_default())
        };
        Ok(Self {
            per_second: decisions.saturating_mul(1_000_000_000) / nanos(took)?.max(1),
            cpu: nanos(cpu)? / decisions.max(1),
            p50: within(50)?,
            p99: within(99)?,
            memory,
        })
    }
}

fn nanos(duration: Duration) -> Outcome<u64> {
    Ok(u64::try_from(duration.as_nanos())?)
}

/// All samples: one for each contender, number of callers and round.
#[derive(Debug)]
pub(crate) struct Results<Id>(BTreeMap<(Id, usize), Vec<Sample>>);

impl<Id: Copy + Ord + fmt::Debug> Results<Id> {
    pub(crate) fn new() -> Self {
        Self(BTreeMap::new())
    }

    pub(crate) fn add(&mut self, id: Id, callers: usize, sample: Sample) {
        self.0.entry((id, callers)).or_default().push(sample);
    }

    /// The median of one figure.
    pub(crate) fn median(
        &self,
        id: Id,
        callers: usize,
        figure: impl Fn(&Sample) -> u64,
    ) -> Outcome<u64> {
        Ok(middle(self.samples(id, callers)?.iter().map(figure).collect()))
    }

    /// Ratio of the CPU times per decision: the median over the rounds, as a slow round slows both.
    pub(crate) fn cpu_ratio(&self, one: (Id, usize), other: (Id, usize)) -> Outcome<Thousandths> {
        let (ones, others) = (self.samples(one.0, one.1)?, self.samples(other.0, other.1)?);
        let ratios: Option<Vec<Thousandths>> =
            ones.iter().zip(others).map(|(a, b)| Thousandths::of(a.cpu, b.cpu)).collect();
        let ratios = ratios.filter(|ratios| !ratios.is_empty());
        Ok(middle(ratios.ok_or("too few calls to measure the server's CPU time")?))
    }

    fn samples(&self, id: Id, callers: usize) -> Outcome<&[Sample]> {
        let samples = self.0.get(&(id, callers)).map(Vec::as_slice);
        samples.ok_or_else(|| format!("{id:?} was not measured at {callers} callers").into())
    }
}

/// Median; of an even number of figures the lower one of the middle two. There is at least one figure.
pub(crate) fn middle<T: Ord + Copy>(mut figures: Vec<T>) -> T {
    figures.sort_unstable();
    figures[(figures.len() - 1) / 2]
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
        assert_eq!(Thousandths::of(1, 3), Some(Thousandths(333)));
        assert_eq!(Thousandths::of(1, 0), None);
    }

    #[test]
    fn the_middle_is_not_moved_by_one_that_is_far_off() {
        assert_eq!(middle(vec![9_000, 1, 3, 2, 2]), 2);
        assert_eq!(middle(vec![2, 1]), 1);
        assert_eq!(middle(vec![7]), 7);
    }
}
