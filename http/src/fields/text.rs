//! The text of fields, composed without an allocation.

use std::fmt::{self, Write as _};
use std::time::Duration;

use base64::display::Base64Display;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use smallvec::SmallVec;

use super::FieldError;

/// The largest integer of a structured field: 15 digits (RFC 9651, section 3.3.1).
pub(super) const MAX_INTEGER: u64 = 999_999_999_999_999;

/// The longest string that every parser of structured fields must support (RFC 9651, section
/// 3.3.3).
const MAX_STRING: usize = 1024;

/// The value of a field that is being composed. Most values fit on the stack, so that only the
/// finished value needs an allocation.
#[derive(Debug, Clone, Default)]
pub(super) struct Text(SmallVec<[u8; 256]>);

impl Text {
    /// Begins the next member of a list.
    pub(super) fn next_member(&mut self) {
        if !self.0.is_empty() {
            self.0.extend_from_slice(b", ");
        }
    }

    pub(super) fn push(&mut self, text: &Self) {
        self.0.extend_from_slice(&text.0);
    }

    pub(super) fn push_str(&mut self, text: &str) {
        self.0.extend_from_slice(text.as_bytes());
    }

    /// Appends an integer of a structured field. A number above [`MAX_INTEGER`] becomes this
    /// maximum.
    pub(super) fn push_integer(&mut self, number: u64) {
        self.push_str(itoa::Buffer::new().format(number.min(MAX_INTEGER)));
    }

    /// Appends a quoted string. The text must [fit](fits). The result is valid in structured fields
    /// and in JSON.
    pub(super) fn push_string(&mut self, text: &str) {
        self.0.push(b'"');
        let mut rest = text;
        while let Some(place) = rest.find(['"', '\\']) {
            let (plain, escaped) = rest.split_at(place);
            self.push_str(plain);
            self.0.push(b'\\');
            self.push_str(&escaped[..1]);
            rest = &escaped[1..];
        }
        self.push_str(rest);
        self.0.push(b'"');
    }

    /// Appends a byte sequence of a structured field.
    pub(super) fn push_bytes(&mut self, bytes: &[u8]) {
        // Writing to a [`Text`] never fails.
        let _ = write!(self, ":{}:", Base64Display::new(bytes, &STANDARD));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the value, or `None` if a byte is not valid in a field. The other methods never
    /// append such a byte.
    pub(super) fn to_value(&self) -> Option<HeaderValue> {
        HeaderValue::from_bytes(&self.0).ok()
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push_str(text);
        Ok(())
    }
}

/// Returns the span in whole seconds, rounded up.
pub(super) fn secs_ceil(span: Duration) -> u64 {
    span.as_secs().saturating_add(u64::from(span.subsec_nanos() > 0))
}

/// Returns `true` if a structured field can contain the text as a string.
pub(super) fn fits(text: &str) -> bool {
    text.len() <= MAX_STRING && text.bytes().all(|byte| matches!(byte, b' '..=b'~'))
}

/// Returns an error if the text does not [fit](fits). The message contains `thing`, such as `unit`.
pub(super) fn check(thing: &str, text: &str) -> Result<(), FieldError> {
    if fits(text) {
        return Ok(());
    }
    let shown: String = text.escape_debug().take(64).collect();
    Err(FieldError::new(match text.chars().find(|char| !matches!(char, ' '..='~')) {
        Some(char) => format!(
            "the {thing} `{shown}` contains {char:?}; it must consist of printable ASCII characters"
        ),
        None => format!(
            "the {thing} `{shown}` has {} characters; it must have at most {MAX_STRING}",
            text.len()
        ),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_no_field_holds_is_an_error_that_shows_what_is_wrong() {
        let error = check("name", "daily\n").unwrap_err().to_string();
        assert_eq!(
            error,
            "the name `daily\\n` contains '\\n'; it must consist of printable ASCII characters"
        );
        let error = check("unit", "größe").unwrap_err().to_string();
        assert!(error.contains("unit `größe` contains 'ö'"), "{error}");
        let error = check("name", &"x".repeat(1025)).unwrap_err().to_string();
        assert!(error.contains("1025 characters"), "{error}");
        assert!(error.len() < 200, "{error}");
        for good in ["", "a b", "\"\\", "~", &"x".repeat(1024)] {
            assert_eq!(check("name", good), Ok(()));
        }
        for bad in ["\u{7f}", "\u{1f}", "é"] {
            assert!(check("name", bad).is_err());
        }
    }

    #[test]
    fn seconds_round_up() {
        let secs = [0, 1, 999_999_999, 1_000_000_000, 1_000_000_001];
        let secs = secs.map(|nanos| secs_ceil(Duration::from_nanos(nanos)));
        assert_eq!(secs, [0, 1, 1, 1, 2]);
        assert_eq!(secs_ceil(Duration::MAX), u64::MAX);
    }

    #[test]
    fn an_integer_has_at_most_15_digits() {
        let mut text = Text::default();
        text.push_integer(1 << 52);
        assert_eq!(text.as_bytes(), b"999999999999999");
    }
}
