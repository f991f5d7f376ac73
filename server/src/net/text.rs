//! Converts bytes, texts and errors for messages and statistics.

use std::fmt::Write;

use tidegate_core::Error;

/// Returns a text for use in messages. Control characters are escaped, and a long text is cut.
pub(crate) fn shown(text: &str) -> String {
    const MAX: usize = 100;
    let mut shown: String = text.chars().take(MAX).flat_map(char::escape_debug).collect();
    if text.chars().nth(MAX).is_some() {
        shown.push('…');
    }
    shown
}

/// Returns the messages of an error and its causes, without the kind of the error. The protocols
/// send the kind separately.
pub(crate) fn without_kind(error: &Error) -> String {
    let shown = format!("{error:#}");
    let message =
        shown.strip_prefix(error.kind().as_str()).and_then(|rest| rest.strip_prefix(": "));
    message.map(str::to_owned).unwrap_or(shown)
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
