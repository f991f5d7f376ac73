//! Sorts records by time, with a stable sort that takes 24 bytes per record.
//!
//! Records are collected in runs of a fixed size. Each run is sorted when it is full, and at the
//! end the runs are merged. So no record is copied to a larger buffer, and sorting needs additional
//! memory for only one run. The result is stable: the sort within a run is stable, and among equal
//! times the merge prefers the earlier run.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::vec::IntoIter;

use crate::trace::record::Record;

/// The number of records in a run, which takes 6 MiB.
const RUN: usize = 1 << 18;

/// Sorted runs of records, and the last run, which is not full yet.
pub(in crate::trace) struct Runs {
    full: Vec<Vec<Record>>,
    last: Vec<Record>,
    run: usize,
}

impl Default for Runs {
    fn default() -> Self {
        Self::new(RUN)
    }
}

impl Runs {
    fn new(run: usize) -> Self {
        Self { full: Vec::new(), last: Vec::new(), run }
    }

    #[inline]
    pub(in crate::trace) fn push(&mut self, record: Record) {
        self.last.push(record);
        if self.last.len() == self.run {
            self.finish_run();
        }
    }

    fn finish_run(&mut self) {
        let mut run = std::mem::take(&mut self.last);
        run.sort_by_key(|record| record.time);
        run.shrink_to_fit();
        self.full.push(run);
    }

    pub(in crate::trace) fn len(&self) -> u64 {
        self.full.iter().chain([&self.last]).map(|run| run.len() as u64).sum()
    }

    /// Returns all records by time. Records with the same time stay in the order of the input.
    pub(in crate::trace) fn sorted(mut self) -> Sorted {
        self.finish_run();
        let runs: Vec<_> = self.full.into_iter().map(Vec::into_iter).collect();
        let first = |(place, run): (usize, &IntoIter<Record>)| Head::peek(place, run);
        let heads = runs.iter().enumerate().filter_map(first).map(Reverse).collect();
        Sorted { runs, heads }
    }
}

/// An iterator that merges the records of all runs.
pub(in crate::trace) struct Sorted {
    runs: Vec<IntoIter<Record>>,
    heads: BinaryHeap<Reverse<Head>>,
}

/// The time of the next record of a run, and the number of the run. Among equal times, the run with
/// the lower number is first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Head {
    time: u64,
    run: usize,
}

impl Head {
    fn peek(run: usize, records: &IntoIter<Record>) -> Option<Self> {
        records.as_slice().first().map(|record| Self { time: record.time, run })
    }
}

impl Iterator for Sorted {
    type Item = Record;

    #[inline]
    fn next(&mut self) -> Option<Record> {
        let mut first = self.heads.peek_mut()?;
        let run = self.runs.get_mut(first.0.run)?;
        let record = run.next();
        match Head::peek(first.0.run, run) {
            Some(head) => first.0 = head,
            None => {
                // This run has no more records, so its memory is freed immediately.
                *run = IntoIter::default();
                PeekMut::pop(first);
            }
        }
        record
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_number_of_runs_come_out_as_one_stable_sort(
            times in prop::collection::vec(0_u64..20, 0..200),
            run in 1_usize..40,
        ) {
            let numbered = times.iter().zip(0..).map(|(&time, subject)| Record { time, subject, late_cost: 0, cost: 1 });
            let mut naive: Vec<Record> = numbered.collect();
            let mut runs = Runs::new(run);
            naive.iter().for_each(|&record| runs.push(record));
            prop_assert_eq!(runs.len(), naive.len() as u64);
            naive.sort_by_key(|record| record.time);
            prop_assert_eq!(runs.sorted().collect::<Vec<_>>(), naive);
        }
    }

    #[test]
    fn a_record_takes_24_bytes() {
        assert_eq!(size_of::<Record>(), 24);
    }
}
