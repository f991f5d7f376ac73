//! Points in time, waits, and the bounds that keep every sum and product exact.

use core::fmt;
use core::time::Duration;
use std::time::SystemTime;

/// The maximum of all intermediate values of a decision: 2^52.
///
/// Redis scripts compute with doubles, which represent integers exactly up to 2^53. The sum of two
/// values up to 2^52 is at most 2^53, so the sum is exact. The quotient `floor(a / b)` of two such
/// values is exact too.
pub const MAX_EXACT: u64 = 1 << 52;

/// The maximum window, period, recovery or block: 2^51 µs, a little over 71 years.
///
/// A [`Timestamp`] is less than 2^52 µs. So the sum of a time and a span of at most 2^51 µs is less
/// than 2^53 µs, and is exact.
pub const MAX_SPAN: Duration = Duration::from_micros(MAX_SPAN_MICROS);

pub(crate) const MAX_SPAN_MICROS: u64 = 1 << 51;

/// A point in time on the clock of the store: whole microseconds since 1970-01-01T00:00:00Z.
///
/// ```
/// use tidegate_core::Timestamp;
///
/// let t = Timestamp::from_micros(1_790_000_000_000_123);
/// assert_eq!(t.as_micros(), 1_790_000_000_000_123);
/// assert!(t < Timestamp::MAX);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The start of 1970.
    pub const EPOCH: Self = Self(0);

    /// The maximum time: 2^52 − 1 µs, in September 2112. If a clock shows a later time, this
    /// maximum is used instead.
    pub const MAX: Self = Self(MAX_EXACT - 1);

    /// Creates a time from microseconds since 1970. A time after [`Timestamp::MAX`] is replaced by
    /// [`Timestamp::MAX`].
    #[must_use]
    pub const fn from_micros(micros: u64) -> Self {
        if micros < MAX_EXACT { Self(micros) } else { Self::MAX }
    }

    /// Returns the microseconds since 1970.
    #[must_use]
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// Returns the time in the form of RFC 3339, in UTC.
    ///
    /// ```
    /// use tidegate_core::Timestamp;
    ///
    /// let time = Timestamp::from_micros(1_790_000_000_000_123);
    /// assert_eq!(time.rfc3339().to_string(), "2026-09-21T14:13:20.000123Z");
    /// ```
    pub fn rfc3339(self) -> impl fmt::Display {
        let micros = i64::try_from(self.0).unwrap_or(i64::MAX);
        jiff::Timestamp::from_microsecond(micros).unwrap_or(jiff::Timestamp::MAX)
    }

    /// Returns the time `span` later, at most [`Timestamp::MAX`].
    #[must_use]
    pub fn saturating_add(self, span: Duration) -> Self {
        Self::from_micros(self.0.saturating_add(micros_of(span)))
    }

    /// Returns the time `span` earlier, at least the start of 1970.
    #[must_use]
    pub fn saturating_sub(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(micros_of(span)))
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:06}s", self.0 / 1_000_000, self.0 % 1_000_000)
    }
}

/// Prints the seconds since 1970, with six decimals.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// Rounds the time down to the microsecond. A time before 1970 becomes [`Timestamp::EPOCH`], and a
/// time after [`Timestamp::MAX`] becomes [`Timestamp::MAX`].
impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Self {
        let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self::from_micros(micros_of(since))
    }
}

impl From<Timestamp> for SystemTime {
    fn from(time: Timestamp) -> Self {
        Self::UNIX_EPOCH + Duration::from_micros(time.0)
    }
}

/// A wait until a charge is admitted. A wait can be endless or unknown.
///
/// A wait is stored as one number, so that the longest of several waits is the maximum of the
/// numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Wait(u64);

impl Wait {
    /// No wait: the charge is admitted.
    pub const ZERO: Self = Self(0);

    /// An endless wait. The policy never admits the cost, because the cost is above its maximum at
    /// one instant.
    pub const NEVER: Self = Self(u64::MAX);

    /// An unknown wait: until another caller frees a slot. It has no earliest lapse.
    pub const UNKNOWN: Self = Self(u64::MAX - 1);

    /// Numbers from this number to `UNKNOWN` are unknown waits: the difference is the time until
    /// the earliest lapse.
    const MIN_UNKNOWN: u64 = 1 << 63;

    /// Creates a wait from microseconds. A wait of 2^63 microseconds or more becomes the longest
    /// known wait.
    #[must_use]
    pub const fn from_micros(micros: u64) -> Self {
        Self(if micros < Self::MIN_UNKNOWN { micros } else { Self::MIN_UNKNOWN - 1 })
    }

    /// Creates an unknown wait with its earliest lapse: the time until the first hold lapses.
    pub(crate) const fn unknown_until(earliest_lapse: u64) -> Self {
        let sum = Self::MIN_UNKNOWN.saturating_add(earliest_lapse);
        if sum < Self::UNKNOWN.0 { Self(sum) } else { Self::UNKNOWN }
    }

    /// Returns the microseconds until the earliest lapse, if the wait is unknown and has one.
    pub(crate) const fn earliest_lapse(self) -> Option<u64> {
        if self.0 < Self::UNKNOWN.0 { self.0.checked_sub(Self::MIN_UNKNOWN) } else { None }
    }

