//! Quotas over the calendar, as they are configured.

use std::fmt;
use std::sync::Arc;

use jiff::civil::{Date, DateTime, Time, Weekday};
use jiff::tz::{TimeZone, TimeZoneDatabase};

use super::closest::closest;
use super::error::{Part, PolicyError, shown};
use super::rule::check_exact;
use super::share::Share;
use super::{Algorithm, Policy};
use crate::algorithm::calendar::{Calendar, Unit, first_instant};
use crate::algorithm::quota::{QuotaRule, Rollover};

/// A limit for each window of the calendar: each day, week, month or year in a time zone.
///
/// A day begins when the clock of the zone shows midnight, or the time of day that
/// [`at`](Self::at) sets. A month and a year begin at this time on their first day. So a day has 23
/// or 25 hours if the clock changes, and a month has 28 to 31 days. If the clock skips the time,
/// the window begins at the first instant at which the clock shows a later time. If the clock shows
/// the time twice, the window begins at the first of the two instants.
///
/// A window of an [anchored](Self::anchored) quota begins at each anniversary of its anchor, such
/// as the day on which a customer has subscribed.
///
/// The clock of the store decides which window is the current one. A caller with a wrong clock
/// changes nothing. The zone is a name of the IANA database, such as `Europe/Amsterdam` or `UTC`.
///
/// ```
/// use tidegate_core::civil::{Weekday, date, time};
/// use tidegate_core::{Policy, Quota};
///
/// let monthly = Policy::new("plan", Quota::per_month(1_000, "Europe/Amsterdam"))?;
/// assert_eq!(monthly.to_string(), "plan: quota 1000/month in Europe/Amsterdam");
///
/// let daily = Quota::per_day(200, "America/New_York").at(time(5, 0, 0, 0));
/// assert_eq!(Policy::unnamed(daily)?, "quota 200/day in America/New_York at 05:00".parse()?);
///
/// let weekly = Quota::per_week(500, Weekday::Monday, "UTC");
/// assert_eq!(Policy::unnamed(weekly)?, "quota 500/week from monday in UTC".parse()?);
///
/// // January 31, February 28, March 31, April 30, …
/// let billing = Quota::per_month(1_000, "UTC").anchored(date(2026, 1, 31).at(9, 0, 0, 0));
/// let text = "quota 1000/month anchored 2026-01-31T09:00 in UTC";
/// assert_eq!(Policy::unnamed(billing)?, text.parse()?);
///
/// // Half of what a month leaves unused is added to the next month.
/// let rolling = Quota::per_month(1_000, "UTC").rollover("1/2".parse()?);
/// assert_eq!(Policy::unnamed(rolling)?, "quota 1000/month in UTC rollover 1/2".parse()?);
///
/// // 500 requests in total, and what is granted later.
/// let prepaid = Policy::new("prepaid", Quota::credits(500))?;
/// assert_eq!(prepaid.to_string(), "prepaid: credits 500");
/// # Ok::<(), tidegate_core::PolicyError>(())
/// ```
///
/// [Grants](crate::Request::grant) top up a quota or credits.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Quota {
    pub(super) limit: u64,
    pub(super) unit: Unit,
    pub(super) first_day: Option<Weekday>,
    /// The name of the time zone. It is empty while the parser has not read it yet.
    pub(super) zone: String,
    pub(super) at: Option<Time>,
    pub(super) anchor: Option<DateTime>,
    pub(super) rollover: Option<Share>,
    pub(super) since: Option<DateTime>,
}

impl Policy {
    /// Returns this quota with an [anchor](Quota::anchored) of its own, such as the day on which a
    /// customer has subscribed. All other numbers and settings stay, and the policy has the same
    /// states, so give it a name.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// use tidegate_core::Limiter;
    /// use tidegate_core::civil::date;
    /// use tidegate_memory::MemoryStore;
    ///
    /// let plan = "plan: quota 1000/month in Europe/Amsterdam".parse()?;
    /// let limiter = Limiter::new(MemoryStore::new(), [plan])?;
    ///
    /// let subscribed = date(2026, 1, 31).at(9, 0, 0, 0); // from the database of the customers
    /// let plan = limiter.policy("plan")?.anchored_at(subscribed)?;
    /// let text = "plan: quota 1000/month anchored 2026-01-31T09:00 in Europe/Amsterdam";
    /// assert_eq!(plan, text.parse()?);
    /// assert!(limiter.by(&plan, "customer 17").acquire().await?.is_allowed());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error if the policy is not a quota, if it begins its windows at a [time of
    /// day](Quota::at), or if the anchor has a part of a second.
    pub fn anchored_at(&self, anchor: DateTime) -> Result<Self, PolicyError> {
        self.with_quota("anchor", |quota| quota.anchored(anchor))
    }

