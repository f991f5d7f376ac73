//! Replays requests that take time against policies of slots.
//!
//! A request takes its slots at the time of its record, and frees them after its duration. A store
//! in memory decides in virtual time. If one request ends at the time at which another begins, it
//! ends first. A request whose slots were refused does not run. No holder crashes, and each holder
//! renews its slots, so the lease of the policy does not matter.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Error;
use super::settling::ready;
use super::stores::memory;
use crate::report::{SlotsReport, SlotsRun};
use crate::trace::{Record, Subjects};
use tidegate_core::{
    Algorithm, Concurrent, Limiter, MAX_SPAN, ManualClock, Policy, Ticket, Timestamp,
};

/// The maximum number of holds that the store remembers. It must be large, because the store also
/// remembers settled holds for some time.
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
        let runs = self.policies.iter().map(|policy| run(policy, records, subjects));
        Ok(SlotsReport {
            duration_of: self.duration_of.clone(),
            peak_wanted: peak_wanted(records),
            runs: runs.collect::<Result<_, _>>()?,
        })
    }
}

fn run(policy: &Policy, records: &[Record], subjects: &Subjects) -> Result<SlotsRun, Error> {
    let clock = ManualClock::default();
    // The longest lease is valid with every number of slots.
    let longest = Policy::unnamed(Concurrent::new(policy.limit(), MAX_SPAN));
    let longest = longest.unwrap_or_else(|_| policy.clone());
    let limiter = Limiter::new(memory(clock.clone(), MAX_IDS), [longest])?;
    let mut running: BTreeMap<(u64, u64), (Ticket, u64, u32)> = BTreeMap::new();
    let mut in_use: Vec<u64> = vec![];
    let mut is_denied: Vec<bool> = vec![];
    let mut report =
        SlotsRun { policy: policy.to_string(), limit: policy.limit(), ..SlotsRun::default() };
    for (number, record) in (0_u64..).zip(records) {
        while let Some(first) = running.first_entry().filter(|entry| entry.key().0 <= record.time) {
            let ((ends_at, _), (ticket, cost, subject)) = first.remove_entry();
            clock.set(Timestamp::from_micros(ends_at));
            ready(limiter.settle(&ticket, []))?;
            in_use[subject as usize] -= cost;
        }
        clock.set(Timestamp::from_micros(record.time));
        let place = record.subject as usize;
        if place >= in_use.len() {
            in_use.resize(place + 1, 0);
            is_denied.resize(place + 1, false);
        }
        let subject = subjects.get(record.subject).unwrap_or_default();
        let id = number.to_be_bytes();
        let hold = ready(limiter.subject(subject).cost(record.cost).hold(&id, MAX_SPAN))?;
        match hold.into_ticket() {
            Ok(ticket) => {
                report.admitted += 1;
                in_use[place] += record.cost;
                report.peak = report.peak.max(in_use[place]);
                let duration = Duration::from_millis(record.late_cost.into()).as_micros();
                let ends_at =
                    record.time.saturating_add(u64::try_from(duration).unwrap_or(u64::MAX));
                running.insert((ends_at, number), (ticket, record.cost, record.subject));
            }
            Err(_) => {
                report.denied += 1;
                report.subjects_denied +=
                    u64::from(!std::mem::replace(&mut is_denied[place], true));
            }
        }
    }
    Ok(report)
}

/// Returns the maximum number of slots that a subject would use at a time without a limit.
fn peak_wanted(records: &[Record]) -> u64 {
    let mut ends: BTreeMap<(u64, usize), (u32, u64)> = BTreeMap::new();
    let mut in_use: BTreeMap<u32, u64> = BTreeMap::new();
    let mut peak = 0;
    for (number, record) in records.iter().enumerate() {
        while let Some(first) = ends.first_entry().filter(|entry| entry.key().0 <= record.time) {
            let (subject, cost) = first.remove();
            *in_use.entry(subject).or_default() -= cost;
        }
        let used = in_use.entry(record.subject).or_default();
        *used = used.saturating_add(record.cost);
        peak = peak.max(*used);
        let ends_at = record.time.saturating_add(u64::from(record.late_cost) * 1_000);
        ends.insert((ends_at, number), (record.subject, record.cost));
    }
    peak
}

/// Returns `true` if the policy limits requests at a time.
#[must_use]
pub fn is_of_slots(policy: &Policy) -> bool {
    matches!(policy.algorithm(), Algorithm::Concurrent(_))
}
