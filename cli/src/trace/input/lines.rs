//! Cuts an input into lines without copying them.

use memchr::{memchr, memchr_iter};

use crate::trace::error::Error;
use crate::trace::input::Unpacked;

/// The maximum length of a line. A longer line is malformed, and is skipped without being stored.
pub(in crate::trace) const LINE_MAX: usize = 16 << 20;

/// The maximum length of all lines of a record after its first line. A record has several lines if
/// a quote contains newlines.
pub(in crate::trace) const JOINED_MAX: usize = 1 << 20;

/// The number of bytes that are stored for a message if a line is too long.
const HEAD_KEPT: usize = 1024;

const FIRST_CAPACITY: usize = 256 << 10;

/// The lines of one input.
pub(in crate::trace) struct Lines<'i> {
    input: Unpacked,
    name: &'i str,
    buffer: Vec<u8>,
    /// The start of the unread bytes `buffer[start..end]`.
    start: usize,
    end: usize,
    ended: bool,
    /// No line that begins before this index closes a quote. The search for the end of a quote
    /// continues from this index, so no line is searched twice. This is possible because a line
    /// closes any quote, regardless of where the quote was opened.
    unclosing_to: usize,
    /// The number of the line that begins at `start`, counted from 1.
    line: u64,
    line_max: usize,
    joined_max: usize,
    /// The beginning of the last line that was skipped because it was too long.
    head: Vec<u8>,
}