    /// Returns this quota for a subscription that began at `since` on the clock of the quota's
    /// zone. The limit of the window that contains this time is [pro-rated](Quota::since). All
    /// other windows, numbers and settings stay, and the policy has the same states, so give it a
    /// name.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// use tidegate_core::civil::date;
    /// use tidegate_core::{Limiter, ManualClock, Timestamp};
    /// use tidegate_memory::MemoryStore;
    ///
    /// // April 20, 2026
    /// let clock = ManualClock::new(Timestamp::from_micros(1_776_643_200_000_000));
    /// let plan = "plan: quota 1000/month in UTC".parse()?;
    /// let limiter = Limiter::new(MemoryStore::builder().clock(clock).build(), [plan])?;
    ///
    /// // The subscription began when a third of the month was left.
    /// let plan = limiter.policy("plan")?.since(date(2026, 4, 21).at(0, 0, 0, 0))?;
    /// let decision = limiter.by(&plan, "customer 17").acquire().await?;
    /// assert_eq!(decision.verdicts()[0].remaining(), 332);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error if the policy is not a quota, or if the time has a part of a second.
    pub fn since(&self, since: DateTime) -> Result<Self, PolicyError> {
        self.with_quota("start of a subscription", |quota| quota.since(since))
    }

    fn with_quota(
        &self,
        what: &str,
        change: impl FnOnce(Quota) -> Quota,
    ) -> Result<Self, PolicyError> {
        let Algorithm::Quota(quota) = self.algorithm() else {
            let message = format!("`{self}` is not a quota, so it has no {what}");
            return Err(PolicyError::new(message));
        };
        self.with_algorithm(change(quota.as_ref().clone()))?.with_settings_of(self)
    }
}

impl Quota {
    /// Creates a limit for each day in a time zone.
    #[must_use]
    pub fn per_day(limit: u64, zone: impl Into<String>) -> Self {
        Self::new(limit, Unit::Day, zone)
    }

    /// Creates a limit for each week in a time zone. The week begins on `first_day`.
    #[must_use]
    pub fn per_week(limit: u64, first_day: Weekday, zone: impl Into<String>) -> Self {
        Self { first_day: Some(first_day), ..Self::new(limit, Unit::Week, zone) }
    }

    /// Creates a limit for each month in a time zone.
    #[must_use]
    pub fn per_month(limit: u64, zone: impl Into<String>) -> Self {
        Self::new(limit, Unit::Month, zone)
    }

    /// Creates a limit for each year in a time zone.
    #[must_use]
    pub fn per_year(limit: u64, zone: impl Into<String>) -> Self {
        Self::new(limit, Unit::Year, zone)
    }

    pub(super) fn new(limit: u64, unit: Unit, zone: impl Into<String>) -> Self {
        Self {
            limit,
            unit,
            first_day: None,
            zone: zone.into(),
            at: None,
            anchor: None,
            rollover: None,
            since: None,
        }
    }

    /// Creates credits: a limit for all time. Nothing refills them, but
    /// [grants](crate::Request::grant) top them up. A state of credits never expires, see the guide
    /// on quotas.
    #[must_use]
    pub fn credits(limit: u64) -> Self {
        Self::new(limit, Unit::Ever, "UTC")
    }

    /// Sets the time of day at which a day begins, in whole seconds. A week, a month and a year
    /// begin at this time on their first day. Without this setting, they begin at midnight.
    #[must_use]
    pub fn at(self, time: Time) -> Self {
        Self { at: Some(time), ..self }
    }

    /// Sets an anchor, a date and a time of day in whole seconds. The windows then begin at the
    /// anniversaries of the anchor, before and after it. Each one is computed from the anchor: an
    /// anchor on January 31 gives February 28 and then March 31.
    #[must_use]
    pub fn anchored(self, anchor: DateTime) -> Self {
        Self { anchor: Some(anchor), ..self }
    }

    /// Adds a part of the unused quota of each window to the next window, rounded down. Rolled-over
    /// quota is spent before the quota of the window, and does not roll over again.
    /// [Grants](crate::Request::grant) never roll over.
    ///
    /// The quota of an idle window rolls over too, while the store remembers the subject: for 12
    /// windows after its last charge. A subject that the store does not know has no rolled-over
    /// quota.
    ///
    /// The denominator must be at most 1,000.
    #[must_use]
    pub fn rollover(self, share: Share) -> Self {
        Self { rollover: Some(share), ..self }
    }

