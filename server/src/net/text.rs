//! Converts bytes and texts of clients for messages and statistics.

use std::fmt::Write;

/// Returns a text for use in messages. Control characters are escaped, and a long text is cut.
pub(crate) fn shown(text: &str) -> String {
    const MAX: usize = 100;
    let mut shown: String = text.chars().take(MAX).flat_map(char::escape_debug).collect();
    if text.chars().nth(MAX).is_some() {
        shown.push('…');
    }
    shown
}

/// Appends bytes to a text. Valid UTF-8 is appended unchanged. Otherwise, each invalid byte becomes
/// an escape such as `\xff`, and each backslash becomes `\\`.
pub(crate) fn push_text(text: &mut String, bytes: &[u8]) {
    match str::from_utf8(bytes) {
        Ok(valid) => text.push_str(valid),
        Err(_) => {
            for chunk in bytes.utf8_chunks() {
                text.push_str(&chunk.valid().replace('\\', "\\\\"));
                for byte in chunk.invalid() {
                    // Writing to a `String` never fails.
                    let _ = write!(text, "\\x{byte:02x}");
                }
            }
        }
    }
}
