//! The sliding log of all subjects.

use std::collections::VecDeque;

/// Sliding log: admits iff the costs with times in `(t − W, t]`, this one included, are at most
/// `L`, so the limit is the largest such sum. One queue holds the window of all subjects, so that
/// it never holds more than one window's records, however many subjects went away.
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

    /// The limits of so many subjects.
    pub(super) fn limits(&self, subjects: usize) -> Vec<u64> {
        let mut limits: Vec<u64> = self.sums.iter().map(|sum| sum.limit).collect();
        limits.resize(subjects, 0);
        limits
    }
}
