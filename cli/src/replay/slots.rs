//! Replays requests that take time against policies of slots.
//!
//! A request takes its slots at the time of its record, and frees them after its duration. A store
//! in memory decides in virtual time. If one request ends at the time at which another begins, it
//! ends first. A request whose slots were refused does not run. No holder crashes, and each holder
//! renews its slots, so the lease of the policy does not matter.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::Error;
use super::settling::ready;
use super::stores::memory;
use crate::report::{SlotsReport, SlotsRun};
use crate::trace::{Record, Subjects};
use tidegate_core::{Concurrent, Limiter, MAX_SPAN, ManualClock, Policy, Timestamp};

/// The maximum number of holds that the store remembers. A hold is remembered for about four times
/// the duration of its request.
const MAX_IDS: usize = 1 << 22;

/// The settings of a replay against slots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slots {
    /// The policies of slots.
    pub policies: Vec<Policy>,
    /// The name of the field with the duration, for the report.
    pub duration_of: String,
}

impl Slots {
    /// Replays the records against each policy. The records must be sorted by time. The late cost
    /// of a record is the duration of its request in milliseconds.
    pub(super) fn report(
        &self,
        records: &[Record],
        subjects: &Subjects,
    ) -> Result<SlotsReport, Error> {
        let runs = self.policies.iter().map(|policy| run(policy, records, subjects, MAX_IDS));
        Ok(SlotsReport {
            duration_of: self.duration_of.clone(),
            peak_wanted: peak_wanted(records),
            runs: runs.collect::<Result<_, _>>()?,
        })
    }
}

fn run(
    policy: &Policy,
    records: &[Record],
    subjects: &Subjects,
    max_ids: usize,
) -> Result<SlotsRun, Error> {
    let clock = ManualClock::default();
    // The longest lease is valid with every number of slots.
    let longest = Policy::unnamed(Concurrent::new(policy.limit(), MAX_SPAN));
    let longest = longest.unwrap_or_else(|_| policy.clone());
    let limiter = Limiter::new(memory(clock.clone(), max_ids), [longest])?;
    let mut running = Running::default();
    let mut denied_subjects = BTreeSet::new();
    let mut report =
        SlotsRun { policy: policy.to_string(), limit: policy.limit(), ..SlotsRun::default() };
    for (number, record) in (0_u64..).zip(records) {
        while let Some((ends_at, ticket)) = running.end_first(record.time) {
            clock.set(Timestamp::from_micros(ends_at));
            ready(limiter.settle(&ticket, []))?;
        }
        clock.set(Timestamp::from_micros(record.time));
        let subject = subjects.get(record.subject).unwrap_or_default();
        let id = number.to_be_bytes();
        // The hold must not lapse before the end of its request.
        let ttl = Duration::from_millis(u64::from(record.late_cost) * 2 + 1);
        let hold = ready(limiter.subject(subject).cost(record.cost).hold(&id, ttl))?;
        match hold.into_ticket() {
            Ok(ticket) => {
                report.admitted += 1;
                running.start(number, record, ticket);
            }
            Err(_) => {
                report.denied += 1;
                denied_subjects.insert(record.subject);
            }
        }
    }
    let subjects_denied = denied_subjects.len() as u64;
    Ok(SlotsRun { peak: running.peak, subjects_denied, ..report })
}

/// Returns the maximum number of slots that a subject would use at a time without a limit.
fn peak_wanted(records: &[Record]) -> u64 {
    let mut running = Running::default();
    for (number, record) in (0..).zip(records) {
        while running.end_first(record.time).is_some() {}
        running.start(number, record, ());
    }
    running.peak
}

/// The requests that run, each with a value of the type `T`.
struct Running<T> {
    /// The cost, the subject and the value of each request, by the time of its end and its number.
    ends: BTreeMap<(u64, u64), (u64, u32, T)>,
    /// The number of slots in use, by subject.
    in_use: BTreeMap<u32, u64>,
    /// The maximum number of slots that a subject has used at a time.
    peak: u64,
}

impl<T> Default for Running<T> {
    fn default() -> Self {
        Self { ends: BTreeMap::new(), in_use: BTreeMap::new(), peak: 0 }
    }
}

impl<T> Running<T> {
    fn start(&mut self, number: u64, record: &Record, value: T) {
        let in_use = self.in_use.entry(record.subject).or_default();
        *in_use = in_use.saturating_add(record.cost);
        self.peak = self.peak.max(*in_use);
        let ends_at = record.time.saturating_add(u64::from(record.late_cost) * 1_000);
        self.ends.insert((ends_at, number), (record.cost, record.subject, value));
    }

    /// Ends the request that ends first, if it ends at `now` or before. Returns the time of its end
    /// and its value.
    fn end_first(&mut self, now: u64) -> Option<(u64, T)> {
        let first = self.ends.first_entry().filter(|entry| entry.key().0 <= now)?;
        let ((ends_at, _), (cost, subject, value)) = first.remove_entry();
        let in_use = self.in_use.entry(subject).or_default();
        *in_use = in_use.saturating_sub(cost);
        Some((ends_at, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guards against a defect: the store remembered the hold of each admitted request until the
    /// end of the replay, so the replay of millions of requests failed.
    #[test]
    fn holds_of_requests_that_have_ended_are_forgotten() {
        let mut subjects = Subjects::default();
        let records: Vec<Record> = (0..20_000)
            .map(|number| {
                let subject =
                    subjects.number(format!("subject {}", number % 9).as_bytes()).unwrap();
                Record { time: number * 1_000_000, subject, cost: 1, late_cost: 30 }
            })
            .collect();
        let policy: Policy = "concurrent 1 lease 30s".parse().unwrap();
        let run = run(&policy, &records, &subjects, 4_096).unwrap();
        assert_eq!((run.admitted, run.denied), (20_000, 0));
    }
}
