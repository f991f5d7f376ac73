//! Spans of time as text, and their bounds.

use std::fmt;
use std::time::Duration;

use super::error::shown;
use super::{PolicyError, show_micros, whole_micros};
use crate::time::MAX_SPAN_MICROS;

/// Units from the largest, with the words for each, the first being the one printed.
const UNITS: [(u64, &[&str]); 7] = [
    (604_800_000_000, &["w", "week", "weeks"]),
    (86_400_000_000, &["d", "day", "days"]),
    (3_600_000_000, &["h", "hour", "hours"]),
    (60_000_000, &["m", "min", "minute", "minutes"]),
    (1_000_000, &["s", "sec", "second", "seconds"]),
    (1_000, &["ms", "millisecond", "milliseconds"]),
    (1, &["us", "µs", "microsecond", "microseconds"]),
];

/// Whole microseconds of `span`, if that is a span a policy may have.
pub(super) fn check(what: &str, span: Duration) -> Result<u64, PolicyError> {
    let micros = whole_micros(what, span)?;
    if micros == 0 {
        return Err(PolicyError::new(format!("the {what} is 0; it is at least 1us")));
    }
    if micros > MAX_SPAN_MICROS {
        return Err(PolicyError::new(format!(
            "the {what} {span:?} is longer than 2^51 us ({})",
            show_micros(MAX_SPAN_MICROS - MAX_SPAN_MICROS % 86_400_000_000),
        )));
    }
    Ok(micros)
}

/// Reads `90s`, `1h30m`, `minute` (which is `1m`). The error says what would fit.
pub(super) fn parse(text: &str) -> Result<Duration, String> {
    let mut micros: u64 = 0;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, tail) = rest.split_at(digits);
        let letters = tail.find(|c: char| c.is_ascii_digit()).unwrap_or(tail.len());
        let (word, tail) = tail.split_at(letters);
        let unit = UNITS.iter().find(|(_, words)| words.contains(&word)).map(|(unit, _)| *unit);
        let Some(unit) = unit else {
            return Err(format!(
                "`{}` is not a span of time; write 250ms, 90s, 1m, 1h30m, 7d",
                shown(text)
            ));
        };
        let too_long = || format!("`{}` is longer than 2^51 us (71 years)", shown(text));
        let number: u64 =
            if number.is_empty() { 1 } else { number.parse().map_err(|_| too_long())? };
        micros = number
            .checked_mul(unit)
            .and_then(|part| micros.checked_add(part))
            .filter(|&sum| sum <= MAX_SPAN_MICROS)
            .ok_or_else(too_long)?;
        rest = tail;
    }
    if micros == 0 {
        return Err(format!("`{}` is not a span of time; it is at least 1us", shown(text)));
    }
    Ok(Duration::from_micros(micros))
}

/// Microseconds as the shortest text that [`parse`] reads back: `1m`, `90s`, `1500ms`.
pub(super) struct Micros(pub(super) u64);

impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.write_str("0s");
        }
        // Days are as far as it goes: `1w` is for writing, `7d` for reading.
        let (unit, words) =
            UNITS[1..].iter().find(|(unit, _)| self.0.is_multiple_of(*unit)).unwrap_or(&UNITS[6]);
        write!(f, "{}{}", self.0 / unit, words[0])
    }
}
