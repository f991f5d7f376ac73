//! Parses commands from bytes.
//!
//! Existing parsers, such as the crate `redis-protocol` 6.0, are not suitable. They parse an
//! incomplete command from its start after each read, so a client that sends a command in many
//! small parts causes quadratic work. They also have no bounds on sizes, and do not support inline
//! commands.

use std::error::Error;
use std::fmt;

use bytes::{Buf, Bytes, BytesMut};
use smallvec::SmallVec;
use tidegate_core::MAX_SUBJECT;

use super::arguments::digits;

/// The maximum length of an argument in bytes. It is equal to the maximum length of a subject.
pub const MAX_ARGUMENT_BYTES: usize = MAX_SUBJECT;

/// The maximum number of arguments of a command, including its name.
pub const MAX_ARGUMENTS: usize = 1_024;

/// The maximum total length of the arguments of a command in bytes.
pub const MAX_COMMAND_BYTES: usize = 2 << 20;

/// The maximum length of an inline command in bytes, as in Redis.
const MAX_INLINE_BYTES: usize = 64 << 10;

/// The maximum length in bytes, without the `\n`, of a line that contains a number, such as
/// `*3\r\n`.
const MAX_HEADER_BYTES: usize = 32;

/// The bounds of the commands that a client can send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// The maximum number of arguments.
    pub arguments: usize,
    /// The maximum length of an argument in bytes.
    pub argument_bytes: usize,
}

impl Bounds {
    /// The bounds of a client that has not logged in yet. Redis has the same bounds.
    pub const BEFORE_LOGIN: Self = Self { arguments: 10, argument_bytes: 16 << 10 };
    /// The bounds of a client that has logged in or needs no login.
    pub const FULL: Self = Self { arguments: MAX_ARGUMENTS, argument_bytes: MAX_ARGUMENT_BYTES };
}

/// The reason why bytes are not a command. The server closes the connection, because it cannot find
/// the start of the next command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FrameError(String);

impl FrameError {
    /// The text that the server logs for every `FrameError`. The reason itself is not logged,
    /// because it can contain bytes of a client.
    pub(super) const LOGGED: &str = "the bytes are not a command, or they exceed a bound";

    fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Protocol error: {}", self.0)
    }
}

impl Error for FrameError {}

/// The name and the arguments of a command.
pub(super) type Arguments = SmallVec<[Bytes; 8]>;

/// A parser of commands. The bytes can arrive in parts of any size. The parser allocates memory
/// only for bytes that have arrived, even if a client announces a long argument.
///
/// ```
/// use bytes::BytesMut;
/// use tidegate_server::calls::resp::{Bounds, Frames};
///
/// let (mut frames, mut bytes) = (Frames::default(), BytesMut::from("*2\r\n$4\r\nPING\r\n$2\r\nh"));
/// assert_eq!(frames.next(&mut bytes, Bounds::FULL)?, None);
/// bytes.extend_from_slice(b"i\r\nPING 'you there'\r\n");
/// assert_eq!(frames.next(&mut bytes, Bounds::FULL)?.unwrap()[1], "hi");
/// assert_eq!(frames.next(&mut bytes, Bounds::FULL)?.unwrap()[1], "you there");
/// # Ok::<(), tidegate_server::calls::resp::FrameError>(())
/// ```
#[derive(Debug, Default)]
pub struct Frames {
    /// A command whose arguments have not all arrived.
    partial: Option<Partial>,
    /// The number of bytes at the start of the buffer that contain no `\n`, so that the next call
    /// does not search these bytes again.
    searched: usize,
}

#[derive(Debug)]
struct Partial {
    arguments: Arguments,
    missing: usize,
    bytes: usize,
    /// The length of the next argument; `None` until its line has arrived.
    length: Option<usize>,
}

impl Frames {
    /// Returns `true` if a part of a command has arrived.
    #[must_use]
    pub fn is_partial(&self, buffer: &BytesMut) -> bool {
        self.partial.is_some() || !buffer.is_empty()
    }

