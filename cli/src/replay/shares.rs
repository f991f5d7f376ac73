use std::cmp::Reverse;

use tidegate_core::{Algorithm, Outcome, Policy};

use super::tally::{LISTED, printable};
use crate::report::{Member, SharesReport};
use crate::trace::{Record, Subjects};

/// The demands and the shares of the members of a fair pool.
#[derive(Debug)]
pub(super) struct Shares {
    /// The length of a window in microseconds.
    window: u64,
    /// The number of the current window, counted from 1970, and whether the pool has refused a
    /// request in this window.
    current: Option<(u64, bool)>,
    windows: u64,
    windows_refused: u64,
    /// `None` for a subject without requests to the pool.
    by_subject: Vec<Option<Sums>>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Sums {
    demand: u64,
    admitted: u64,
}

impl Shares {
    /// Returns `None` if the policy is not a fair pool.
    pub(super) fn new(policy: &Policy) -> Option<Self> {
        let Algorithm::FairPool(pool) = policy.algorithm() else { return None };
        let window = u64::try_from(pool.window().as_micros()).unwrap_or(u64::MAX);
        let by_subject = Vec::new();
        Some(Self { window, current: None, windows: 0, windows_refused: 0, by_subject })
    }

    /// Counts a request that the pool has decided with this outcome. Times must not decrease.
    pub(super) fn count(&mut self, record: Record, outcome: Option<Outcome>) {
        let number = record.time / self.window;
        let (_, has_refused) = match &mut self.current {
            Some(current) if current.0 == number => current,
            current => {
                self.windows += 1;
                current.insert((number, false))
            }
        };
        let subject = record.subject as usize;
        if subject >= self.by_subject.len() {
            self.by_subject.resize(subject + 1, None);
        }
        let sums = self.by_subject[subject].get_or_insert_default();
        sums.demand = sums.demand.saturating_add(record.cost);
        match outcome {
            Some(Outcome::Allowed) => sums.admitted = sums.admitted.saturating_add(record.cost),
            // The pool refused the request, and an alternative to the pool possibly admitted it.
            Some(Outcome::Denied | Outcome::Skipped) if !*has_refused => {
                *has_refused = true;
                self.windows_refused += 1;
            }
            _ => {}
        }
    }

    pub(super) fn report(&self, subjects: &Subjects) -> SharesReport {
        let members = self.by_subject.iter().enumerate();
        let mut sorted: Vec<(usize, Sums)> =
            members.filter_map(|(subject, sums)| Some((subject, (*sums)?))).collect();
        // Subjects with equal demands are listed in the order in which they were first seen.
        sorted.sort_by_key(|&(subject, sums)| (Reverse(sums.demand), subject));
        let member = |&(subject, sums): &(usize, Sums)| Member {
            subject: printable(subjects, subject),
            demand: sums.demand,
            admitted: sums.admitted,
        };
        let sum = |part: fn(&Sums) -> u64| {
            sorted.iter().map(|(_, sums)| part(sums)).fold(0, u64::saturating_add)
        };
        SharesReport {
            subjects: sorted.len() as u64,
            demand: sum(|sums| sums.demand),
            admitted: sum(|sums| sums.admitted),
            windows: self.windows,
            windows_refused: self.windows_refused,
            members: sorted.iter().take(LISTED).map(member).collect(),
        }
    }
}
