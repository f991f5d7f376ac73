use crate::report;

/// The maximum number of steps.
pub(super) const MOST: usize = 480;

/// The lengths of a step, in microseconds. Each length is a multiple of the previous one, so that
/// steps can be joined into longer steps while records arrive.
pub(super) const STEPS: [u64; 14] = [
    1_000,
    10_000,
    100_000,
    1_000_000,
    5_000_000,
    15_000_000,
    60_000_000,
    300_000_000,
    900_000_000,
    3_600_000_000,
    21_600_000_000,
    86_400_000_000,
    604_800_000_000,
    31_449_600_000_000,
];

/// The admitted and denied requests over time, in at most as many steps as a plot can show.
#[derive(Debug, Default)]
pub(super) struct Timeline {
    /// The number of the first step, counted from 1970.
    first: u64,
    /// The index in [`STEPS`] of the current length of a step.
    step: usize,
    admitted: Vec<u64>,
    denied: Vec<u64>,
}

impl Timeline {
    /// Counts a request. Times must not decrease.
    pub(super) fn count(&mut self, time: u64, admitted: bool) {
        if self.admitted.is_empty() {
            self.first = time / STEPS[self.step];
        }
        let place = loop {
            let place = (time / STEPS[self.step]).saturating_sub(self.first);
            match usize::try_from(place) {
                Ok(place) if place < MOST => break place,
                _ if self.step + 1 == STEPS.len() => break MOST - 1,
                _ => self.join(),
            }
        };
        if place >= self.admitted.len() {
            self.admitted.resize(place + 1, 0);
            self.denied.resize(place + 1, 0);
        }
        let counts = if admitted { &mut self.admitted } else { &mut self.denied };
        counts[place] += 1;
    }

    pub(super) fn report(&self) -> report::Timeline {
        let step = STEPS[self.step];
        report::Timeline {
            start: self.first * step,
            step,
            admitted: self.admitted.clone(),
            denied: self.denied.clone(),
        }
    }

    /// Joins the steps into steps of the next length.
    fn join(&mut self) {
        let ratio = STEPS[self.step + 1] / STEPS[self.step];
        let first = self.first / ratio;
        for counts in [&mut self.admitted, &mut self.denied] {
            let mut joined = vec![0; 0];
            for (place, count) in (self.first..).zip(counts.iter()) {
                let place = usize::try_from(place / ratio - first).unwrap_or(usize::MAX);
                if place >= joined.len() {
                    joined.resize(place + 1, 0);
                }
                joined[place] += count;
            }
            *counts = joined;
        }
        self.first = first;
        self.step += 1;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn however_long_it_gets_each_request_is_in_the_step_of_its_time(
            start in 0..2_000_000_000_000_000_u64,
            gaps in prop::collection::vec((0..50_u32, any::<u16>(), any::<bool>()), 1..300),
        ) {
            let mut timeline = Timeline::default();
            let mut time = start;
            let mut requests = Vec::new();
            for (shift, gap, admitted) in gaps {
                time = time.saturating_add(u64::from(gap) << shift).min((1 << 52) - 1);
                timeline.count(time, admitted);
                requests.push((time, admitted));
            }
            let report = timeline.report();
            prop_assert!(report.admitted.len() <= MOST);
            let mut expected = vec![(0, 0); report.admitted.len()];
            for (time, admitted) in requests {
                let place = usize::try_from((time - report.start) / report.step).unwrap();
                let counts = &mut expected[place];
                *if admitted { &mut counts.0 } else { &mut counts.1 } += 1;
            }
            let found: Vec<_> = report.admitted.into_iter().zip(report.denied).collect();
            prop_assert_eq!(found, expected);
        }
    }

    #[test]
    fn each_step_is_a_multiple_of_the_one_before() {
        assert!(STEPS.windows(2).all(|pair| pair[1].is_multiple_of(pair[0])));
    }
}