/// The next part of the input.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::trace) enum Next<'a> {
    /// A line, or several lines of one record, without the newline at the end.
    Line { number: u64, text: &'a [u8] },
    /// A line that opens a quote that is not closed within [`JOINED_MAX`] bytes, or before the end
    /// of the input. The text is only this line, without the lines after it.
    Unclosed { number: u64, text: &'a [u8] },
    /// The beginning of a line that is too long.
    TooLong { number: u64, text: &'a [u8] },
    /// No complete line is in the buffer. The caller must call [`Lines::fill`] before the next
    /// call.
    Empty,
    /// The end of the input.
    End,
}

/// The end of the next record, as an index into the buffer.
enum Found {
    /// The record ends at a newline.
    At { end: usize },
    /// The end of the record is not in the buffer yet.
    Beyond,
    /// A quote stays open for too many bytes. `end` is the end of the first line.
    Unclosed { end: usize },
}

impl<'i> Lines<'i> {
    pub(in crate::trace) fn new(input: Unpacked, name: &'i str) -> Self {
        Self {
            input,
            name,
            buffer: vec![0; FIRST_CAPACITY],
            start: 0,
            end: 0,
            ended: false,
            unclosing_to: 0,
            line: 1,
            line_max: LINE_MAX,
            joined_max: JOINED_MAX,
            head: Vec::new(),
        }
    }

    /// Skips this many bytes, which must not contain a newline.
    pub(in crate::trace) fn skip(&mut self, bytes: usize) {
        self.start = self.end.min(self.start + bytes);
    }

    /// Returns the unread bytes in the buffer.
    pub(in crate::trace) fn unread(&self) -> &[u8] {
        self.buffer.get(self.start..self.end).unwrap_or_default()
    }

    /// Returns the name of the input.
    pub(in crate::trace) fn name(&self) -> &'i str {
        self.name
    }

    /// Returns `true` if the buffer contains a complete line that is not blank, or if the input has
    /// ended.
    pub(in crate::trace) fn has_first_line(&self) -> bool {
        let text = self.unread().trim_ascii_start();
        self.ended || memchr(b'\n', text).is_some()
    }

    /// Returns `true` if only white space remains.
    pub(in crate::trace) fn only_blank(&self) -> bool {
        self.ended && self.unread().trim_ascii().is_empty()
    }

    /// Makes room in the buffer, and reads until the buffer is full or the input ends. A buffer
    /// that is full doubles its size. So a long line is searched again only when its read part has
    /// doubled, and the total work is linear.
    pub(in crate::trace) fn fill(&mut self) -> Result<(), Error> {
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.unclosing_to = self.unclosing_to.saturating_sub(self.start);
        self.start = 0;
        if self.end == self.buffer.len() {
            self.buffer.resize(self.buffer.len() * 2, 0);
        }
        while !self.ended && self.end < self.buffer.len() {
            let room = self.buffer.get_mut(self.end..).unwrap_or_default();
            let read = self.input.read(room, self.name)?;
            self.end += read;
            self.ended = read == 0;
        }
        Ok(())
    }

    /// Returns the next record in the buffer. `closed` is called for each line of the record, with
    /// `true` for the first line and `false` for later lines. It returns `true` if the record ends
    /// with the line.
    #[inline]
    pub(in crate::trace) fn next(
        &mut self,
        mut closed: impl FnMut(bool, &[u8]) -> bool,
    ) -> Result<Next<'_>, Error> {
        let number = self.line;
        let start = self.start;
        match self.find(&mut closed) {
            Found::At { end } => {
                self.start = self.end.min(end + 1);
                let text = self.buffer.get(start..end).unwrap_or_default();
                self.line += 1 + newlines(text);
                if text.len() > self.line_max {
                    return Ok(Next::TooLong { number, text });
                }
                Ok(Next::Line { number, text })
            }
            Found::Unclosed { end } => {
                self.start = self.end.min(end + 1);
                self.line += 1;
                Ok(Next::Unclosed { number, text: self.buffer.get(start..end).unwrap_or_default() })
            }
            Found::Beyond if self.ended => Ok(Next::End),
            Found::Beyond if self.end - self.start > self.line_max => self.skip_line(),
            Found::Beyond => Ok(Next::Empty),
        }
    }

    #[inline]
    fn find(&mut self, closed: &mut impl FnMut(bool, &[u8]) -> bool) -> Found {
        let Some(first_end) = self.line_end(self.start) else {
            return Found::Beyond;
        };
        if closed(true, self.buffer.get(self.start..first_end).unwrap_or_default()) {
            return Found::At { end: first_end };
        }
        self.find_closing(first_end, closed)
    }

    /// Returns the end of a record whose first line leaves a quote open.
    #[cold]
    fn find_closing(
        &mut self,
        first_end: usize,
        closed: &mut impl FnMut(bool, &[u8]) -> bool,
    ) -> Found {
        let mut from = self.unclosing_to.max(first_end + 1);
        while from - self.start <= self.joined_max
            && let Some(end) = self.line_end(from)
        {
            if closed(false, self.buffer.get(from..end).unwrap_or_default()) {
                return Found::At { end };
            }
            from = end + 1;
            self.unclosing_to = from;
        }
        if self.ended || self.end - self.start > self.joined_max {
            Found::Unclosed { end: first_end }
        } else {
            Found::Beyond
        }
    }

    /// Returns the end of the line that begins at `from`: its newline, or the end of the input,
    /// because the last newline can be missing.
    #[inline]
    fn line_end(&self, from: usize) -> Option<usize> {
        let rest = self.buffer.get(from..self.end).unwrap_or_default();
        match memchr(b'\n', rest) {
            Some(at) => Some(from + at),
            None => (self.ended && !rest.is_empty()).then_some(self.end),
        }
    }

    /// Skips the rest of a line that is too long, and stores only its beginning.
    fn skip_line(&mut self) -> Result<Next<'_>, Error> {
        let number = self.line;
        let head = self.unread().get(..HEAD_KEPT).unwrap_or_default().to_vec();
        loop {
            if let Some(at) = memchr(b'\n', self.unread()) {
                self.start += at + 1;
                break;
            }
            self.start = self.end;
            if self.ended {
                break;
            }
            self.fill()?;
        }
        self.line += 1;
        self.head = head;
        Ok(Next::TooLong { number, text: &self.head })
    }
}

/// Returns the number of newlines within a record.
#[inline]
fn newlines(text: &[u8]) -> u64 {
    memchr_iter(b'\n', text).count() as u64
}

#[cfg(test)]
mod tests {
    use std::io::{Read, repeat};
    use std::rc::Rc;

