//! Numbers and points in time, in all formats that servers send.

use std::time::{Duration, SystemTime};

use tidegate_core::MAX_SPAN;

/// The smallest number that means seconds since 1970. A smaller number means a span from now,
/// because 10⁹ s are 31 years.
const MIN_EPOCH_SECS: u64 = 1_000_000_000;

/// The smallest number that means milliseconds since 1970. As seconds, 10¹¹ would be in the year
/// 5138.
const MIN_EPOCH_MILLIS: u64 = 100_000_000_000;

/// The units of durations in Go, in nanoseconds. If two units begin with the same letter, the
/// longer unit is first.
const GO_UNITS: [(&str, u128); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Returns the time that `text` means. The time is not before `now`, and at most [`MAX_SPAN`]
/// later.
pub(super) fn moment(text: &str, now: SystemTime) -> Option<SystemTime> {
    let text = text.trim_matches([' ', '\t']);
    if let Some(number) = ceil_number(text) {
        return Some(moment_of_number(number, now));
    }
    if let Some(span) = go_duration(text) {
        return Some(after(now, span));
    }
    let time = match text.parse::<jiff::Timestamp>() {
        Ok(time) => SystemTime::try_from(time).ok()?,
        Err(_) => httpdate::parse_http_date(text).ok()?,
    };
    Some(bounded(time, now))
}

/// Returns the time that a number means. A number below 10⁹ is a span from `now`, in seconds. A
/// number below 10¹¹ is a time in seconds since 1970. Any other number is a time in milliseconds
/// since 1970.
pub(super) fn moment_of_number(number: u64, now: SystemTime) -> SystemTime {
    let since_epoch = match number {
        ..MIN_EPOCH_SECS => return after(now, Duration::from_secs(number)),
        MIN_EPOCH_SECS..MIN_EPOCH_MILLIS => Duration::from_secs(number),
        _ => Duration::from_millis(number),
    };
    let time = SystemTime::UNIX_EPOCH.checked_add(since_epoch);
    time.map_or_else(|| after(now, Duration::MAX), |time| bounded(time, now))
}

fn after(now: SystemTime, span: Duration) -> SystemTime {
    let span = span.min(MAX_SPAN);
    // If the sum is outside of the clock's range, the result is `now`.
    now.checked_add(span).unwrap_or(now)
}

fn bounded(time: SystemTime, now: SystemTime) -> SystemTime {
    after(now, time.duration_since(now).unwrap_or_default())
}

/// Parses a number without a sign, with or without a fraction, and rounds it up. Returns `u64::MAX`
/// if the number does not fit.
pub(super) fn ceil_number(text: &str) -> Option<u64> {
    let (whole, fraction) = decimal(text)?;
    Some(whole.saturating_add(u64::from(fraction.bytes().any(|digit| digit != b'0'))))
}

/// Like [`ceil_number`], but rounds down.
pub(super) fn floor_number(text: &str) -> Option<u64> {
    decimal(text).map(|(whole, _)| whole)
}

/// Splits a number at its point. Returns the integer before the point, and the digits after the
/// point.
fn decimal(text: &str) -> Option<(u64, &str)> {
    let text = text.trim_matches([' ', '\t']);
    let (whole, fraction) = match text.split_once('.') {
        None => (text, ""),
        Some((_, "")) => return None,
        Some(parts) => parts,
    };
    let has_digits_only = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !has_digits_only(whole) || !has_digits_only(fraction) {
        return None;
    }
    // The text consists of digits, so the only possible error is an overflow.
    Some((whole.parse().unwrap_or(u64::MAX), fraction))
}

/// Parses a duration of Go: `6m0s`, `1h2m3.5s`, `20ms`.
fn go_duration(text: &str) -> Option<Duration> {
    let mut nanos: u128 = 0;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|char: char| !char.is_ascii_digit() && char != '.')?;
        let (number, tail) = rest.split_at(digits);
        let (unit, in_nanos) = GO_UNITS.iter().find(|(unit, _)| {
            // A number or the end of the text must follow the unit, so that `m` does not match the
            // beginning of `ms`.
            tail.strip_prefix(unit).is_some_and(|tail| !tail.starts_with(char::is_alphabetic))
        })?;
        let (whole, fraction) = decimal(number)?;
        let part = u128::from(whole) * in_nanos + fraction_of(*in_nanos, fraction);
        nanos = nanos.saturating_add(part);
        rest = tail.strip_prefix(unit)?;
    }
    let secs = u64::try_from(nanos / 1_000_000_000).unwrap_or(u64::MAX);
    let nanos = u32::try_from(nanos % 1_000_000_000).ok()?;
    (!text.is_empty()).then(|| Duration::new(secs, nanos))
}