    /// Pro-rates the limit of the window that contains `since`, the start of a subscription on the
    /// clock of the zone. The limit of this window corresponds to the rest of the window after
    /// `since`. It is rounded down, and at least 1. In earlier windows, the limit is 0.
    ///
    /// Each customer has a start of its own: see [`Policy::since`].
    #[must_use]
    pub fn since(self, since: DateTime) -> Self {
        Self { since: Some(since), ..self }
    }

    /// Returns the limit.
    #[must_use]
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// Returns the unit of the windows.
    #[must_use]
    pub const fn unit(&self) -> Unit {
        self.unit
    }

    /// Returns the name of the time zone.
    #[must_use]
    pub fn zone(&self) -> &str {
        &self.zone
    }

    /// Returns the first day of a week that [`per_week`](Self::per_week) has set.
    #[must_use]
    pub const fn first_day(&self) -> Option<Weekday> {
        self.first_day
    }

    /// Returns the time of day that [`at`](Self::at) has set.
    #[must_use]
    pub const fn time_of_day(&self) -> Option<Time> {
        self.at
    }

    /// Returns the anchor that [`anchored`](Self::anchored) has set.
    #[must_use]
    pub const fn anchor(&self) -> Option<DateTime> {
        self.anchor
    }

    /// Returns the part of the unused quota that [`rollover`](Self::rollover) has set.
    #[must_use]
    pub const fn rollover_share(&self) -> Option<Share> {
        self.rollover
    }

    /// Returns the start of the subscription that [`since`](Self::since) has set.
    #[must_use]
    pub const fn start_of_subscription(&self) -> Option<DateTime> {
        self.since
    }

    /// Returns `true` for [credits](Self::credits).
    #[must_use]
    pub fn is_credits(&self) -> bool {
        self.unit == Unit::Ever
    }

    /// Returns the date and time from which all windows are counted. For a quota without an anchor,
    /// this is a start of a window in 1970, on the first Monday for weeks from Monday.
    fn origin(&self) -> Result<DateTime, PolicyError> {
        let time = self.at.unwrap_or(Time::midnight());
        if self.is_credits()
            && (self.at, self.anchor, self.rollover, self.since) != (None, None, None, None)
        {
            let message = "credits have no windows, so they have no `at`, `anchored`, `rollover` or \
                           `since`";
            return Err(PolicyError::new(message));
        }
        match (self.anchor, self.unit, self.first_day) {
            (Some(_), Unit::Day, _) => {
                Err(about_anchor("a quota per day has no anchor; write `at` and a time of day"))
            }
            (Some(_), _, _) if self.at.is_some() => Err(about_anchor(
                "`at` and `anchored` exclude each other: an anchor has a time of day",
            )),
            (Some(_), _, Some(_)) => Err(about_anchor(
                "`from` and `anchored` exclude each other: an anchor is a day of the week",
            )),
            (Some(anchor), _, None) => Ok(anchor),
            (None, Unit::Week, None) => Err(PolicyError::new(
                "a quota per week needs its first day: `from monday`, or `anchored` and a date",
            )),
            (None, Unit::Week, Some(first_day)) => {
                // January 5, 1970 was a Monday.
                let monday = Date::constant(1970, 1, 5);
                let days = first_day.since(Weekday::Monday);
                let first = monday.checked_add(jiff::Span::new().days(days));
                Ok(first.unwrap_or(monday).to_datetime(time))
            }
            (None, _, Some(_)) => {
                let message = format!(
                    "`from` is only for a quota per week, and not per {}",
                    self.unit.keyword()
                );
                Err(PolicyError::new(message))
            }
            (None, _, None) => Ok(Date::constant(1970, 1, 1).to_datetime(time)),
        }
    }
}

fn about_anchor(message: &str) -> PolicyError {
    PolicyError::new(message).about(Part::Anchor)
}

/// Checks the numbers of a quota, and finds its time zone in the database.
pub(super) fn rule(spec: &Quota) -> Result<QuotaRule, PolicyError> {
    let limit = check_exact("limit", spec.limit)?;
    let origin = spec.origin()?;
    if origin.subsec_nanosecond() != 0 {
        let message = format!("a window begins at {origin}; it must begin at a whole second");
        return Err(about_anchor(&message));
    }
    let zone = zone(&spec.zone)?;
    let since = spec.since.map_or(Ok(0), |since| instant(&zone, since))?;
    let rollover = spec.rollover.map(rollover).transpose()?;
    let calendar = Arc::new(Calendar::new(spec.unit, zone, origin));
    Ok(QuotaRule { limit, raise: 0, calendar, rollover, since })
}

