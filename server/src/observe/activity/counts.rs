use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::SECONDS;

/// The outcome of a decision, as the page counts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Admitted,
    Refused,
    /// The request was admitted, but a limit in shadow denied it.
    Shadow,
    /// The request was not decided, for example because the store failed.
    Failed,
}

impl Kind {
    pub(super) const ALL: [Self; 4] = [Self::Admitted, Self::Refused, Self::Shadow, Self::Failed];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Admitted => "admitted",
            Self::Refused => "refused",
            Self::Shadow => "shadow",
            Self::Failed => "failed",
        }
    }
}

/// The number of decisions of each kind since the start.
#[derive(Debug, Default)]
pub(super) struct Counts([AtomicU64; Kind::ALL.len()]);

impl Counts {
    pub(super) fn count(&self, kind: Kind) {
        self.0[kind as usize].fetch_add(1, Ordering::Relaxed);
    }
}

/// The number of decisions of each kind in each of the last [`SECONDS`] samples.
#[derive(Debug, Default)]
pub(super) struct History([Series; Kind::ALL.len()]);

impl History {
    /// Appends a sample: the decisions that were counted since the previous sample.
    pub(super) fn push(&mut self, counts: &Counts) {
        for (series, count) in self.0.iter_mut().zip(&counts.0) {
            series.push(count.load(Ordering::Relaxed));
        }
    }

    pub(super) fn series(&self, kind: Kind) -> &Series {
        &self.0[kind as usize]
    }

    /// Returns the number of decisions of all kinds in the last [`SECONDS`] samples.
    pub(super) fn sum(&self) -> u64 {
        self.0.iter().map(Series::sum).sum()
    }
}

/// The increments of a counter from sample to sample, for the last [`SECONDS`] samples, the oldest
/// first.
#[derive(Debug, Default)]
pub(super) struct Series {
    total: u64,
    increments: VecDeque<u64>,
}

impl Series {
    pub(super) fn push(&mut self, total: u64) {
        if self.increments.len() == SECONDS {
            self.increments.pop_front();
        }
        self.increments.push_back(total.saturating_sub(self.total));
        self.total = total;
    }

    pub(super) fn total(&self) -> u64 {
        self.total
    }

    pub(super) fn sum(&self) -> u64 {
        self.increments.iter().sum()
    }

    /// Returns the increments per second, the oldest first. `widths` contains the durations of the
    /// samples. If the series has fewer samples, the missing increments are 0.
    pub(super) fn rates(&self, widths: &Widths) -> Vec<f64> {
        let missing = widths.0.len().saturating_sub(self.increments.len());
        let increments = std::iter::repeat_n(&0, missing).chain(&self.increments);
        increments.zip(&widths.0).map(|(increment, width)| rate(*increment, *width)).collect()
    }

    /// Returns the rate over the last five samples.
    pub(super) fn rate_now(&self, widths: &Widths) -> f64 {
        const SAMPLES: usize = 5;
        let increments = self.increments.iter().rev().take(SAMPLES).sum();
        rate(increments, widths.0.iter().rev().take(SAMPLES).sum())
    }
}

/// The durations of the last [`SECONDS`] samples, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Widths(VecDeque<Duration>);

impl Widths {
    pub(super) fn push(&mut self, width: Duration) {
        if self.0.len() == SECONDS {
            self.0.pop_front();
        }
        self.0.push_back(width);
    }
}

/// Returns `count` per second, rounded to one decimal.
#[expect(clippy::float_arithmetic, reason = "it is only shown")]
fn rate(count: u64, width: Duration) -> f64 {
    let millis = u64::try_from(width.as_millis()).unwrap_or(u64::MAX).max(1);
    (count as f64 * 1e4 / millis as f64).round() / 10.0
}