    pub(crate) const fn is_unknown(self) -> bool {
        !self.is_known() && self.0 < Self::NEVER.0
    }

    /// Returns the wait from `now` to `then`, both in microseconds. The wait is zero if `then` is
    /// before `now`, and at most the longest known wait.
    #[must_use]
    #[inline]
    pub const fn between(now: u64, then: u64) -> Self {
        Self::from_micros(then.saturating_sub(now))
    }

    /// Returns `true` if there is no wait.
    #[must_use]
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    pub(crate) const fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// Returns the part of this wait that remains after `micros` have passed.
    pub(crate) const fn after(self, micros: u64) -> Self {
        if self.is_known() { Self(self.0.saturating_sub(micros)) } else { self }
    }

    const fn is_known(self) -> bool {
        self.0 < Self::MIN_UNKNOWN
    }

    /// Returns the wait in microseconds, or `None` for an endless or unknown wait.
    #[must_use]
    pub const fn as_micros(self) -> Option<u64> {
        if self.is_known() { Some(self.0) } else { None }
    }

    /// Returns the wait as a duration, or `None` for an endless or unknown wait.
    #[must_use]
    pub const fn as_duration(self) -> Option<Duration> {
        match self.as_micros() {
            Some(micros) => Some(Duration::from_micros(micros)),
            None => None,
        }
    }
}

/// Rounds the duration up to microseconds.
impl From<Duration> for Wait {
    fn from(wait: Duration) -> Self {
        Self::from_micros(micros_of_ceil(wait))
    }
}

/// Returns a duration in microseconds, rounded down. Returns `u64::MAX` if the number is too large.
pub(crate) fn micros_of(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

/// Returns a duration in microseconds, rounded up. Returns `u64::MAX` if the number is too large.
pub(crate) fn micros_of_ceil(span: Duration) -> u64 {
    u64::try_from(span.as_nanos().div_ceil(1_000)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_beyond_the_last_time_stands_still() {
        assert_eq!(Timestamp::from_micros(u64::MAX), Timestamp::MAX);
        assert_eq!(Timestamp::from_micros(MAX_EXACT), Timestamp::MAX);
        assert_eq!(Timestamp::from_micros(MAX_EXACT - 1).as_micros(), MAX_EXACT - 1);
        assert_eq!(Timestamp::MAX.saturating_add(Duration::MAX), Timestamp::MAX);
        assert_eq!(Timestamp::EPOCH.saturating_sub(Duration::from_secs(1)), Timestamp::EPOCH);
    }

    #[test]
    fn durations_round_as_their_helper_says() {
        assert_eq!(micros_of(Duration::from_nanos(1_999)), 1);
        assert_eq!(micros_of_ceil(Duration::from_nanos(1_001)), 2);
        assert_eq!(micros_of_ceil(Duration::from_nanos(1_000)), 1);
        assert_eq!(micros_of(Duration::MAX), u64::MAX);
        assert_eq!(micros_of_ceil(Duration::MAX), u64::MAX);
    }

    #[test]
    fn waits_compare_and_never_is_the_longest() {
        assert!(Wait::ZERO < Wait::between(1, 2) && Wait::between(1, 2) < Wait::NEVER);
        assert!(Wait::between(2, 1).is_zero());
        assert_eq!(Wait::between(2, 5).as_duration(), Some(Duration::from_micros(3)));
        assert_eq!(Wait::NEVER.as_duration(), None);
        assert_eq!(Wait::UNKNOWN.as_duration(), None);
        assert_eq!(Wait::UNKNOWN.after(5), Wait::UNKNOWN);
        assert_eq!(Wait::UNKNOWN.earliest_lapse(), None);
        let unknown = Wait::unknown_until(5);
        assert_eq!((unknown.earliest_lapse(), unknown.as_micros()), (Some(5), None));
        assert!(unknown.is_unknown() && Wait::UNKNOWN.is_unknown() && !Wait::NEVER.is_unknown());
        assert!(Wait::from_micros(u64::MAX) < unknown && unknown < Wait::NEVER);
        assert_eq!(Wait::between(0, u64::MAX), Wait::from_micros(u64::MAX));
        assert_eq!(Wait::unknown_until(u64::MAX), Wait::UNKNOWN);
        assert!(Wait::from(Duration::MAX) < Wait::UNKNOWN && Wait::UNKNOWN < Wait::NEVER);
    }

    #[test]
    fn a_system_time_is_a_timestamp_to_the_microsecond() {
        let epoch = SystemTime::UNIX_EPOCH;
        let time = Timestamp::from(epoch + Duration::from_nanos(1_500_000_999));
        assert_eq!((time.as_micros(), time.to_string().as_str()), (1_500_000, "1.500000s"));
        assert_eq!(SystemTime::from(time), epoch + Duration::from_millis(1_500));
        assert_eq!(Timestamp::from(epoch - Duration::from_secs(1)), Timestamp::EPOCH);
        assert_eq!(Timestamp::from(epoch + Duration::from_secs(1 << 40)), Timestamp::MAX);
    }
}
