//! The windows of a calendar: days, weeks, months and years in a time zone.
//!
//! All windows of a calendar are counted from its anchor, a date and a time of day. The window `k`
//! begins when the clock of the zone shows the anchor plus `k` units, and ends when the window `k +
//! 1` begins. The calendar computes each edge from the anchor, so an anchor on January 31 gives the
//! edges January 31, February 28, March 31 and April 30.
//!
//! The clock of a zone can skip a time or show it twice. If it skips the time of an edge, the edge
//! is the first instant at which the clock shows a later time. If the clock shows the time twice,
//! the edge is the first of the two instants. A skipped day has no window.

use std::cell::Cell;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{SignedDuration, Span, Timestamp};

use crate::time::MAX_EXACT;

/// The unit of a calendar: the length of its windows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Unit {
    /// A day. It usually has 24 hours, and 23 or 25 hours if the clock changes.
    Day,
    /// A week of seven days.
    Week,
    /// A month.
    Month,
    /// A year.
    Year,
    /// All time: credits have a single window that never ends.
    Ever,
}

impl Unit {
    /// The units of a quota. Credits have the unit [`Ever`](Self::Ever).
    pub(crate) const ALL: [Self; 4] = [Self::Day, Self::Week, Self::Month, Self::Year];

    /// Returns the word for the unit in the text of a policy, such as `month`.
    #[must_use]
    pub const fn keyword(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Week => "week",
            Self::Month => "month",
            Self::Year => "year",
            Self::Ever => "ever",
        }
    }

    /// Returns the maximum length of a window in microseconds: 50 hours, 9 days, 32 days or 367
    /// days, and 2^52 µs for [`Ever`](Self::Ever). Real windows are shorter, because the clock of a
    /// zone never moves back by more than a day.
    #[must_use]
    pub const fn max_micros(self) -> u64 {
        const HOUR: u64 = 3_600_000_000;
        match self {
            Self::Day => 50 * HOUR,
            Self::Week => 9 * 24 * HOUR,
            Self::Month => 32 * 24 * HOUR,
            Self::Year => 367 * 24 * HOUR,
            Self::Ever => MAX_EXACT,
        }
    }

    fn times(self, count: i64) -> Option<Span> {
        match self {
            Self::Day => Span::new().try_days(count),
            Self::Week => Span::new().try_weeks(count),
            Self::Month => Span::new().try_months(count),
            Self::Year => Span::new().try_years(count),
            Self::Ever => return None,
        }
        .ok()
    }

    fn jiff(self) -> jiff::Unit {
        match self {
            Self::Day => jiff::Unit::Day,
            Self::Week => jiff::Unit::Week,
            Self::Month => jiff::Unit::Month,
            Self::Year | Self::Ever => jiff::Unit::Year,
        }
    }
}

/// A window of a calendar, in microseconds since 1970. A time at `end` belongs to the next window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Window {
    /// The start of the window, or 0 if the window begins before 1970.
    pub start: u64,
    /// The end of the window.
    pub end: u64,
}

impl Window {
    /// The window that contains all times of a store.
    pub(crate) const EVER: Self = Self { start: 0, end: MAX_EXACT };

    /// Returns the length of the window.
    #[must_use]
    pub const fn micros(self) -> u64 {
        self.end - self.start
    }

    /// Returns `true` if the window contains the time `now`.
    #[must_use]
    #[inline]
    pub const fn contains(self, now: u64) -> bool {
        self.start <= now && now < self.end
    }
}

/// A division of the time into windows: days, weeks, months or years in a time zone.
pub struct Calendar {
    unit: Unit,
    zone: TimeZone,
    anchor: DateTime,
    /// The number under which a thread remembers the last window of this calendar.
    number: u64,
}

/// The number of windows that a thread remembers.
const REMEMBERED: usize = 16;

thread_local! {
    /// The last windows that were computed, each with the number of its calendar. Most calls have a
    /// time in the last window of their calendar. The windows are not in the calendar, because a
    /// policy would then be a key with interior mutability.
    static LAST: [Cell<(u64, Window)>; REMEMBERED] =
        const { [const { Cell::new((0, Window { start: 0, end: 0 })) }; REMEMBERED] };
}

