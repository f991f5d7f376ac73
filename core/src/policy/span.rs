//! Spans of time as text, and their bounds.

use std::fmt;
use std::time::Duration;

use super::error::{PolicyError, shown};
use crate::time::{MAX_SPAN_MICROS, micros_of};

/// The units in microseconds, the largest unit first. Each unit has a list of words. The first word
/// of the list is used for printing.
const UNITS: [(u64, &[&str]); 7] = [
    (604_800_000_000, &["w", "week", "weeks"]),
    (86_400_000_000, &["d", "day", "days"]),
    (3_600_000_000, &["h", "hour", "hours"]),
    (60_000_000, &["m", "min", "minute", "minutes"]),
    (1_000_000, &["s", "sec", "second", "seconds"]),
    (1_000, &["ms", "millisecond", "milliseconds"]),
    (1, &["us", "µs", "microsecond", "microseconds"]),
];

/// Returns a span in microseconds. Returns an error if a policy cannot contain this span.
pub(super) fn check(name: &str, span: Duration) -> Result<u64, PolicyError> {
    if !span.subsec_nanos().is_multiple_of(1_000) {
        return Err(PolicyError::new(format!(
            "the {name} {span:?} is not a whole number of microseconds"
        )));
    }
    let micros = micros_of(span);
    if micros == 0 {
        return Err(PolicyError::new(format!("the {name} is 0; it must be at least 1us")));
    }
    if micros > MAX_SPAN_MICROS {
        return Err(PolicyError::new(format!(
            "the {name} {span:?} is longer than 2^51 us ({})",
            Micros(MAX_SPAN_MICROS - MAX_SPAN_MICROS % 86_400_000_000),
        )));
    }
    Ok(micros)
}

/// Reads a span such as `90s`, `1h30m` or `minute` (the same as `1m`). An error contains examples
/// of valid spans.
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
        return Err(format!("`{}` is not a span of time; it must be at least 1us", shown(text)));
    }
    Ok(Duration::from_micros(micros))
}

/// Prints microseconds as the shortest text that [`parse`] reads back: `1m`, `90s`, `1500ms`.
pub(super) struct Micros(pub(super) u64);

impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.write_str("0s");
        }
        // The largest printed unit is a day: `1w` is printed as `7d`.
        let (unit, words) =
            UNITS[1..].iter().find(|(unit, _)| self.0.is_multiple_of(*unit)).unwrap_or(&UNITS[6]);
        write!(f, "{}{}", self.0 / unit, words[0])
    }
}
