//! A gRPC client over HTTP/2 for one kind of call.
//!
//! A complete client, such as tonic's, needs more CPU time for a call than a server, and would
//! determine the results.

use super::exchange::{Exchange, MAX_IN_FLIGHT, Reply};
use crate::Outcome;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The amount by which the flow-control window of a connection grows to its maximum. No measurement
/// receives this many bytes.
const WINDOW: u32 = (1 << 31) - 1 - 65_535;

/// Kinds of frames.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GO_AWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;

/// Flags of frames.
const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// `POST` and `http`, as indices in HPACK's static table.
const METHOD_AND_SCHEME: [u8; 2] = [0x83, 0x86];

/// The path, the authority, the content type and `te`, as indices in HPACK's dynamic table, to
/// which the first request adds these fields.
const KNOWN_FIELDS: [u8; 4] = [0xc1, 0xc0, 0xbf, 0xbe];

#[derive(Debug)]
pub(super) struct Grpc {
    /// The header fields of the first request.
    first: Vec<u8>,
    later: Vec<u8>,
    requests: u32,
    /// The answers by stream: whether the message of the response allows the call, or `None` until
    /// it arrives.
    answers: Vec<Option<bool>>,
}

impl Grpc {
    pub(super) fn new(path: &str, authority: &str) -> Self {
        let mut first = METHOD_AND_SCHEME.to_vec();
        // HPACK's static table has the names of these fields. The server adds each name with its
        // value to the dynamic table.
        for (name, value) in [(4, path), (1, authority), (31, "application/grpc")] {
            first.push(0x40 | name);
            text(value, &mut first);
        }
        first.push(0x40);
        text("te", &mut first);
        text("trailers", &mut first);
        let later = [&METHOD_AND_SCHEME[..], &KNOWN_FIELDS].concat();
        Self { first, later, requests: 0, answers: vec![None; MAX_IN_FLIGHT] }
    }

    fn answer(&mut self, stream: u32) -> Outcome<(usize, &mut Option<bool>)> {
        let index = usize::try_from(stream / 2)?;
        let answer =
            self.answers.get_mut(index % MAX_IN_FLIGHT).ok_or("there is no such stream")?;
        Ok((index, answer))
    }
}

