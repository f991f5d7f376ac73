//! Parses the notations of time in logs at full precision, and rounds them down to whole
//! microseconds.
//!
//! | notation | example |
//! |---|---|
//! | access log | `17/May/2015:10:05:03 +0000` |
//! | ISO 8601, RFC 3339 | `2023-11-16T18:17:03.9799600Z`, `2023-11-16 18:17:03+01:00`, `2023-11-16` |
//! | RFC 2822, HTTP | `Sun, 17 May 2015 10:05:03 GMT` |
//! | syslog, without a year | `May 17 10:05:03`: the last such time that is not after tomorrow |
//! | number | `1431857103.123456` |
//!
//! The default zone is UTC. The second 60 of a leap second is the first second of the next minute,
//! as in POSIX.
//!
//! The options can set the unit of times that are plain numbers. By default, the size of the first
//! number in the input determines the unit:
//!
//! | from | to below | unit | years |
//! |---|---|---|---|
//! | 10^8 | 10^10 | s | 1973 to 2286 |
//! | 10^11 | 10^13 | ms | the same |
//! | 10^14 | 10^16 | µs | the same |
//! | 10^17 | 10^19 | ns | the same |
//!
//! Other numbers need `--time-unit`.

mod calendar;

use jiff::Timestamp;

use self::calendar::{iso_minute, log_minute, other_notation, seconds, yearless};
use crate::trace::bounds::TIME_MAX;
use crate::trace::decimal::{Decimal, Whole};
use crate::trace::error::{Error, ErrorKind};
use crate::trace::malformed::{Fault, value};
use crate::trace::options::TimeUnit;

/// A parser of times. It remembers the start of the last minute, so that it needs no calendar for
/// another time in the same minute.
#[derive(Debug)]
pub(in crate::trace) struct Clock {
    unit: Option<TimeUnit>,
    log_minute: Minute<17>,
    iso_minute: Minute<16>,
    /// The present time in microseconds since 1970. It determines the year of times without a year.
    now: i64,
}

/// The text of a minute, and its start in microseconds since 1970.
#[derive(Debug)]
struct Minute<const N: usize> {
    text: [u8; N],
    zone: [u8; 6],
    zone_len: usize,
    begins: i64,
}

impl<const N: usize> Minute<N> {
    /// A value that matches no text. Its `zone_len` is greater than the length of `zone`, so the
    /// comparison always fails.
    const NONE: Self = Self { text: [0; N], zone: [0; 6], zone_len: 7, begins: 0 };

    #[inline]
    fn begins(&self, text: &[u8; N], zone: &[u8]) -> Option<i64> {
        let known = self.text == *text && self.zone.get(..self.zone_len) == Some(zone);
        known.then_some(self.begins)
    }

    fn remember(&mut self, text: &[u8; N], zone: &[u8], begins: i64) {
        if let Some(place) = self.zone.get_mut(..zone.len()) {
            place.copy_from_slice(zone);
            self.zone_len = zone.len();
            self.text = *text;
            self.begins = begins;
        }
    }
}

impl Clock {
    pub(in crate::trace) fn new(unit: Option<TimeUnit>) -> Self {
        let now = Timestamp::now().as_microsecond();
        Self { unit, log_minute: Minute::NONE, iso_minute: Minute::NONE, now }
    }

    /// Parses the time of a line of an access log. The usual notation of access logs is tried
    /// first.
    #[inline]
    pub(in crate::trace) fn read_log(&mut self, text: &[u8]) -> Result<u64, Fault> {
        match self.log_time(text) {
            Some(micros) => in_range(micros, text),
            None => self.read(text),
        }
    }

