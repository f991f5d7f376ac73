//! A RESP client that supports only what the replies to `THROTTLE` and `INCR` need.

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
/// incomplete.
fn reply(input: &[u8]) -> Outcome<Option<(usize, bool)>> {
    let line_end = |from: usize| {
        let rest = input.get(from..)?;
        rest.iter().position(|byte| *byte == b'\n').map(|at| from + at + 1)
    };
    let Some(mut end) = line_end(0) else { return Ok(None) };
    match input.first() {
        // The reply of INCR.
        Some(b':') => return Ok(Some((end, true))),
        Some(b'*') if input.starts_with(b"*5\r\n") => {}
        _ => {
            let shown = input.get(..end).unwrap_or_default().escape_ascii();
            return Err(format!("the reply is '{shown}'").into());
        }
    }
    let is_allowed = input.get(end..).is_some_and(|rest| rest.starts_with(b":1\r"));
    for _ in 0..5 {
        let Some(next) = line_end(end) else { return Ok(None) };
        end = next;
    }
    Ok(Some((end, is_allowed)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_in_any_parts_are_read_once_they_are_whole() {
        let bytes =
            b"*5\r\n:1\r\n:9\r\n:8\r\n:0\r\n:0\r\n:17\r\n*5\r\n:0\r\n:9\r\n:0\r\n:5\r\n:1\r\n";
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
