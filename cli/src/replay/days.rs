use jiff::Timestamp;
use jiff::civil::{Date, Time};
use jiff::tz::TimeZone;
use tidegate_core::{Algorithm, Policy};

use crate::report;

/// The admitted and denied requests of a quota on each day in its time zone.
#[derive(Debug)]
pub(super) struct Days {
    zone: TimeZone,
    /// The end of the last day in `counts`, in microseconds since 1970.
    end: u64,
    counts: Vec<(Date, report::Day)>,
}

impl Days {
    /// Returns `None` if the policy is not a quota.
    pub(super) fn new(policy: &Policy) -> Option<Self> {
        let Algorithm::Quota(quota) = policy.algorithm() else { return None };
        let zone = TimeZone::get(quota.zone()).ok()?;
        Some(Self { zone, end: 0, counts: Vec::new() })
    }

    /// Counts a request. Times must not decrease.
    pub(super) fn count(&mut self, time: u64, admitted: bool) {
        if time >= self.end {
            self.begin_day(time);
        }
        let Some((_, day)) = self.counts.last_mut() else { return };
        *if admitted { &mut day.admitted } else { &mut day.denied } += 1;
    }

    fn begin_day(&mut self, time: u64) {
        let micros = i64::try_from(time).unwrap_or(i64::MAX);
        let Ok(instant) = Timestamp::from_microsecond(micros) else { return };
        let date = self.zone.to_datetime(instant).date();
        let midnight = date.tomorrow().map(|day| day.to_datetime(Time::midnight()));
        let end = midnight.and_then(|midnight| self.zone.to_timestamp(midnight));
        let end = end.ok().and_then(|end| u64::try_from(end.as_microsecond()).ok());
        self.end = end.unwrap_or(u64::MAX);
        // If the clock of the zone steps back over midnight, the date before is shown again.
        if self.counts.last().is_none_or(|(last, _)| *last < date) {
            let day = report::Day { date: date.to_string(), ..report::Day::default() };
            self.counts.push((date, day));
        }
    }

    pub(super) fn report(&self) -> Vec<report::Day> {
        self.counts.iter().map(|(_, day)| day.clone()).collect()
    }
}
