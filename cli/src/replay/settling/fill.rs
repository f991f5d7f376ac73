//! Records how full a policy was over time.

use crate::replay::timeline::{MOST, STEPS};
use crate::report;

/// The used and the idle amount over time, in equal steps. Each step contains the two amounts of
/// one subject at one moment: the pair with the largest sum. An idle amount is held and will not be
/// used.
#[derive(Debug)]
pub(super) struct Fill {
    /// The number of the first step, counted from 1970.
    first: u64,
    step: u64,
    used: Vec<u64>,
    idle: Vec<u64>,
}

impl Fill {
    /// Creates steps from the time `first` to the time `last`.
    pub(super) fn new(first: u64, last: u64) -> Self {
        let fits = |step: &u64| last / step - first / step < MOST as u64;
        let longest = STEPS[STEPS.len() - 1];
        let step = STEPS.into_iter().find(fits).unwrap_or(longest);
        Self { first: first / step, step, used: Vec::new(), idle: Vec::new() }
    }

    /// Records the used amount and the idle amount of a subject. Times must not decrease.
    pub(super) fn note(&mut self, time: u64, used: u64, idle: u64) {
        let place = (time / self.step).saturating_sub(self.first);
        let place = usize::try_from(place).unwrap_or(MOST).min(MOST - 1);
        if place >= self.used.len() {
            self.used.resize(place + 1, 0);
            self.idle.resize(place + 1, 0);
        }
        if used.saturating_add(idle) > self.used[place].saturating_add(self.idle[place]) {
            (self.used[place], self.idle[place]) = (used, idle);
        }
    }

    pub(super) fn into_report(self) -> report::Fill {
        let Self { first, step, used, idle } = self;
        report::Fill { start: first * step, step, used, idle }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_step_has_its_fullest_moment() {
        let second = 1_000_000;
        let mut fill = Fill::new(3 * second, 400 * second);
        for (time, used, idle) in [(3, 5, 1), (3, 1, 4), (4, 0, 0), (6, 2, 9), (900, 1, 1)] {
            fill.note(time * second, used, idle);
        }
        let report = fill.into_report();
        assert_eq!((report.start, report.step), (3 * second, second));
        assert_eq!(report.used[..4], [5, 0, 0, 2]);
        assert_eq!(report.idle[..4], [1, 0, 0, 9]);
        assert_eq!((report.used.len(), report.used[MOST - 1]), (MOST, 1));
    }
}
