//! A RESP client that supports only what the replies to its commands need.

use super::exchange::{Exchange, Reply};
use crate::Outcome;

#[derive(Debug, Default)]
pub(super) struct Resp {
    replies: usize,
}

pub(super) fn command(arguments: &[&str]) -> Vec<u8> {
    let mut command = format!("*{}\r\n", arguments.len());
    for argument in arguments {
        command += &format!("${}\r\n{argument}\r\n", argument.len());
    }
    command.into_bytes()
}

impl Exchange for Resp {
    fn begin(&mut self, _: &mut Vec<u8>) {}

    fn request(&mut self, request: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(request);
    }

    fn read(&mut self, input: &[u8], replies: &mut Vec<Reply>, _: &mut Vec<u8>) -> Outcome<usize> {
        let mut read = 0;
        while let Some((len, is_allowed)) = reply(input.get(read..).unwrap_or_default())? {
            replies.push(Reply { index: self.replies, is_allowed });
            self.replies += 1;
            read += len;
        }
        Ok(read)
    }
}

/// Returns the length of a reply, and `true` if it allows the call. Returns `None` if the reply is
/// incomplete. A reply is a number, or a list that begins with 1 if the call is allowed.
fn reply(input: &[u8]) -> Outcome<Option<(usize, bool)>> {
    let Some(len) = value(input)? else { return Ok(None) };
    let is_list = input.starts_with(b"*");
    let first = input.split(|byte| *byte == b'\n').nth(1);
    Ok(Some((len, !is_list || first.is_some_and(|first| first == b":1\r"))))
}

/// Returns the length of a value, or `None` if the value is incomplete.
fn value(input: &[u8]) -> Outcome<Option<usize>> {
    let Some(end) = input.iter().position(|byte| *byte == b'\n') else { return Ok(None) };
    let line = input.get(..end).unwrap_or_default();
    let mut len = end + 1;
    let number =
        |digits: &[u8]| -> Outcome<usize> { Ok(std::str::from_utf8(digits)?.trim_end().parse()?) };
    match line {
        [b':', ..] => {}
        [b'$', digits @ ..] => len += number(digits)? + 2,
        [b'*', digits @ ..] => {
            for _ in 0..number(digits)? {
                let Some(next) = value(input.get(len..).unwrap_or_default())? else {
                    return Ok(None);
                };
                len += next;
            }
        }
        _ => return Err(format!("the reply is '{}'", line.escape_ascii()).into()),
    }
    Ok((len <= input.len()).then_some(len))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_in_any_parts_are_read_once_they_are_whole() {
        let bytes =
            b"*5\r\n:1\r\n:9\r\n:8\r\n:0\r\n:0\r\n:17\r\n*3\r\n:0\r\n:-1\r\n*2\r\n$6\r\ndenied\r\n:1\r\n";
        for cut in 0..bytes.len() {
            let (mut resp, mut replies, mut out) = (Resp::default(), vec![], vec![]);
            let read = resp.read(&bytes[..cut], &mut replies, &mut out).unwrap();
            resp.read(&bytes[read..], &mut replies, &mut out).unwrap();
            let allowed: Vec<_> =
                replies.iter().map(|reply| (reply.index, reply.is_allowed)).collect();
            assert_eq!(allowed, [(0, true), (1, true), (2, false)], "cut at {cut}");
        }
        assert!(Resp::default().read(b"-ERR no\r\n", &mut vec![], &mut vec![]).is_err());
    }

    #[test]
    fn a_command_is_an_array_of_texts() {
        assert_eq!(command(&["INCR", "a"]), b"*2\r\n$4\r\nINCR\r\n$1\r\na\r\n");
    }
}
