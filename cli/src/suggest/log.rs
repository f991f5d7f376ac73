//! The sliding log of all subjects.

use std::collections::VecDeque;

/// The sliding log admits a request at the time `t` if and only if the costs with times in `(t − W,
/// t]`, including the request, are at most `L`. So the smallest limit is the largest such sum. All
/// subjects share one queue of records, so that the queue never contains more than the records of
/// one window.
#[derive(Debug, Default)]
pub(super) struct Log {
    recent: VecDeque<Entry>,
    sums: Vec<Sum>,
}

#[derive(Debug)]
struct Entry {
    time: u64,
    subject: usize,
    cost: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    now: u64,
    limit: u64,
}

impl Log {
    pub(super) fn record(&mut self, window: u64, time: u64, subject: usize, cost: u64) {
        while let Some(old) = self.recent.front().filter(|old| old.time + window <= time) {
            if let Some(sum) = self.sums.get_mut(old.subject) {
                sum.now -= old.cost;
            }
            self.recent.pop_front();
        }
        self.recent.push_back(Entry { time, subject, cost });
        if subject >= self.sums.len() {
            self.sums.resize(subject + 1, Sum::default());
        }
        if let Some(sum) = self.sums.get_mut(subject) {
            sum.now += cost;
            sum.limit = sum.limit.max(sum.now);
        }
    }

    /// Returns the smallest limit of each subject whose number is below `subjects`.
    pub(super) fn limits(&self, subjects: usize) -> Vec<u64> {
        let mut limits: Vec<u64> = self.sums.iter().map(|sum| sum.limit).collect();
        limits.resize(subjects, 0);
        limits
    }
}
