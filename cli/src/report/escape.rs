//! Makes text safe to show.
//!
//! A client chooses the bytes of a subject. Without escapes, `\u{1b}]0;…` changes the title of a
//! terminal, `\r` overwrites the line, and a bidi override (`U+202E`) makes an address look like
//! another address.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Returns bytes as text from which the bytes can be restored: invalid UTF-8 becomes `\xNN`,
/// invisible characters become `\u{…}`, and a backslash is doubled.
///
/// ```
/// use tidegate::report::escape::printable;
///
/// assert_eq!(printable(b"2001:db8::1"), "2001:db8::1");
/// assert_eq!(printable(b"\x1b[2J\xff\\"), r"\u{1b}[2J\xff\\");
/// ```
#[must_use]
pub fn printable(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c == '\\' {
                text.push_str("\\\\");
            } else {
                push_visible(&mut text, c);
            }
        }
        for byte in chunk.invalid() {
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

/// Replaces invisible characters, and characters that control a terminal or a browser, by `\u{…}`.
///
/// Visible text does not change, so that a second call changes nothing.
///
/// ```
/// use tidegate::report::escape::visible;
///
/// assert_eq!(visible("alice"), "alice");
/// assert_eq!(visible("a\u{202e}b\n"), r"a\u{202e}b\u{a}");
/// ```
#[must_use]
pub fn visible(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_hidden) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        push_visible(&mut shown, c);
    }
    Cow::Owned(shown)
}

/// Shortens visible text to at most `max` characters. A longer text keeps both ends around a `…`,
/// because two subjects often differ only at the end.
///
/// ```
/// use tidegate::report::escape::shorten;
///
/// assert_eq!(shorten("short", 9), "short");
/// assert_eq!(shorten("0123456789abcdef", 9), "0123…cdef");
/// ```
#[must_use]
pub fn shorten(text: &str, max: usize) -> String {
    // A piece is a character or its escape. The result contains only whole pieces, because an
    // escape such as `\u{1b}` must not be split.
    let pieces: Vec<String> =
        text.chars().map(|c| visible(c.encode_utf8(&mut [0; 4])).into_owned()).collect();
    let length =
        |pieces: &[String]| pieces.iter().map(|piece| piece.chars().count()).sum::<usize>();
    if length(&pieces) <= max {
        return pieces.concat();
    }
    let kept = max.saturating_sub(1);
    let tail = pieces.len() - fitting(pieces.iter().rev(), kept / 2);
    let head = fitting(pieces.iter(), kept - length(&pieces[tail..]));
    format!("{}…{}", pieces[..head].concat(), pieces[tail..].concat())
}

/// Returns the number of pieces (characters or their escapes) that fit into `room` characters.
fn fitting<'a>(pieces: impl Iterator<Item = &'a String>, room: usize) -> usize {
    let ends = pieces.scan(0, |end, piece| {
        *end += piece.chars().count();
        Some(*end)
    });
    ends.take_while(|end| *end <= room).count()
}

fn push_visible(text: &mut String, c: char) {
    if is_hidden(c) {
        let _ = write!(text, "\\u{{{:x}}}", u32::from(c));
    } else {
        text.push(c);
    }
}

/// Returns `true` if a character is invisible or changes the appearance of its neighbors.
fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}'
            | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{fffe}'..='\u{ffff}'
            | '\u{e0000}'..='\u{e0fff}')
        // Whitespace other than a space is hidden too, because it looks like a space.
        || (c != ' ' && c.is_whitespace())
}