/// Appends a text of less than 127 bytes to `out`, in the encoding of HPACK.
fn text(text: &str, out: &mut Vec<u8>) {
    out.extend(u8::try_from(text.len()).ok().filter(|len| *len < 0x7f));
    out.extend_from_slice(text.as_bytes());
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8], out: &mut Vec<u8>) {
    let [_, high, mid, low] = u32::try_from(payload.len()).unwrap_or(u32::MAX).to_be_bytes();
    out.extend_from_slice(&[high, mid, low, kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
}

/// Returns a gRPC message: a byte for compression, the length, and the bytes.
pub(super) fn message(bytes: &[u8]) -> Vec<u8> {
    let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    [&[0], &len.to_be_bytes()[..], bytes].concat()
}

/// Returns a field of Protocol Buffers with a text or a message of less than 128 bytes.
pub(super) fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let len = u8::try_from(bytes.len()).unwrap_or(u8::MAX).min(0x7f);
    [&[(number << 3) | 2, len], bytes].concat()
}

/// Returns a field of Protocol Buffers with a number.
pub(super) fn number(number: u8, mut value: u64) -> Vec<u8> {
    let mut field = vec![number << 3];
    loop {
        let [low, ..] = value.to_le_bytes();
        value >>= 7;
        if value == 0 {
            field.push(low & 0x7f);
            return field;
        }
        field.push(low | 0x80);
    }
}

impl Exchange for Grpc {
    fn begin(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(PREFACE);
        frame(SETTINGS, 0, 0, &[], out);
        frame(WINDOW_UPDATE, 0, 0, &WINDOW.to_be_bytes(), out);
    }

    fn request(&mut self, request: &[u8], out: &mut Vec<u8>) {
        let stream = self.requests * 2 + 1;
        let fields = if self.requests == 0 { &self.first } else { &self.later };
        frame(HEADERS, END_HEADERS, stream, fields, out);
        frame(DATA, END_STREAM, stream, request, out);
        self.requests += 1;
    }

    fn read(
        &mut self,
        input: &[u8],
        replies: &mut Vec<Reply>,
        out: &mut Vec<u8>,
    ) -> Outcome<usize> {
        let mut read = 0;
        while let Some([high, mid, low, kind, flags, a, b, c, d, rest @ ..]) = input.get(read..) {
            let len = usize::try_from(u32::from_be_bytes([0, *high, *mid, *low]))?;
            let Some(payload) = rest.get(..len) else { break };
            let stream = u32::from_be_bytes([*a, *b, *c, *d]);
            match *kind {
                // In the messages of both services, the first field is 1 if the call is allowed.
                DATA if len > 0 => {
                    *self.answer(stream)?.1 = Some(payload.get(5..7) == Some(&[0x08, 0x01]));
                }
                HEADERS if flags & END_STREAM != 0 => {
                    let (index, answer) = self.answer(stream)?;
                    let is_allowed = answer.take().ok_or("a call has failed")?;
                    replies.push(Reply { index, is_allowed });
                }
                SETTINGS if flags & ACK == 0 => frame(SETTINGS, ACK, 0, &[], out),
                PING if flags & ACK == 0 => frame(PING, ACK, 0, payload, out),
                RESET | GO_AWAY => {
                    return Err("the server has ended a stream or a connection".into());
                }
                _ => {}
            }
            read += 9 + len;
        }
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_streams_are_read_in_any_order() {
        let mut bytes = vec![];
        frame(SETTINGS, 0, 0, &[0; 6], &mut bytes);
        frame(HEADERS, END_HEADERS, 3, &[0x88], &mut bytes);
        frame(DATA, 0, 3, &message(&[0x08, 0x02]), &mut bytes);
        frame(HEADERS, END_HEADERS, 1, &[0x88], &mut bytes);
        frame(HEADERS, END_HEADERS | END_STREAM, 3, &[0x88], &mut bytes);
        frame(DATA, 0, 1, &message(&[0x08, 0x01]), &mut bytes);
        frame(HEADERS, END_HEADERS | END_STREAM, 1, &[0x88], &mut bytes);
        for cut in 0..bytes.len() {
            let (mut grpc, mut replies, mut out) = (Grpc::new("/a", "b"), vec![], vec![]);
            let read = grpc.read(&bytes[..cut], &mut replies, &mut out).unwrap();
            grpc.read(&bytes[read..], &mut replies, &mut out).unwrap();
            let refused = Reply { index: 1, is_allowed: false };
            assert_eq!(replies, [refused, Reply { index: 0, is_allowed: true }], "cut at {cut}");
            assert_eq!(out, [0, 0, 0, SETTINGS, ACK, 0, 0, 0, 0]);
        }
    }

    #[test]
    fn a_call_without_a_message_and_the_end_of_a_stream_are_errors() {
        for (kind, flags) in [(HEADERS, END_HEADERS | END_STREAM), (RESET, 0), (GO_AWAY, 0)] {
            let mut bytes = vec![];
            frame(kind, flags, 1, &[0; 8], &mut bytes);
            let read = Grpc::new("/a", "b").read(&bytes, &mut vec![], &mut vec![]);
            assert!(read.is_err(), "{kind}");
        }
    }

    #[test]
    fn fields_are_those_of_protocol_buffers() {
        assert_eq!(field(1, b"ab"), [0x0a, 2, b'a', b'b']);
        assert_eq!(number(2, 300), [0x10, 0xac, 0x02]);
        assert_eq!(number(5, 1), [0x28, 1]);
        assert_eq!(message(b"x"), [0, 0, 0, 0, 1, b'x']);
    }
}