    /// Parses a time in any notation.
    pub(in crate::trace) fn read(&mut self, text: &[u8]) -> Result<u64, Fault> {
        let text = text.trim_ascii();
        if let Some(micros) = self.iso_time(text).or_else(|| self.log_time(text)) {
            return in_range(micros, text);
        }
        if let Some(number) = Decimal::parse(text) {
            return self.number(number, text);
        }
        let other = yearless(text, self.now)
            .or_else(|| std::str::from_utf8(text).ok().and_then(other_notation));
        match other {
            Some(micros) => in_range(micros, text),
            None => Err(Fault::malformed(format!("{} is not a valid time", value(text)))),
        }
    }

    /// Parses `17/May/2015:10:05:03 +0000`.
    #[inline]
    fn log_time(&mut self, text: &[u8]) -> Option<i64> {
        let (minute, rest) = text.split_first_chunk::<17>()?;
        let (within, zone) = seconds(rest)?;
        if let Some(begins) = self.log_minute.begins(minute, zone) {
            return Some(begins + within);
        }
        let begins = log_minute(minute, zone)?;
        self.log_minute.remember(minute, zone, begins);
        Some(begins + within)
    }

    /// Parses `2023-11-16 18:17:03.9799600`.
    #[inline]
    fn iso_time(&mut self, text: &[u8]) -> Option<i64> {
        let (minute, rest) = text.split_first_chunk::<16>()?;
        let (within, zone) = match rest {
            [b':', ..] => seconds(rest)?,
            _ => (0, rest),
        };
        if let Some(begins) = self.iso_minute.begins(minute, zone) {
            return Some(begins + within);
        }
        let begins = iso_minute(minute, zone)?;
        self.iso_minute.remember(minute, zone, begins);
        Some(begins + within)
    }

    fn number(&mut self, number: Decimal, text: &[u8]) -> Result<u64, Fault> {
        let unit = match self.unit {
            Some(unit) => unit,
            None => *self.unit.insert(plain_unit(number).ok_or_else(|| unclear_unit(text))?),
        };
        match number.whole(micros_exponent(unit)) {
            Whole::Number { floor, .. } if floor <= TIME_MAX => Ok(floor),
            Whole::Negative => Err(before_1970(text)),
            _ => Err(after_2112(text)),
        }
    }
}

fn in_range(micros: i64, text: &[u8]) -> Result<u64, Fault> {
    match u64::try_from(micros) {
        Ok(micros) if micros <= TIME_MAX => Ok(micros),
        Ok(_) => Err(after_2112(text)),
        Err(_) => Err(before_1970(text)),
    }
}

#[cold]
fn before_1970(text: &[u8]) -> Fault {
    Fault::malformed(format!("the time {} is before 1970", value(text)))
}

#[cold]
fn after_2112(text: &[u8]) -> Fault {
    let reason = format!("the time {} is beyond {TIME_MAX} µs since 1970, in 2112", value(text));
    Fault::malformed(reason)
}

#[cold]
fn unclear_unit(text: &[u8]) -> Fault {
    let message = format!(
        "the unit of the time {} is not plain from its size; name it with --time-unit s, ms, us or ns",
        value(text)
    );
    Fault::Fatal(Error::new(ErrorKind::UnclearUnit, message))
}

/// Returns the power of ten that converts the unit to microseconds.
fn micros_exponent(unit: TimeUnit) -> i32 {
    match unit {
        TimeUnit::Seconds => 6,
        TimeUnit::Milliseconds => 3,
        TimeUnit::Microseconds => 0,
        TimeUnit::Nanoseconds => -3,
    }
}

fn plain_unit(number: Decimal) -> Option<TimeUnit> {
    let Whole::Number { floor, .. } = number.whole(0) else {
        return None;
    };
    match floor {
        100_000_000..10_000_000_000 => Some(TimeUnit::Seconds),
        100_000_000_000..10_000_000_000_000 => Some(TimeUnit::Milliseconds),
        100_000_000_000_000..10_000_000_000_000_000 => Some(TimeUnit::Microseconds),
        100_000_000_000_000_000..10_000_000_000_000_000_000 => Some(TimeUnit::Nanoseconds),
        _ => None,
    }
}
