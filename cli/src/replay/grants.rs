//! Grants that are replayed together with the requests of a log.

use std::time::Duration;

use crate::trace::{
    self, By, COST_MAX, Cost, Input, Options, Order, Record, Sink, Subjects, TimeUnit,
    replay_in_order, shown,
};
use tidegate_core::Timestamp;

/// The maximum number of grants. Each grant needs an id in each store.
pub(super) const MAX_GRANTS: usize = 1_000_000;

/// The grants of a file, in the order of time.
#[derive(Debug)]
pub struct Grants {
    grants: Vec<Record>,
    subjects: Subjects,
    lasts: Option<Duration>,
}

/// A grant to a subject.
#[derive(Debug, Clone, Copy)]
pub(super) struct Grant<'a> {
    /// The place of the grant in the order of time, which is its id.
    pub(super) number: u64,
    /// The time of the grant, in microseconds since 1970.
    pub(super) time: u64,
    pub(super) subject: &'a [u8],
    pub(super) amount: u64,
    pub(super) ends_at: Option<Timestamp>,
}

impl Grants {
    /// Reads grants from an input with the fields `time`, `subject` and `amount`, in any format
    /// that a log can have. `time_unit` is the unit of times that are plain numbers, as in
    /// [`Options`]. Each grant ends after `lasts`. Without `lasts`, it lasts until it is spent.
    ///
    /// # Errors
    ///
    /// Returns a message if the input cannot be read, if it lacks a field, if a line is malformed,
    /// if a line has no subject, if an amount is 0, or if there are more than 1,000,000 grants.
    pub fn read(
        input: Input,
        time_unit: Option<TimeUnit>,
        lasts: Option<Duration>,
    ) -> Result<Self, String> {
        let options = Options {
            by: By::Field("subject".to_owned()),
            cost: Cost::Fields(vec!["amount".to_owned()]),
            time: Some("time".to_owned()),
            time_unit,
            strict: true,
            ..Options::default()
        };
        let name = input.name().to_owned();
        let mut grants = Collected::default();
        let summary = replay_in_order(vec![input], &options, Order::Time, &mut grants)
            .map_err(|error| format!("{error:#}"))?;
        if summary.without_subject > 0 {
            return Err(format!("{name}: a grant has no subject"));
        }
        let Collected(grants) = grants;
        if grants.len() > MAX_GRANTS {
            return Err(format!("{name}: {} grants exceed {MAX_GRANTS}", grants.len()));
        }
        if let Some(grant) = grants.iter().find(|grant| grant.cost == 0) {
            let subject = shown(summary.subjects.get(grant.subject).unwrap_or_default(), 40);
            return Err(format!(
                "{name}: the amount of a grant to `{subject}` is 0, and must be 1 to {COST_MAX}"
            ));
        }
        Ok(Self { grants, subjects: summary.subjects, lasts })
    }

    /// Returns the grant at a place in the order of time.
    pub(super) fn get(&self, place: usize) -> Option<Grant<'_>> {
        let record = self.grants.get(place)?;
        let ends_at = |lasts| Timestamp::from_micros(record.time).saturating_add(lasts);
        Some(Grant {
            number: place as u64,
            time: record.time,
            subject: self.subjects.get(record.subject)?,
            amount: record.cost,
            ends_at: self.lasts.map(ends_at),
        })
    }

    /// Returns each subject with a grant once.
    pub(super) fn subjects(&self) -> impl Iterator<Item = &[u8]> {
        self.subjects.iter()
    }
}

/// The sink that stores all records.
#[derive(Default)]
struct Collected(Vec<Record>);

impl Sink for Collected {
    type Error = trace::Error;

    fn record(&mut self, record: Record, _: &Subjects) -> Result<(), trace::Error> {
        self.0.push(record);
        Ok(())
    }

    fn restart(&mut self) {
        self.0.clear();
    }
}