    use super::*;
    use crate::trace::input::Input;

    fn lines(
        reader: impl Read + Send + 'static,
        line_max: usize,
        joined_max: usize,
    ) -> Lines<'static> {
        let input = Input::once("input", reader).open(&Rc::default()).unwrap();
        let mut lines = Lines::new(input, "input");
        lines.buffer = vec![0; 16];
        (lines.line_max, lines.joined_max) = (line_max, joined_max);
        lines
    }

    /// Returns the lines and records of the input as `number:text`, with a mark before errors. In
    /// this test, a record ends with a line that ends in `.`.
    fn read(lines: &mut Lines<'_>) -> Vec<String> {
        let mut found = Vec::new();
        loop {
            let (mark, number, text) = match lines.next(|_, line| line.ends_with(b".")).unwrap() {
                Next::Line { number, text } => ("", number, text),
                Next::Unclosed { number, text } => ("open ", number, text),
                Next::TooLong { number, text } => ("long ", number, text),
                Next::Empty => {
                    lines.fill().unwrap();
                    continue;
                }
                Next::End => return found,
            };
            found.push(format!("{mark}{number}:{}", String::from_utf8_lossy(text)));
        }
    }

    #[test]
    fn lines_may_belong_together_and_the_last_needs_no_newline() {
        let text = "one.\n.\ntwo\nand\nthree.\nfour.";
        let found = read(&mut lines(text.as_bytes(), 100, 100));
        assert_eq!(found, ["1:one.", "2:.", "3:two\nand\nthree.", "6:four."]);
    }

    #[test]
    fn a_record_that_reaches_too_far_ends_at_its_first_line() {
        let text = "a\nbb\ncc\ndd.\nee.\nff\n";
        let found = read(&mut lines(text.as_bytes(), 100, 6));
        assert_eq!(found, ["open 1:a", "2:bb\ncc\ndd.", "5:ee.", "open 6:ff"]);
    }

    #[test]
    fn a_line_that_is_too_long_takes_no_more_room_than_the_bound() {
        let text = repeat(b'x').take(10_000_000).chain(&b"\nlast."[..]);
        let mut lines = lines(text, 1_000, 100);
        let found = read(&mut lines);
        assert_eq!(found.len(), 2);
        assert!(found[0].starts_with("long 1:xxx"));
        assert_eq!(found[1], "2:last.");
        assert!(lines.buffer.len() <= 2_048, "{} bytes", lines.buffer.len());
    }

    #[test]
    fn a_line_of_just_the_bound_is_read() {
        let text = format!("{}.\n{}..\n", "x".repeat(99), "x".repeat(99));
        let found = read(&mut lines(std::io::Cursor::new(text), 100, 100));
        assert!(found[0].starts_with("1:x") && found[1].starts_with("long 2:x"), "{found:?}");
    }

    /// Regression test: after each line that opens a quote, the reader searched up to a bound for
    /// the end of the quote, so the work was quadratic.
    #[test]
    fn the_work_on_lines_that_all_leave_a_quote_open_is_linear() {
        for (lines_made, ending) in [(20_000, "\n"), (20_000, ""), (40_000, "\n")] {
            let text = format!("{}open{ending}", "open\n".repeat(lines_made - 1));
            let size = text.len();
            for joined_max in [100, size / 3, size * 2] {
                let mut lines = lines(std::io::Cursor::new(text.clone()), 1 << 20, joined_max);
                let (mut looked_at, mut found) = (0, 0);
                loop {
                    let next = lines.next(|_, line| {
                        looked_at += line.len();
                        false
                    });
                    match next.unwrap() {
                        Next::Unclosed { .. } => found += 1,
                        Next::Empty => lines.fill().unwrap(),
                        Next::End => break,
                        other => panic!("{other:?}"),
                    }
                }
                assert_eq!(found, lines_made);
                // The closure gets each line as the first line of its record, and as a later line
                // of a previous record. After the buffer is filled, it can get a line again.
                assert!(looked_at <= 4 * size, "{looked_at} bytes looked at, of {size}");
            }
        }
    }
}
