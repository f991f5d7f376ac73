//! Converts JSON that does not have one object per line: an array, an array in a wrapper, or
//! objects over several lines.

use std::io::{self, Read};

/// The key before the array of records that AWS CloudTrail and Azure write: `{"Records":[…]}`. The
/// case of its letters can differ.
const WRAPPER: &[u8] = b"\"Records\"";

/// Returns `true` if a text begins with `{"Records":[`.
fn is_wrapped(head: &[u8]) -> bool {
    let inside = head.trim_ascii_start().strip_prefix(b"{").map(<[u8]>::trim_ascii_start);
    let Some((key, rest)) = inside.and_then(|inside| inside.split_at_checked(WRAPPER.len())) else {
        return false;
    };
    let array = rest.trim_ascii_start().strip_prefix(b":").map(<[u8]>::trim_ascii_start);
    key.eq_ignore_ascii_case(WRAPPER) && array.is_some_and(|array| array.starts_with(b"["))
}

/// Returns `true` if a text begins with an array of objects, with or without a wrapper, or with an
/// object over several lines.
pub(in crate::trace) fn needs_lines(head: &[u8]) -> bool {
    if is_wrapped(head) {
        return true;
    }
    match head.trim_ascii_start() {
        [b'[', rest @ ..] => matches!(rest.trim_ascii_start().first(), Some(b'{')),
        [b'{', rest @ ..] => {
            let blank = |byte: &&u8| matches!(**byte, b' ' | b'\t' | b'\r');
            rest.iter().find(|byte| !blank(byte)) == Some(&b'\n')
        }
        _ => false,
    }
}

/// A reader that converts an array of objects, or an object over several lines, to one object per
/// line. Newlines within an object become spaces, commas between the elements of an array become
/// newlines, and the object around an array becomes spaces. The number of bytes does not change.
pub(in crate::trace) struct OneALine<R> {
    inner: R,
    is_wrapped: bool,
    in_array: bool,
    /// The number of open objects and arrays, without the outermost array.
    depth: u64,
    in_string: bool,
    escaped: bool,
}

impl<R: Read> OneALine<R> {
    /// Creates a reader. `head` is the beginning of the text.
    pub(in crate::trace) fn new(inner: R, head: &[u8]) -> Self {
        let is_wrapped = is_wrapped(head);
        Self { inner, is_wrapped, in_array: false, depth: 0, in_string: false, escaped: false }
    }

    fn lay_out(&mut self, byte: u8) -> u8 {
        if self.in_string {
            let ends = byte == b'"' && !self.escaped;
            self.in_string = !ends;
            self.escaped = byte == b'\\' && !self.escaped;
            return if byte == b'\n' { b' ' } else { byte };
        }
        let outside = self.depth == 0;
        if self.is_wrapped && !self.in_array && byte != b'[' {
            return if byte == b'\n' { byte } else { b' ' };
        }
        match byte {
            b'"' => self.in_string = true,
            b'[' if outside && !self.in_array => {
                self.in_array = true;
                return b' ';
            }
            b']' if outside && self.in_array => {
                self.in_array = false;
                return b'\n';
            }
            b',' if outside && self.in_array => return b'\n',
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => self.depth = self.depth.saturating_sub(1),
            b'\n' if self.in_array || !outside => return b' ',
            _ => {}
        }
        byte
    }
}

impl<R: Read> Read for OneALine<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(into)?;
        for byte in into.iter_mut().take(read) {
            *byte = self.lay_out(*byte);
        }
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn laid_out(text: &str) -> Vec<String> {
        assert!(needs_lines(text.as_bytes()), "{text}");
        let mut found = String::new();
        OneALine::new(text.as_bytes(), text.as_bytes()).read_to_string(&mut found).unwrap();
        let words = |line: &str| line.split_whitespace().collect::<String>();
        found.lines().map(words).filter(|line| !line.is_empty()).collect()
    }

    #[test]
    fn each_object_gets_a_line() {
        let wanted = [r#"{"a":"],[{\"\\"}"#, r#"{"b":[1,{}]}"#];
        for text in [
            r#"[{"a":"],[{\"\\"},{"b":[1,{}]}]"#,
            "\n[\n  {\n \"a\" : \"],[{\\\"\\\\\"\n  },\n  {\"b\": [\n1,\n{}]}\n]\n",
            "{\n \"a\": \"],[{\\\"\\\\\"\n}\n{\r\n\"b\": [1, {}]}",
            r#"[{"a":"],[{\"\\"}][{"b":[1,{}]}]"#,
            r#"{"Records":[{"a":"],[{\"\\"},{"b":[1,{}]}]}"#,
            "{ \"records\" :\n [{\"a\":\"],[{\\\"\\\\\"}] }\n{\"Records\":[{\"b\":[1,{}]}]}\n",
        ] {
            assert_eq!(laid_out(text), wanted, "{text}");
        }
    }

    #[test]
    fn what_is_one_object_a_line_is_left_alone() {
        for text in [
            "{\"a\":1}\n{\"a\":2}\n",
            "[17/May/2015] x",
            "",
            "[",
            "{",
            "[[1]]",
            "a,b\n",
            "{\"Records\":1}",
        ] {
            assert!(!needs_lines(text.as_bytes()), "{text}");
        }
    }
}
