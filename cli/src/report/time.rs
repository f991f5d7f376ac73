//! Formats times and waits for people.

use std::time::Duration;

use jiff::{Timestamp, civil::DateTime, tz::TimeZone};

const MILLI: u128 = 1_000;
const SECOND: u128 = 1_000_000;
const MINUTE: u128 = 60 * SECOND;
const HOUR: u128 = 60 * MINUTE;
const DAY: u128 = 24 * HOUR;

/// Returns a wait as text: `250ms`, `12.5s`, `3m 20s`.
///
/// The text has at most two units. It is rounded up, so that the wait is long enough.
///
/// ```
/// use std::time::Duration;
/// use tidegate::report::wait_text;
///
/// assert_eq!(wait_text(Duration::from_millis(250)), "250ms");
/// assert_eq!(wait_text(Duration::from_millis(12_500)), "12.5s");
/// assert_eq!(wait_text(Duration::from_secs(200)), "3m 20s");
/// ```
#[must_use]
pub fn wait_text(wait: Duration) -> String {
    let micros = wait.as_nanos().div_ceil(1_000);
    // Rounding up can reach the next unit (59.96s becomes 1m), so each comparison uses the rounded
    // value.
    let up = |unit: u128| micros.div_ceil(unit) * unit;
    if micros == 0 {
        "0s".to_owned()
    } else if micros < MILLI {
        format!("{micros}µs")
    } else if up(MILLI / 10) < 10 * MILLI {
        tenths(up(MILLI / 10), MILLI, "ms")
    } else if up(MILLI) < SECOND {
        format!("{}ms", up(MILLI) / MILLI)
    } else if up(SECOND / 10) < MINUTE {
        tenths(up(SECOND / 10), SECOND, "s")
    } else if up(SECOND) < HOUR {
        pair(up(SECOND), MINUTE, "m", SECOND, "s")
    } else if up(MINUTE) < DAY {
        pair(up(MINUTE), HOUR, "h", MINUTE, "m")
    } else {
        pair(up(HOUR), DAY, "d", HOUR, "h")
    }
}

/// Returns a wait in microseconds as text.
#[must_use]
pub fn micros_text(micros: u64) -> String {
    wait_text(Duration::from_micros(micros))
}

/// Returns a time in microseconds since 1970 as text, in UTC, to the second: `2025-11-03 14:05:00`.
#[must_use]
pub fn moment(micros: u64) -> String {
    match utc(micros) {
        Some(time) => time.strftime("%Y-%m-%d %H:%M:%S").to_string(),
        None => format!("{micros}µs after 1970"),
    }
}

/// Returns a period as text. If both times have the same date, the text has the date once:
/// `2025-11-03 00:00:04 to 23:59:58 UTC`.
#[must_use]
pub fn period(first: u64, last: u64) -> String {
    let end = match (utc(first), utc(last)) {
        (Some(from), Some(to)) if from.date() == to.date() => to.strftime("%H:%M:%S").to_string(),
        _ => moment(last),
    };
    format!("{} to {end} UTC", moment(first))
}

/// Returns the civil time in UTC, or `None` after the year 9999.
#[must_use]
pub fn utc(micros: u64) -> Option<DateTime> {
    let timestamp = Timestamp::from_microsecond(i64::try_from(micros).ok()?).ok()?;
    Some(TimeZone::UTC.to_datetime(timestamp))
}

fn tenths(micros: u128, unit: u128, name: &str) -> String {
    match micros % unit / (unit / 10) {
        0 => format!("{}{name}", micros / unit),
        tenth => format!("{}.{tenth}{name}", micros / unit),
    }
}

fn pair(micros: u128, large: u128, large_name: &str, small: u128, small_name: &str) -> String {
    match micros % large / small {
        0 => format!("{}{large_name}", micros / large),
        rest => format!("{}{large_name} {rest}{small_name}", micros / large),
    }
}