    /// Removes the next command from the front of `buffer`, and returns its name and its arguments.
    /// Returns `None` if the command is not complete.
    ///
    /// # Errors
    ///
    /// Returns an error if the bytes are not a command, or if the command exceeds the bounds.
    pub fn next(
        &mut self,
        buffer: &mut BytesMut,
        bounds: Bounds,
    ) -> Result<Option<SmallVec<[Bytes; 8]>>, FrameError> {
        loop {
            match &mut self.partial {
                None => match buffer.first() {
                    None => return Ok(None),
                    Some(b'*') => {
                        let what = "the number of arguments";
                        let Some(count) = self.header(buffer, what)? else { return Ok(None) };
                        if count > bounds.arguments as i64 {
                            return Err(FrameError::new(format!(
                                "a command has {count} arguments; at most {} are possible",
                                bounds.arguments
                            )));
                        }
                        // An empty command, such as `*0`, is ignored.
                        if let Some(missing) =
                            usize::try_from(count).ok().filter(|count| *count > 0)
                        {
                            let arguments = Arguments::new();
                            self.partial =
                                Some(Partial { arguments, missing, bytes: 0, length: None });
                        }
                    }
                    Some(_) => {
                        let Some(line) = self.line(buffer, MAX_INLINE_BYTES)? else {
                            return Ok(None);
                        };
                        let arguments = split_inline(&line)?;
                        check_inline(&arguments, bounds)?;
                        if !arguments.is_empty() {
                            return Ok(Some(arguments));
                        }
                    }
                },
                Some(Partial { length: None, .. }) => {
                    match buffer.first() {
                        None => return Ok(None),
                        Some(b'$') => {}
                        Some(other) => {
                            let other = other.escape_ascii();
                            return Err(FrameError::new(format!("expected '$', got '{other}'")));
                        }
                    }
                    let what = "the length of an argument";
                    let Some(length) = self.header(buffer, what)? else { return Ok(None) };
                    if let Some(partial) = &mut self.partial {
                        partial.length = Some(partial.checked_length(length, bounds)?);
                    }
                }
                Some(partial @ Partial { length: Some(_), .. }) => {
                    let length = partial.length.unwrap_or(0);
                    if buffer.len() < length + 2 {
                        return Ok(None);
                    }
                    let argument = buffer.split_to(length).freeze();
                    if !buffer.starts_with(b"\r\n") {
                        return Err(FrameError::new(format!(
                            "an argument of {length} bytes does not end in \\r\\n"
                        )));
                    }
                    buffer.advance(2);
                    partial.arguments.push(argument);
                    (partial.bytes, partial.length) = (partial.bytes + length, None);
                    partial.missing -= 1;
                    if partial.missing == 0 {
                        return Ok(self.partial.take().map(|partial| partial.arguments));
                    }
                }
            }
        }
    }

    /// Reads a line such as `*3\r\n`, and returns its number. The line is parsed in the buffer,
    /// because splitting the line off would be slower.
    fn header(&mut self, buffer: &mut BytesMut, what: &str) -> Result<Option<i64>, FrameError> {
        let Some(end) = self.line_end(buffer, MAX_HEADER_BYTES)? else { return Ok(None) };
        let line = buffer.get(1..end).unwrap_or_default();
        let Some(line) = line.strip_suffix(b"\r") else {
            return Err(FrameError::new("a line does not end in \\r\\n"));
        };
        let number = number(line, what)?;
        buffer.advance(end + 1);
        Ok(Some(number))
    }

    /// Returns the next line without its `\n`.
    fn line(&mut self, buffer: &mut BytesMut, max: usize) -> Result<Option<Bytes>, FrameError> {
        let Some(end) = self.line_end(buffer, max)? else { return Ok(None) };
        let line = buffer.split_to(end).freeze();
        buffer.advance(1);
        Ok(Some(line))
    }

    /// Returns the index of the `\n` that ends the next line.
    fn line_end(&mut self, buffer: &BytesMut, max: usize) -> Result<Option<usize>, FrameError> {
        let unknown = buffer.get(self.searched..).unwrap_or_default();
        let end = unknown.iter().position(|byte| *byte == b'\n').map(|at| self.searched + at);
        if end.unwrap_or(buffer.len()) > max {
            return Err(FrameError::new(format!("a line has more than {max} bytes")));
        }
        self.searched = if end.is_some() { 0 } else { buffer.len() };
        Ok(end)
    }
}

impl Partial {
    fn checked_length(&self, length: i64, bounds: Bounds) -> Result<usize, FrameError> {
        let possible =
            usize::try_from(length).ok().filter(|length| *length <= bounds.argument_bytes);
        let Some(length) = possible else {
            return Err(FrameError::new(format!(
                "an argument has a length of {length}; 0 to {} are possible",
                bounds.argument_bytes
            )));
        };
        if self.bytes + length > MAX_COMMAND_BYTES {
            return Err(FrameError::new(format!(
                "the arguments of a command have more than {MAX_COMMAND_BYTES} bytes"
            )));
        }
        Ok(length)
    }
}

fn number(line: &[u8], what: &str) -> Result<i64, FrameError> {
    let (sign, text) = line.strip_prefix(b"-").map_or((1, line), |text| (-1, text));
    let number = digits(text).and_then(|number| i64::try_from(number).ok());
    number.map(|number| sign * number).ok_or_else(|| {
        FrameError::new(format!("{what} is '{}'; it must be a number", line.escape_ascii()))
    })
}