/// Returns the first instant at which the clock of a zone shows a time, in microseconds since 1970.
fn instant(zone: &TimeZone, time: DateTime) -> Result<u64, PolicyError> {
    match first_instant(zone, time) {
        Some(micros) if time.subsec_nanosecond() == 0 => Ok(u64::try_from(micros).unwrap_or(0)),
        _ => {
            let message = format!(
                "a subscription begins at {time}; it must begin at a whole second, in a year before \
                 9999"
            );
            Err(PolicyError::new(message).about(Part::Since))
        }
    }
}

fn rollover(share: Share) -> Result<Rollover, PolicyError> {
    let (parts, of) = share.fraction();
    Rollover::new(parts.into(), of.into()).ok_or_else(|| {
        let message = format!(
            "the rollover is {share}; it must be above 0, and its denominator at most {}",
            Rollover::MAX
        );
        PolicyError::new(message).about(Part::Rollover)
    })
}

fn zone(name: &str) -> Result<TimeZone, PolicyError> {
    if name.is_empty() {
        let message = "a quota needs a time zone, such as `in Europe/Amsterdam` or `in UTC`";
        return Err(PolicyError::new(message).about(Part::Zone));
    }
    // The database of the program, and not the one of the machine: all machines with one build of
    // the program then compute the same windows.
    let database = TimeZoneDatabase::bundled();
    let found = database.get(name).ok().filter(|zone| zone.iana_name() == Some(name));
    found.ok_or_else(|| {
        let known: Vec<String> = database.available().map(|name| name.to_string()).collect();
        let known: Vec<&str> = known.iter().map(String::as_str).collect();
        let hint = closest(name, &known);
        let hint = hint.map_or(String::new(), |known| format!("; did you mean `{known}`?"));
        let message = format!(
            "`{}` is not a time zone of the IANA database, such as `Europe/Amsterdam` or `UTC`{hint}",
            shown(name)
        );
        PolicyError::new(message).about(Part::Zone)
    })
}

/// Reads a time of day, such as `05:00` or `05:00:30`.
pub(super) fn parse_time(text: &str) -> Option<Time> {
    let format = if text.len() == 5 { "%H:%M" } else { "%H:%M:%S" };
    Time::strptime(format, text).ok()
}

/// Reads a date and a time of day, such as `2026-01-31T09:00`, or only a date.
pub(super) fn parse_anchor(text: &str) -> Option<DateTime> {
    let (date, time) = text.split_once('T').unwrap_or((text, "00:00"));
    Some(Date::strptime("%Y-%m-%d", date).ok()?.to_datetime(parse_time(time)?))
}

pub(super) fn parse_weekday(text: &str) -> Option<Weekday> {
    let weekdays = Weekday::Monday.cycle_forward().take(7);
    weekdays.into_iter().find(|weekday| keyword(*weekday) == text)
}

fn keyword(weekday: Weekday) -> &'static str {
    match weekday {
        Weekday::Monday => "monday",
        Weekday::Tuesday => "tuesday",
        Weekday::Wednesday => "wednesday",
        Weekday::Thursday => "thursday",
        Weekday::Friday => "friday",
        Weekday::Saturday => "saturday",
        Weekday::Sunday => "sunday",
    }
}

/// Prints the quota in the form that the parser reads.
impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_credits() {
            return write!(f, "credits {}", self.limit);
        }
        write!(f, "quota {}/{}", self.limit, self.unit.keyword())?;
        if let Some(first_day) = self.first_day {
            write!(f, " from {}", keyword(first_day))?;
        }
        if let Some(anchor) = self.anchor {
            write!(f, " anchored {}T{}", anchor.date(), Short(anchor.time()))?;
        }
        write!(f, " in {}", self.zone)?;
        if let Some(time) = self.at {
            write!(f, " at {}", Short(time))?;
        }
        if let Some(share) = self.rollover {
            write!(f, " rollover {share}")?;
        }
        match self.since {
            Some(since) => write!(f, " since {}T{}", since.date(), Short(since.time())),
            None => Ok(()),
        }
    }
}

/// Prints a time of day without seconds if the seconds are 0.
struct Short(Time);

impl fmt::Display for Short {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(time) = self;
        write!(f, "{:02}:{:02}", time.hour(), time.minute())?;
        match time.second() {
            0 => Ok(()),
            second => write!(f, ":{second:02}"),
        }
    }
}
