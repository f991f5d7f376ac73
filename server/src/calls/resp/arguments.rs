//! Parses numbers, spans and texts in the arguments of commands.

use std::time::Duration;

use bytes::Bytes;

/// The reason why an argument is not valid. The server sends it in an error reply with the code
/// `ERR`.
pub(super) type ArgumentError = String;

/// Parses a number that consists of decimal digits only. `str::parse` would first need a check for
/// UTF-8, which takes as long as parsing.
pub(super) fn digits(text: &[u8]) -> Option<u64> {
    let next = |number: u64, digit: &u8| match digit {
        b'0'..=b'9' => number.checked_mul(10)?.checked_add(u64::from(digit - b'0')),
        _ => None,
    };
    text.iter().try_fold(0, next).filter(|_| !text.is_empty())
}

/// Parses a whole number from `min` to `i64::MAX`, the largest integer of Redis.
pub(super) fn number(name: &str, argument: &[u8], min: u64) -> Result<u64, ArgumentError> {
    let number = digits(argument);
    number.filter(|number| (min..=i64::MAX as u64).contains(number)).ok_or_else(|| {
        format!(
            "{name} is '{}'; it must be a whole number from {min} to {}",
            shown(argument),
            i64::MAX
        )
    })
}

pub(super) fn seconds(name: &str, argument: &[u8]) -> Result<Duration, ArgumentError> {
    number(name, argument, 0).map(Duration::from_secs)
}

pub(super) fn milliseconds(name: &str, argument: &[u8]) -> Result<Duration, ArgumentError> {
    number(name, argument, 0).map(Duration::from_millis)
}

/// Returns an argument as text, or an error if it is not UTF-8.
pub(super) fn text<'a>(name: &str, argument: &'a Bytes) -> Result<&'a str, ArgumentError> {
    std::str::from_utf8(argument)
        .map_err(|_| format!("{name} is '{}'; it must be UTF-8", shown(argument)))
}

/// Returns the first 40 bytes of an argument, escaped for an error message.
pub(super) fn shown(argument: &[u8]) -> String {
    let end = argument.len().min(40);
    let dots = if argument.len() > end { "..." } else { "" };
    format!("{}{dots}", argument.get(..end).unwrap_or_default().escape_ascii())
}

/// Returns a span in whole seconds. The span is rounded up, because a client that waits for less
/// than the span would retry too early.
pub(super) fn whole_seconds(span: Duration) -> i64 {
    let seconds = span.as_secs().saturating_add(u64::from(span.subsec_nanos() > 0));
    i64::try_from(seconds).unwrap_or(i64::MAX)
}

/// Returns a span in whole milliseconds, rounded up.
pub(super) fn whole_milliseconds(span: Duration) -> i64 {
    i64::try_from(span.as_nanos().div_ceil(1_000_000)).unwrap_or(i64::MAX)
}

pub(super) fn integer(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn digits_are_parsed_as_by_std(text in "[0-9]{0,22}|[+-]?[0-9 a]{0,3}|\\PC{0,3}") {
            let expected = text.parse().ok().filter(|_| !text.starts_with('+'));
            prop_assert_eq!(digits(text.as_bytes()), expected);
        }
    }

    #[test]
    fn a_number_is_at_most_the_largest_integer_of_redis() {
        assert_eq!(number("n", b"9223372036854775807", 0), Ok(i64::MAX as u64));
        assert_eq!(digits(b"18446744073709551615"), Some(u64::MAX));
        for (text, min) in [("9223372036854775808", 0), ("18446744073709551616", 0), ("4", 5)] {
            let error = number("n", text.as_bytes(), min).unwrap_err();
            assert!(error.starts_with(&format!("n is '{text}'; it must be")), "{error}");
        }
    }
}
