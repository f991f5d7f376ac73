//! The positions of times on an axis, and the ticks of the axis.

use jiff::civil::{Date, DateTime, Time};
use jiff::tz::TimeZone;

use crate::report::number::scaled;
use crate::report::time::utc;

/// The length of an axis, in units of the picture.
pub(super) const LENGTH: u32 = 10_000;

const SECOND: u64 = 1_000_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// Distances between ticks, in microseconds. Each distance of less than a day divides a minute, an
/// hour or a day.
const CLOCK: [u64; 20] = [
    SECOND,
    2 * SECOND,
    5 * SECOND,
    10 * SECOND,
    15 * SECOND,
    30 * SECOND,
    MINUTE,
    2 * MINUTE,
    5 * MINUTE,
    10 * MINUTE,
    15 * MINUTE,
    30 * MINUTE,
    HOUR,
    2 * HOUR,
    3 * HOUR,
    6 * HOUR,
    12 * HOUR,
    DAY,
    2 * DAY,
    7 * DAY,
];

/// Distances between ticks, in months.
const MONTHS: [i32; 14] = [1, 2, 3, 6, 12, 24, 60, 120, 240, 600, 1_200, 12_000, 60_000, 120_000];

/// The time of the first Monday of 1970, in microseconds. If the distance between ticks is a week,
/// the ticks are on Mondays.
const FIRST_MONDAY: u64 = 4 * DAY;

/// A period that is mapped to positions from 0 to [`LENGTH`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Axis {
    start: u64,
    end: u64,
}

/// A labeled time on an axis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Tick {
    /// The position, from 0 to [`LENGTH`].
    pub(super) position: u32,
    pub(super) label: String,
}

impl Axis {
    /// Creates an axis from one time to a later time, in microseconds since 1970.
    pub(super) fn new(start: u64, end: u64) -> Self {
        Axis { start, end: end.max(start) }
    }

    pub(super) fn start(&self) -> u64 {
        self.start
    }

    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// Returns the position of a time. A time outside of the axis has the position of the nearer
    /// end.
    pub(super) fn position(&self, at: u64) -> u32 {
        scaled(at.saturating_sub(self.start), self.end - self.start, LENGTH)
    }

    /// Returns at most `max` ticks at round times in UTC. There are no ticks after the year 9999.
    pub(super) fn ticks(&self, max: u64) -> Vec<Tick> {
        let span = self.end - self.start;
        if span == 0 || utc(self.end).is_none() {
            return Vec::new();
        }
        // An axis with the length of `n` distances has up to `n + 1` ticks, so `n` must be less
        // than `max`.
        match short_distances().find(|distance| span / distance < max) {
            Some(distance) => self.even(distance),
            None => self.monthly(max),
        }
    }

    fn even(&self, distance: u64) -> Vec<Tick> {
        let offset = if distance == 7 * DAY { FIRST_MONDAY } else { 0 };
        let first = match self.start.checked_sub(offset) {
            Some(start) => start.div_ceil(distance).saturating_mul(distance).saturating_add(offset),
            None => offset,
        };
        let moments = (0..).map_while(|n: u64| first.checked_add(n.checked_mul(distance)?));
        moments
            .take_while(|at| *at <= self.end)
            .filter_map(|at| Some(self.tick(at, short_label(utc(at)?, distance))))
            .collect()
    }

    fn monthly(&self, max: u64) -> Vec<Tick> {
        let (Some(start), Some(end)) = (utc(self.start), utc(self.end)) else {
            return Vec::new();
        };
        let months = |time: DateTime| i32::from(time.year()) * 12 + i32::from(time.month()) - 1;
        let (first, last) = (months(start), months(end));
        let fits = |distance: &i32| {
            u64::from((last - first).unsigned_abs() / distance.unsigned_abs()) < max
        };
        let distance = MONTHS.into_iter().find(fits).unwrap_or(120_000);
        let aligned = first.div_euclid(distance) * distance;
        (0..)
            .map(|n| aligned + n * distance)
            .take_while(|month| *month <= last)
            .filter_map(|month| {
                let at = month_start(month)?;
                (self.start..=self.end).contains(&at).then_some(())?;
                let format = if distance % 12 == 0 { "%Y" } else { "%b %Y" };
                Some(self.tick(at, utc(at)?.strftime(format).to_string()))
            })
            .collect()
    }

    fn tick(&self, at: u64, label: String) -> Tick {
        Tick { position: self.position(at), label }
    }
}