fn check_inline(arguments: &Arguments, bounds: Bounds) -> Result<(), FrameError> {
    if arguments.len() > bounds.arguments {
        return Err(FrameError::new(format!(
            "a command has {} arguments; at most {} are possible",
            arguments.len(),
            bounds.arguments
        )));
    }
    match arguments.iter().find(|argument| argument.len() > bounds.argument_bytes) {
        None => Ok(()),
        Some(long) => Err(FrameError::new(format!(
            "an argument has a length of {}; 0 to {} are possible",
            long.len(),
            bounds.argument_bytes
        ))),
    }
}

/// Splits an inline command into words. Quotes and escapes have the same meaning as in Redis.
fn split_inline(line: &Bytes) -> Result<Arguments, FrameError> {
    let unbalanced = || FrameError::new("unbalanced quotes in request");
    let mut words = Arguments::new();
    let mut rest: &[u8] = line;
    loop {
        rest = rest.trim_ascii_start();
        let Some(first) = rest.first() else { return Ok(words) };
        let mut word = Vec::new();
        match first {
            quote @ (b'"' | b'\'') => {
                let quote = *quote;
                rest = rest.get(1..).unwrap_or_default();
                loop {
                    rest = match (quote, rest) {
                        (_, []) => return Err(unbalanced()),
                        (_, [byte, after @ ..]) if *byte == quote => {
                            rest = after;
                            break;
                        }
                        (b'"', [b'\\', b'x', high, low, after @ ..])
                            if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
                        {
                            word.push((hex(*high) << 4) | hex(*low));
                            after
                        }
                        (b'"', [b'\\', byte, after @ ..]) => {
                            word.push(unescaped(*byte));
                            after
                        }
                        (b'\'', [b'\\', b'\'', after @ ..]) => {
                            word.push(b'\'');
                            after
                        }
                        (_, [byte, after @ ..]) => {
                            word.push(*byte);
                            after
                        }
                    };
                }
                if rest.first().is_some_and(|byte| !byte.is_ascii_whitespace()) {
                    return Err(unbalanced());
                }
            }
            _ => {
                let end = rest.iter().position(u8::is_ascii_whitespace).unwrap_or(rest.len());
                let (before, after) = rest.split_at(end);
                word.extend_from_slice(before);
                rest = after;
            }
        }
        words.push(word.into());
    }
}

fn unescaped(byte: u8) -> u8 {
    match byte {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 8,
        b'a' => 7,
        other => other,
    }
}

fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit.to_ascii_lowercase() - b'a') + 10,
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn encode(command: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = format!("*{}\r\n", command.len()).into_bytes();
        for argument in command {
            bytes.extend(format!("${}\r\n", argument.len()).bytes());
            bytes.extend(argument);
            bytes.extend(b"\r\n");
        }
        bytes
    }

    /// Passes the parts to the parser, one after another. Returns the commands before the first
    /// error, and the error.
    fn read<'p>(parts: impl IntoIterator<Item = &'p [u8]>) -> (Vec<Vec<Vec<u8>>>, Option<String>) {
        let (mut frames, mut buffer, mut commands) =
            (Frames::default(), BytesMut::new(), Vec::new());
        for part in parts {
            buffer.extend_from_slice(part);
            loop {
                match frames.next(&mut buffer, Bounds::FULL) {
                    Ok(None) => break,
                    Ok(Some(command)) => {
                        commands.push(command.iter().map(|argument| argument.to_vec()).collect());
                    }
                    Err(error) => return (commands, Some(error.to_string())),
                }
            }
        }
        (commands, None)
    }

    fn error(bytes: &[u8]) -> String {
        read([bytes]).1.unwrap_or_else(|| panic!("no error in {}", bytes.escape_ascii()))
    }

    fn words(line: &str) -> Vec<String> {
        let (commands, error) = read([format!("{line}\r\n").as_bytes()]);
        assert_eq!(error, None);
        let text = |word: &Vec<u8>| String::from_utf8_lossy(word).into_owned();
        commands.iter().flatten().map(text).collect()
    }

    #[test]
    fn a_command_may_be_split_at_every_byte() {
        let commands: Vec<Vec<Vec<u8>>> = vec![
            vec![b"CL.THROTTLE".to_vec(), b"\r\n$1\r\n\x00\xff".to_vec(), Vec::new()],
            vec![b"PING".to_vec()],
        ];
        let mut bytes: Vec<u8> = commands.iter().flat_map(|command| encode(command)).collect();
        bytes.extend(b"SET 'a b' \"\\x00\"\n");
        let mut expected = commands;
        expected.push(vec![b"SET".to_vec(), b"a b".to_vec(), b"\0".to_vec()]);
        for at in 0..=bytes.len() {
            let (front, back) = bytes.split_at(at);
            assert_eq!(read([front, back]), (expected.clone(), None), "split at {at}");
        }
        assert_eq!(read(bytes.chunks(1)), (expected, None), "byte by byte");
    }

    #[test]
    fn what_is_too_large_is_an_error_before_its_bytes_come() {
        for (bytes, why) in [
            ("*1025\r\n", "a command has 1025 arguments; at most 1024 are possible"),
            ("*9223372036854775807\r\n", "a command has 9223372036854775807 arguments"),
            ("*1\r\n$1048577\r\n", "an argument has a length of 1048577; 0 to 1048576"),
            ("*1\r\n$9223372036854775807\r\n", "an argument has a length of 9223372036854775807"),
            ("*1\r\n$-1\r\n", "an argument has a length of -1; 0 to 1048576 are possible"),
            ("*99999999999999999999\r\n", "the number of arguments is '99999999999999999999'"),
            ("*+1\r\n", "the number of arguments is '+1'; it must be a number"),
            ("*1\r\n$ 1\r\n", "the length of an argument is ' 1'"),
            ("*1\n", "a line does not end in \\r\\n"),
            ("*1\r\n:5\r\n", "expected '$', got ':'"),
            ("*1\r\n*1\r\n", "expected '$', got '*'"),
            ("*1\r\n$1\r\nab\r\n", "an argument of 1 bytes does not end in \\r\\n"),
            ("*0000000000000000000000000000000000", "a line has more than 32 bytes"),
            ("\"a", ""),
            ("\"a\r\n", "unbalanced quotes in request"),
            ("'a'b\r\n", "unbalanced quotes in request"),
        ] {
            if why.is_empty() {
                assert_eq!(read([bytes.as_bytes()]).1, None);
            } else {
                let error = error(bytes.as_bytes());
                assert!(error.starts_with(&format!("Protocol error: {why}")), "{error}");
            }
        }
        assert!(error("x".repeat(65_537).as_bytes()).contains("a line has more than 65536 bytes"));
        let inline = format!("{}\r\n", "x ".repeat(1_025));
        assert!(error(inline.as_bytes()).contains("a command has 1025 arguments"));
        let argument = format!("${}\r\n{}\r\n", 1 << 20, "x".repeat(1 << 20));
        let large = format!("*3\r\n{argument}{argument}$1\r\n");
        let too_large = "the arguments of a command have more than 2097152 bytes";
        assert!(error(large.as_bytes()).contains(too_large));
    }

    #[test]
    fn before_a_login_less_is_possible() {
        let bounds = Bounds::BEFORE_LOGIN;
        let inline = |len| format!("AUTH {}\r\n", "x".repeat(len));
        for bytes in ["*11\r\n", "*1\r\n$16385\r\n", "a b c d e f g h i j k\r\n", &inline(16_385)] {
            let result = Frames::default().next(&mut BytesMut::from(bytes), bounds);
            assert!(result.is_err(), "{bytes}");
        }
        assert!(Frames::default().next(&mut BytesMut::from(&*inline(16_384)), bounds).is_ok());
    }

    #[test]
    fn inline_commands_are_split_as_redis_splits_them() {
        assert_eq!(words("  PING \t a  "), ["PING", "a"]);
        assert_eq!(words(r#""\x41\n\q\"" 'it\'s \n' "" "#), ["A\nq\"", "it's \\n", ""]);
        assert_eq!(words("\n\r\n*0\r\n*-1\r\nPING"), ["PING"], "empty commands are ignored");
    }

    proptest! {
        #[test]
        fn commands_arrive_as_they_were_sent(
            commands in vec(vec(vec(any::<u8>(), 0..20), 1..5), 0..5),
            part in 1_usize..50,
        ) {
            let bytes: Vec<u8> = commands.iter().flat_map(|command| encode(command)).collect();
            prop_assert_eq!(read(bytes.chunks(part)), (commands, None));
        }

        #[test]
        fn any_bytes_are_read_alike_whole_and_in_parts(
            bytes in vec(prop_oneof![any::<u8>(), b'*'..=b'*', b'$'..=b'$', b'0'..=b'9',
                b'\r'..=b'\r', b'\n'..=b'\n', b'"'..=b'"'], 0..60),
            part in 1_usize..10,
        ) {
            prop_assert_eq!(read([&*bytes]), read(bytes.chunks(part)));
        }
    }
}
