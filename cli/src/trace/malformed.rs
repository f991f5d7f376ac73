//! Counts malformed lines, and stores the first few.

use crate::trace::error::{Error, ErrorKind};

/// The number of malformed lines that are stored.
const KEPT: usize = 5;

/// The maximum number of characters of a malformed line, or of a value in a message, that are
/// shown.
const LINE_SHOWN: usize = 120;
const VALUE_SHOWN: usize = 40;

/// A malformed line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MalformedLine {
    /// The name of the input, as [`Input::name`](super::Input::name) returns it.
    pub file: String,
    /// The number of the line, counted from 1. For JSON that does not have one object per line,
    /// this is the number of the object.
    pub line: u64,
    /// The reason why the line is malformed.
    pub reason: String,
    /// The beginning of the line, which is safe to print on a terminal.
    pub excerpt: String,
}

/// The reason why a line is not a record.
#[derive(Debug)]
pub(super) enum Fault {
    /// The line is malformed.
    Malformed(String),
    /// The input cannot be read.
    Fatal(Error),
}

impl Fault {
    pub(super) fn malformed(reason: impl Into<String>) -> Self {
        Self::Malformed(reason.into())
    }
}

/// The malformed lines of all inputs.
#[derive(Debug, Default)]
pub(super) struct MalformedLines {
    pub(super) count: u64,
    pub(super) first: Vec<MalformedLine>,
    pub(super) strict: bool,
}

impl MalformedLines {
    /// Adds a malformed line.
    #[cold]
    pub(super) fn note(
        &mut self,
        file: &str,
        line: u64,
        reason: String,
        text: &[u8],
    ) -> Result<(), Error> {
        if self.strict {
            let message = format!("{file}:{line}: {reason}: {}", shown(text, LINE_SHOWN));
            return Err(Error::new(ErrorKind::Malformed, message));
        }
        self.count += 1;
        if self.first.len() < KEPT {
            let excerpt = shown(text, LINE_SHOWN);
            self.first.push(MalformedLine { file: file.to_owned(), line, reason, excerpt });
        }
        Ok(())
    }
}

/// Returns bytes as text that is safe to print on a terminal. Control characters and invalid UTF-8
/// are escaped, and the text is cut after `limit` characters.
#[must_use]
pub fn shown(bytes: &[u8], limit: usize) -> String {
    // A character has at most 4 bytes, so further bytes are never shown.
    let head = bytes.get(..limit.saturating_mul(4)).unwrap_or(bytes);
    let mut text = String::new();
    let mut length = 0;
    let mut cut = head.len() < bytes.len();
    'chunks: for chunk in head.utf8_chunks() {
        let valid = chunk.valid().chars().map(escaped);
        let invalid = chunk.invalid().iter().map(|byte| format!("\\x{byte:02x}"));
        for piece in valid.chain(invalid) {
            length += piece.chars().count();
            if length > limit {
                cut = true;
                break 'chunks;
            }
            text.push_str(&piece);
        }
    }
    if cut {
        text.push('…');
    }
    text
}

/// Returns a value as text for a message.
pub(super) fn value(bytes: &[u8]) -> String {
    format!("`{}`", shown(bytes, VALUE_SHOWN))
}

fn escaped(c: char) -> String {
    // In addition to control characters, the characters that change the direction of text are
    // escaped.
    let turns =
        matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    if c.is_control() || turns { c.escape_default().to_string() } else { c.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_cannot_move_the_cursor() {
        assert_eq!(shown(b"a\x1b[2Jb\r\n\xff", 120), "a\\u{1b}[2Jb\\r\\n\\xff");
        assert_eq!(shown("é\u{202e}".as_bytes(), 120), "é\\u{202e}");
    }

    #[test]
    fn what_is_shown_is_cut() {
        assert_eq!(shown(&[b'x'; 500], 10), "xxxxxxxxxx…");
        assert_eq!(shown(b"0123456789", 10), "0123456789");
    }

    #[test]
    fn only_the_first_few_are_kept() {
        let mut malformed = MalformedLines::default();
        for line in 1..=9 {
            malformed.note("f", line, "r".into(), b"x").unwrap();
        }
        assert_eq!(malformed.count, 9);
        assert_eq!(malformed.first.iter().map(|m| m.line).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
    }
}