impl Calendar {
    pub(crate) fn new(unit: Unit, zone: TimeZone, anchor: DateTime) -> Self {
        static CALENDARS: AtomicU64 = AtomicU64::new(0);
        let number = CALENDARS.fetch_add(1, Ordering::Relaxed);
        Self { unit, zone, anchor, number }
    }

    /// Returns the unit.
    #[must_use]
    pub fn unit(&self) -> Unit {
        self.unit
    }

    /// Returns the window that contains `now`, in microseconds since 1970.
    #[must_use]
    #[inline]
    pub fn window_at(&self, now: u64) -> Window {
        LAST.with(|last| {
            #[expect(clippy::cast_possible_truncation, reason = "the place needs only a few bits")]
            let last = &last[self.number as usize % REMEMBERED];
            let (number, window) = last.get();
            if number == self.number && window.contains(now) {
                return window;
            }
            let window = self.compute_window_at(now);
            last.set((self.number, window));
            window
        })
    }

    /// Like [`window_at`](Self::window_at), but does not remember the window for the next call.
    pub(crate) fn compute_window_at(&self, now: u64) -> Window {
        // jiff computes with years from -9999 to 9999, so this never fails for a time of a store.
        self.find(now).unwrap_or(Window::EVER)
    }

    fn find(&self, now: u64) -> Option<Window> {
        if self.unit == Unit::Ever {
            return None;
        }
        let micros = i64::try_from(now).ok()?;
        let time = Timestamp::from_microsecond(micros).ok()?;
        let shown = self.zone.to_datetime(time);
        let mut number = self.units_until(shown)?;
        // The count above can be wrong by one, because the clock possibly shows a time twice.
        let mut start = self.edge(number)?;
        while start > micros {
            number -= 1;
            start = self.edge(number)?;
        }
        let mut end = self.edge(number + 1)?;
        while end <= micros {
            number += 1;
            (start, end) = (end, self.edge(number + 1)?);
        }
        Some(Window { start: u64::try_from(start).unwrap_or(0), end: u64::try_from(end).ok()? })
    }

    /// Returns the number of whole units from the anchor to `shown`, rounded toward zero.
    fn units_until(&self, shown: DateTime) -> Option<i64> {
        let span = self.anchor.until((self.unit.jiff(), shown)).ok()?;
        Some(match self.unit {
            Unit::Day => span.get_days().into(),
            Unit::Week => span.get_weeks().into(),
            Unit::Month => span.get_months().into(),
            Unit::Year | Unit::Ever => span.get_years().into(),
        })
    }

    /// Returns the start of the window `number`, in microseconds since 1970.
    fn edge(&self, number: i64) -> Option<i64> {
        first_instant(&self.zone, self.anchor.checked_add(self.unit.times(number)?).ok()?)
    }
}

/// Returns the first instant at which the clock of a zone shows a time or a later time, in
/// microseconds since 1970. Returns `None` if the instant is not between the years -9999 and 9999.
pub(crate) fn first_instant(zone: &TimeZone, shown: DateTime) -> Option<i64> {
    let instant = match zone.to_ambiguous_timestamp(shown).offset() {
        AmbiguousOffset::Unambiguous { offset } | AmbiguousOffset::Fold { before: offset, .. } => {
            offset.to_timestamp(shown).ok()?
        }
        AmbiguousOffset::Gap { before, .. } => {
            // The clock skips this time, so it jumped before the instant at which it would have
            // shown the time.
            let skipped = before.to_timestamp(shown).ok()?;
            let after = skipped.checked_add(SignedDuration::from_nanos(1)).ok()?;
            zone.preceding(after).next()?.timestamp()
        }
    };
    Some(instant.as_microsecond())
}

/// Two calendars are equal if they have the same windows in the same version of the time zone
/// database.
impl PartialEq for Calendar {
    fn eq(&self, other: &Self) -> bool {
        (self.unit, &self.zone, self.anchor) == (other.unit, &other.zone, other.anchor)
    }
}

impl Eq for Calendar {}

impl fmt::Debug for Calendar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let zone = self.zone.iana_name().unwrap_or("?");
        write!(f, "Calendar({} in {zone} from {})", self.unit.keyword(), self.anchor)
    }
}