/// Returns the value of `0.digits` units in nanoseconds, rounded up. Digits after the 13th only
/// round up, because an hour in nanoseconds has 13 digits.
fn fraction_of(unit: u128, digits: &str) -> u128 {
    let (exact, more) = digits.split_at(digits.len().min(13));
    let mut scale: u128 = 1;
    let mut value: u128 = 0;
    for digit in exact.bytes() {
        value = value * 10 + u128::from(digit - b'0');
        scale *= 10;
    }
    let is_more = more.bytes().any(|digit| digit != b'0');
    ((value + u128::from(is_more)) * unit).div_ceil(scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-03-26T16:00:00Z
    const NOW: u64 = 1_774_540_800;

    fn now() -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(NOW)
    }

    /// Returns the time from now.
    fn wait(text: &str) -> Option<Duration> {
        moment(text, now()).map(|time| time.duration_since(now()).unwrap())
    }

    #[test]
    fn a_number_is_a_span_or_a_time_since_1970_by_its_size() {
        let secs = |secs| Some(Duration::from_secs(secs));
        assert_eq!(wait("0"), secs(0));
        assert_eq!(wait("999999999"), secs(999_999_999));
        assert_eq!(wait("1000000000"), secs(0), "a past time is now");
        assert_eq!(wait("1774540830"), secs(30));
        assert_eq!(wait("1774540829.001"), secs(30));
        assert_eq!(wait("1774540830500"), Some(Duration::from_millis(30_500)));
        assert_eq!(wait("100000000000"), secs(0), "1973 in milliseconds");
        assert_eq!(wait("99999999999"), Some(MAX_SPAN));
        for text in ["18446744073709551615", "18446744073709551616", &"9".repeat(60_000)] {
            assert_eq!(wait(text), Some(MAX_SPAN));
        }
    }

    #[test]
    fn fractions_round_up_and_what_is_no_number_is_none() {
        let waits = ["2.0", "2.000001", "0.26", " 7\t", "007", "0.0"].map(wait);
        let expected = [2, 3, 1, 7, 7, 0].map(|secs| Some(Duration::from_secs(secs)));
        assert_eq!(waits, expected);
        for text in
            ["", " ", ".", "1.", ".5", "-1", "+1", "1e3", "1,2", "1.2.3", "0x10", "NaN", "१"]
        {
            assert_eq!(wait(text), None, "{text}");
        }
        let floors = ["598.9", "0.9", "7", "99999999999999999999"].map(floor_number);
        assert_eq!(floors, [Some(598), Some(0), Some(7), Some(u64::MAX)]);
    }

    #[test]
    fn durations_as_go_writes_them() {
        let cases = [
            ("6m0s", 360_000_000_000),
            ("1h2m3.5s", 3_723_500_000_000),
            ("20ms", 20_000_000),
            ("1.5s", 1_500_000_000),
            ("0s", 0),
            ("300µs", 300_000),
            ("300μs", 300_000),
            ("1us2ns", 1_002),
            ("0.0000000001s", 1),
            ("1.00000000000000000001h", 3_600_000_000_001),
        ];
        for (text, nanos) in cases {
            assert_eq!(wait(text), Some(Duration::from_nanos(nanos)), "{text}");
        }
        for text in ["s", "1", "1x", "1s ", "m1", "1m1", "1ms1x", "1..5s", "-1s", "1 s", "1sm"] {
            assert_eq!(go_duration(text), None, "{text}");
        }
        let most = format!("{}h", u64::MAX);
        assert_eq!(wait(&most), Some(MAX_SPAN));
        assert_eq!(wait(&most.repeat(100)), Some(MAX_SPAN));
    }

    #[test]
    fn dates_of_http_and_times_of_iso_8601() {
        let cases = [
            ("Thu, 26 Mar 2026 16:00:30 GMT", 30_000),
            ("Thursday, 26-Mar-26 16:00:30 GMT", 30_000),
            ("Thu Mar 26 16:00:30 2026", 30_000),
            ("Thu, 26 Mar 2026 15:59:59 GMT", 0),
            ("2026-03-26T16:00:30Z", 30_000),
            ("2026-03-26T16:00:30.25Z", 30_250),
            ("2026-03-26T17:01:00+01:00", 60_000),
            ("2026-03-26T16:01Z", 60_000),
            ("1999-01-01T00:00:00Z", 0),
        ];
        for (text, millis) in cases {
            assert_eq!(wait(text), Some(Duration::from_millis(millis)), "{text}");
        }
        for text in ["2026-03-26", "2026-03-26T16:00:30", "Thu, 26 Mar 2026", "tomorrow", "16:00"] {
            assert_eq!(wait(text), None, "{text}");
        }
        let most = wait("9999-12-30T00:00:00Z");
        assert_eq!(most, Some(MAX_SPAN));
    }
}
