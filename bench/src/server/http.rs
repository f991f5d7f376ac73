//! An HTTP/1.1 client that supports only what the responses of these servers need.

use super::exchange::{Exchange, Reply};
use crate::Outcome;

#[derive(Debug, Default)]
pub(super) struct Http {
    replies: usize,
}

/// Returns a request with a body in JSON.
pub(super) fn post(path: &str, authority: &str, body: &str) -> Vec<u8> {
    let len = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nhost: {authority}\r\ncontent-type: application/json\r\ncontent-length: {len}\r\n\r\n{body}"
    )
    .into_bytes()
}

impl Exchange for Http {
    fn begin(&mut self, _: &mut Vec<u8>) {}

    fn request(&mut self, request: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(request);
    }

    fn read(&mut self, input: &[u8], replies: &mut Vec<Reply>, _: &mut Vec<u8>) -> Outcome<usize> {
        let mut read = 0;
        while let Some((len, is_allowed)) = response(input.get(read..).unwrap_or_default())? {
            replies.push(Reply { index: self.replies, is_allowed });
            self.replies += 1;
            read += len;
        }
        Ok(read)
    }
}

/// Returns the length of a response, and `true` if it allows the call. Returns `None` if the
/// response is incomplete.
fn response(input: &[u8]) -> Outcome<Option<(usize, bool)>> {
    let Some(head) = find(input, b"\r\n\r\n") else { return Ok(None) };
    let text = std::str::from_utf8(input.get(..head).unwrap_or_default())?;
    let unknown = || format!("the response begins with {text:?}");
    let status = text.get(9..12).ok_or_else(unknown)?;
    let is_length = |line: &&str| {
        line.get(..15).is_some_and(|name| name.eq_ignore_ascii_case("content-length:"))
    };
    let length = text.lines().find(is_length).and_then(|line| line.get(15..));
    let length: usize = length.and_then(|text| text.trim().parse().ok()).ok_or_else(unknown)?;
    let Some(body) = input.get(head + 4..head + 4 + length) else { return Ok(None) };
    let is_allowed = match status {
        // throttlecrab also answers a refused call with status 200.
        "200" => find(body, b"\"allowed\":false").is_none(),
        "429" => false,
        _ => return Err(format!("{}: {}", unknown(), body.escape_ascii()).into()),
    };
    Ok(Some((head + 4 + length, is_allowed)))
}

fn find(bytes: &[u8], part: &[u8]) -> Option<usize> {
    bytes.windows(part.len()).position(|window| window == part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses_in_any_parts_are_read_once_they_are_whole() {
        let bytes = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nContent-Length: 16\r\n\r\n{\"allowed\":true}\
            HTTP/1.1 200 OK\r\ncontent-length: 17\r\n\r\n{\"allowed\":false}\
            HTTP/1.1 429 Too Many Requests\r\ncontent-length: 0\r\n\r\n";
        for cut in 0..bytes.len() {
            let (mut http, mut replies, mut out) = (Http::default(), vec![], vec![]);
            let read = http.read(&bytes[..cut], &mut replies, &mut out).unwrap();
            http.read(&bytes[read..], &mut replies, &mut out).unwrap();
            let allowed: Vec<_> =
                replies.iter().map(|reply| (reply.index, reply.is_allowed)).collect();
            assert_eq!(allowed, [(0, true), (1, false), (2, false)], "cut at {cut}");
        }
        let failed = b"HTTP/1.1 500 no\r\ncontent-length: 0\r\n\r\n";
        assert!(Http::default().read(failed, &mut vec![], &mut vec![]).is_err());
    }
}
