//! Converts bytes of clients into text that is safe to show. No part of the text has an effect on a
//! terminal or on the direction of text.

use std::fmt::Write;

/// The maximum number of bytes that are kept of a subject or another text.
const MAX_BYTES: usize = 160;
/// The number of bytes that are kept from the beginning of a text longer than [`MAX_BYTES`]. The
/// other kept bytes are from its end.
const HEAD_BYTES: usize = 100;

/// The subject and the tenant of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Subject<'a> {
    pub(crate) tenant: &'a [u8],
    pub(crate) subject: &'a [u8],
}

/// The kept bytes of a subject and of its tenant. They are converted into text only when they are
/// shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cut {
    pub(super) tenant: Ends,
    pub(super) subject: Ends,
}

impl Cut {
    pub(super) fn new(subject: Subject<'_>) -> Self {
        Self { tenant: Ends::new(subject.tenant), subject: Ends::new(subject.subject) }
    }
}

/// The beginning and the end of a byte string, and the number of bytes between them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ends {
    head: Box<[u8]>,
    left_out: usize,
    tail: Box<[u8]>,
}

impl Ends {
    fn new(bytes: &[u8]) -> Self {
        match bytes.len().checked_sub(MAX_BYTES) {
            None | Some(0) => Self { head: bytes.into(), left_out: 0, tail: [].into() },
            Some(left_out) => {
                let (head, rest) = bytes.split_at(HEAD_BYTES);
                let (_, tail) = rest.split_at(left_out);
                Self { head: head.into(), left_out, tail: tail.into() }
            }
        }
    }

    /// Returns the bytes as text. The function [`shown`] describes the form of the text.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        escape(&self.head, &mut text);
        if self.left_out > 0 {
            // Writing to a `String` never fails.
            let _ = write!(text, " … {} bytes … ", self.left_out);
            escape(&self.tail, &mut text);
        }
        text
    }
}

/// Returns bytes as text. Escapes as in Rust, such as `\x00` or `\u{202e}`, replace bytes that are
/// not UTF-8, invisible characters, and characters with an effect on a terminal. A backslash
/// becomes `\\`, so that two texts that are not cut are equal only if their bytes are equal. The
/// middle of a long text is replaced by its length.
pub(super) fn shown(bytes: &[u8]) -> String {
    Ends::new(bytes).text()
}

/// Returns the first `max_chars` characters of a text, escaped as by [`shown`].
pub(super) fn cut_text(text: &str, max_chars: usize) -> String {
    let mut cut = String::new();
    let end = text.char_indices().nth(max_chars).map_or(text.len(), |(end, _)| end);
    escape(text.get(..end).unwrap_or_default().as_bytes(), &mut cut);
    if end < text.len() {
        cut.push('…');
    }
    cut
}

fn escape(bytes: &[u8], text: &mut String) {
    for chunk in bytes.utf8_chunks() {
        for char in chunk.valid().chars() {
            match char {
                '"' | '\'' => text.push(char),
                _ => text.extend(char.escape_debug()),
            }
        }
        for byte in chunk.invalid() {
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn what_is_visible_stays_and_all_else_is_escaped() {
        for (bytes, text) in [
            (&b"alice"[..], "alice"),
            (b"", ""),
            (b"<img src=x onerror='alert(1)'>", "<img src=x onerror='alert(1)'>"),
            ("Zoë 東京".as_bytes(), "Zoë 東京"),
            (b"a\x1b[2Jb\0\r\n\x7f", "a\\u{1b}[2Jb\\0\\r\\n\\u{7f}"),
            (
                "a\u{202e}b\u{2066}\u{200f}\u{feff}\u{2028}".as_bytes(),
                "a\\u{202e}b\\u{2066}\\u{200f}\\u{feff}\\u{2028}",
            ),
            ("\u{9b}31m".as_bytes(), "\\u{9b}31m"),
            (b"\xff\xc3(", "\\xff\\xc3("),
            (b"\\xff", "\\\\xff"),
            // Combining characters are escaped, so that many of them cannot cover other text.
            ("a\u{301}".as_bytes(), "a\\u{301}"),
        ] {
            assert_eq!(shown(bytes), text);
        }
    }

    #[test]
    fn different_bytes_are_different_texts() {
        let mut seen = HashSet::new();
        let mut bytes = Vec::new();
        for first in 0..=255 {
            for second in [0, b'\\', b'x', b'0', 0x80, 0xc3, 0xff] {
                bytes.clear();
                bytes.extend([first, second, b'0']);
                assert!(seen.insert(shown(&bytes)), "{bytes:?}");
            }
        }
    }

    #[test]
    fn a_long_subject_is_cut_in_its_middle() {
        let long: Vec<u8> = (0..1_000_u32).map(|index| b'a' + (index % 26) as u8).collect();
        let text = shown(&long);
        assert!(text.starts_with("abcdef") && text.contains("… 840 bytes …"), "{text}");
        assert_eq!(text.chars().count(), 160 + " … 840 bytes … ".chars().count());
        assert!(text.ends_with(std::str::from_utf8(&long[940..]).unwrap()));
        assert_eq!(shown(&long[..160]).len(), 160);
        // If the cut splits a character, the kept bytes of the character are shown as escapes.
        assert!(shown("é".repeat(51).as_bytes()).len() == 102);
        assert!(
            shown(format!("{}{}", "x".repeat(99), "é".repeat(99)).as_bytes()).contains("\\xc3 …")
        );
    }
}