/// Returns the possible distances between ticks that are shorter than a month: 1, 2, 5, 10, …
/// microseconds, and then the distances in [`CLOCK`].
fn short_distances() -> impl Iterator<Item = u64> {
    let tens = (0..6).map(|power| 10_u64.pow(power));
    tens.flat_map(|ten| [ten, 2 * ten, 5 * ten]).chain(CLOCK)
}

fn short_label(time: DateTime, distance: u64) -> String {
    let midnight = time.time() == Time::midnight();
    let format = match distance {
        ..1_000 => "%H:%M:%S.%6f",
        1_000..SECOND => "%H:%M:%S.%3f",
        DAY.. => "%-d %b",
        _ if midnight => "%-d %b",
        MINUTE.. => "%H:%M",
        _ => "%H:%M:%S",
    };
    time.strftime(format).to_string()
}

/// Returns the time at which a month starts. Months are counted from January of the year 0.
fn month_start(month: i32) -> Option<u64> {
    let year = i16::try_from(month.div_euclid(12)).ok()?;
    let month = i8::try_from(month.rem_euclid(12) + 1).ok()?;
    let day = Date::new(year, month, 1).ok()?;
    let timestamp = TimeZone::UTC.to_timestamp(day.to_datetime(Time::midnight())).ok()?;
    u64::try_from(timestamp.as_microsecond()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2025-11-03 00:00:00 UTC, a Monday.
    const MONDAY: u64 = 1_762_128_000 * SECOND;

    fn labels(start: u64, end: u64) -> Vec<String> {
        Axis::new(start, end).ticks(9).into_iter().map(|tick| tick.label).collect()
    }

    #[test]
    fn a_day_is_told_by_the_hour_and_midnight_by_its_date() {
        let day = labels(MONDAY, MONDAY + DAY);
        assert_eq!(
            day,
            ["3 Nov", "03:00", "06:00", "09:00", "12:00", "15:00", "18:00", "21:00", "4 Nov"]
                .map(String::from)
                .into_iter()
                .filter(|_| day.len() == 9)
                .collect::<Vec<_>>()
        );
    }

    #[test]
    fn a_month_is_told_by_mondays() {
        let month = labels(MONDAY, MONDAY + 28 * DAY);
        assert_eq!(month, ["3 Nov", "10 Nov", "17 Nov", "24 Nov", "1 Dec"]);
    }

    #[test]
    fn a_year_is_told_by_months_and_decades_by_years() {
        let year = labels(MONDAY, MONDAY + 365 * DAY);
        assert_eq!(year, ["Jan 2026", "Mar 2026", "May 2026", "Jul 2026", "Sep 2026", "Nov 2026"]);
        assert_eq!(labels(0, MONDAY), ["1970", "1980", "1990", "2000", "2010", "2020"]);
    }

    #[test]
    fn a_minute_is_told_by_the_second_and_less_by_fractions() {
        let minute = labels(MONDAY + HOUR, MONDAY + HOUR + MINUTE);
        assert_eq!(minute[..2], ["01:00:00", "01:00:10"]);
        let moment = labels(MONDAY + HOUR, MONDAY + HOUR + 5_000);
        assert_eq!(moment[1], "01:00:00.001");
        assert_eq!(labels(MONDAY + HOUR, MONDAY + HOUR + 3)[1], "01:00:00.000001");
    }

    #[test]
    fn no_time_and_times_beyond_the_calendar_have_no_ticks() {
        assert_eq!(labels(MONDAY, MONDAY), [""; 0]);
        assert_eq!(labels(0, u64::MAX), [""; 0]);
    }

    #[test]
    fn positions_run_from_end_to_end_and_stop_there() {
        let axis = Axis::new(100, 300);
        let positions = [0, 100, 150, 300, 999].map(|at| axis.position(at));
        assert_eq!(positions, [0, 0, 2_500, LENGTH, LENGTH]);
    }

    proptest::proptest! {
        #[test]
        fn ticks_are_few_in_order_and_on_the_axis(
            start: u64, end: u64, shift in 0_u32..64, max in 2_u64..20,
        ) {
            let (start, end) = (start >> shift, end >> shift);
            let ticks = Axis::new(start.min(end), start.max(end)).ticks(max);
            proptest::prop_assert!(ticks.len() as u64 <= max);
            proptest::prop_assert!(ticks.iter().all(|tick| tick.position <= LENGTH));
            proptest::prop_assert!(ticks.is_sorted_by_key(|tick| tick.position));
        }
    }
}
