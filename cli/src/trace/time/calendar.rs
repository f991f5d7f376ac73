//! Converts dates and time zones to microseconds. `jiff` does the arithmetic.
//!
//! `jiff::fmt::strtime` is not used, because it accepts fields with a wrong number of digits. It
//! would also need a separate format for each separator and each notation of a zone.

use jiff::Timestamp;
use jiff::civil::{Date, DateTime, Time};
use jiff::fmt::rfc2822;
use jiff::tz::Offset;

const SECOND: i64 = 1_000_000;

/// Parses the seconds of a time, such as `:03.123 +0000`. Returns the microseconds within the
/// minute, and the rest of the text.
#[inline]
pub(in crate::trace) fn seconds(text: &[u8]) -> Option<(i64, &[u8])> {
    let [b':', tens, units, rest @ ..] = text else {
        return None;
    };
    let second = two_digits([*tens, *units])?;
    if second > 60 {
        return None;
    }
    let within = i64::from(second) * SECOND;
    match rest {
        [b'.' | b',', decimals @ ..] => {
            let count = decimals.iter().take_while(|byte| byte.is_ascii_digit()).count();
            let (decimals, zone) = decimals.split_at_checked(count)?;
            (count > 0).then(|| (within + micros(decimals), zone))
        }
        _ => Some((within, rest)),
    }
}

/// Returns the decimals of a second as microseconds, rounded down.
fn micros(decimals: &[u8]) -> i64 {
    let padded = decimals.iter().copied().chain(std::iter::repeat(b'0')).take(6);
    padded.fold(0, |sum, digit| sum * 10 + i64::from(digit - b'0'))
}

#[inline]
fn two_digits([tens, units]: [u8; 2]) -> Option<i8> {
    let (tens, units) = (tens.wrapping_sub(b'0'), units.wrapping_sub(b'0'));
    (tens < 10 && units < 10).then(|| (tens * 10 + units).cast_signed())
}

fn year([a, b, c, d]: [u8; 4]) -> Option<i16> {
    Some(i16::from(two_digits([a, b])?) * 100 + i16::from(two_digits([c, d])?))
}

/// Parses `17/May/2015:10:05`.
pub(in crate::trace) fn log_minute(text: &[u8; 17], zone: &[u8]) -> Option<i64> {
    let &[d1, d2, b'/', m1, m2, m3, b'/', y1, y2, y3, y4, b':', h1, h2, b':', n1, n2] = text else {
        return None;
    };
    let date =
        Date::new(year([y1, y2, y3, y4])?, month([m1, m2, m3])?, two_digits([d1, d2])?).ok()?;
    minute_begins(date, two_digits([h1, h2])?, two_digits([n1, n2])?, zone)
}

fn month(name: [u8; 3]) -> Option<i8> {
    const NAMES: [&[u8; 3]; 12] = [
        b"jan", b"feb", b"mar", b"apr", b"may", b"jun", b"jul", b"aug", b"sep", b"oct", b"nov",
        b"dec",
    ];
    let name = name.to_ascii_lowercase();
    (1..).zip(NAMES).find_map(|(number, known)| (known[..] == name[..]).then_some(number))
}

/// Parses `2023-11-16 18:17`.
pub(in crate::trace) fn iso_minute(text: &[u8; 16], zone: &[u8]) -> Option<i64> {
    let &[y1, y2, y3, y4, b'-' | b'/', m1, m2, b'-' | b'/', d1, d2, parted, h1, h2, b':', n1, n2] =
        text
    else {
        return None;
    };
    if !matches!(parted, b'T' | b't' | b' ' | b'_') {
        return None;
    }
    let date = Date::new(year([y1, y2, y3, y4])?, two_digits([m1, m2])?, two_digits([d1, d2])?);
    minute_begins(date.ok()?, two_digits([h1, h2])?, two_digits([n1, n2])?, zone)
}

fn minute_begins(date: Date, hour: i8, minute: i8, zone: &[u8]) -> Option<i64> {
    let time = Time::new(hour, minute, 0, 0).ok()?;
    let begins = offset(zone)?.to_timestamp(date.to_datetime(time)).ok()?;
    Some(begins.as_microsecond())
}

/// Parses a time zone: `Z`, `+01:00`, `+0100`, `+01`, `UTC`, `GMT` or an empty text, with or
/// without a space before it.
fn offset(zone: &[u8]) -> Option<Offset> {
    let zone = zone.trim_ascii_start();
    let (sign, digits) = match zone {
        b"" | b"Z" | b"z" | b"UTC" | b"GMT" => return Some(Offset::UTC),
        [b'+', digits @ ..] => (1, digits),
        [b'-', digits @ ..] => (-1, digits),
        _ => return None,
    };
    let (hours, minutes) = match *digits {
        [h1, h2] => (two_digits([h1, h2])?, 0),
        [h1, h2, m1, m2] | [h1, h2, b':', m1, m2] => (two_digits([h1, h2])?, two_digits([m1, m2])?),
        _ => return None,
    };
    let minutes = (minutes < 60).then(|| i32::from(hours) * 60 + i32::from(minutes))?;
    Offset::from_seconds(sign * minutes * 60).ok()
}

/// Parses a time without a year, such as `May 17 10:05:03`. The year is the last year for which the
/// time is at most a day after `now`. The day allows for differences between clocks and time zones.
/// February 29 does not exist in every year, so the year can be several years ago.
pub(in crate::trace) fn yearless(text: &[u8], now: i64) -> Option<i64> {
    const DAY: i64 = 86_400 * SECOND;
    const LEAP_YEARS_APART: i16 = 8;
    let &[m1, m2, m3, b' ', d1, d2, b' ', h1, h2, b':', n1, n2, ref rest @ ..] = text else {
        return None;
    };
    let tens = if d1 == b' ' { b'0' } else { d1 };
    let (month, day) = (month([m1, m2, m3])?, two_digits([tens, d2])?);
    let (hour, minute) = (two_digits([h1, h2])?, two_digits([n1, n2])?);
    let (within, zone) = seconds(rest)?;
    let latest = now.checked_add(DAY)?;
    let this_year = Offset::UTC.to_datetime(Timestamp::from_microsecond(latest).ok()?).year();
    let mut years = (this_year - LEAP_YEARS_APART..=this_year).rev();
    years.find_map(|year| {
        let begins = minute_begins(Date::new(year, month, day).ok()?, hour, minute, zone)?;
        Some(begins + within).filter(|micros| *micros <= latest)
    })
}

/// Parses rare notations with `jiff`.
pub(in crate::trace) fn other_notation(text: &str) -> Option<i64> {
    let instant = || text.parse::<Timestamp>().ok();
    let civil = || Offset::UTC.to_timestamp(text.parse::<DateTime>().ok()?).ok();
    let mail = || rfc2822::parse(text).map(|zoned| zoned.timestamp()).ok();
    let found = instant().or_else(civil).or_else(mail)?;
    // `div_euclid` also rounds times before 1970 down. The caller rejects these times later.
    Some(found.as_nanosecond().div_euclid(1_000)).and_then(|micros| i64::try_from(micros).ok())
}
