//! Parses numbers, spans and texts in the arguments of commands.

use std::time::Duration;

use bytes::Bytes;

/// The reason why an argument is not valid. It is sent in a reply with the code `ERR`.
pub(super) type ArgumentError = String;

/// Returns a whole number from `min` to the largest integer of Redis.
pub(super) fn number(name: &str, argument: &[u8], min: u64) -> Result<u64, ArgumentError> {
    let text = std::str::from_utf8(argument).ok().filter(|text| !text.starts_with('+'));
    let number = text.and_then(|text| text.parse::<u64>().ok());
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

/// Returns the text of a policy or of a user name.
pub(super) fn text<'a>(name: &str, argument: &'a Bytes) -> Result<&'a str, ArgumentError> {
    std::str::from_utf8(argument)
        .map_err(|_| format!("{name} is '{}'; it must be UTF-8", shown(argument)))
}

/// Returns the beginning of an argument for a message.
pub(super) fn shown(argument: &[u8]) -> String {
    let end = argument.len().min(40);
    let dots = if argument.len() > end { "..." } else { "" };
    format!("{}{dots}", argument.get(..end).unwrap_or_default().escape_ascii())
}

/// Returns the seconds of a span, rounded up so that a client that waits for them does not retry
/// too early.
pub(super) fn whole_seconds(span: Duration) -> i64 {
    let seconds = span.as_secs().saturating_add(u64::from(span.subsec_nanos() > 0));
    i64::try_from(seconds).unwrap_or(i64::MAX)
}

/// Returns the milliseconds of a span, rounded up.
pub(super) fn whole_milliseconds(span: Duration) -> i64 {
    i64::try_from(span.as_nanos().div_ceil(1_000_000)).unwrap_or(i64::MAX)
}

pub(super) fn integer(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
