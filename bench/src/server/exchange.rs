//! The client's side of a protocol: it encodes requests and decodes replies, but has no connection.

use super::call::{Call, Protocol};
use super::grpc::Grpc;
use super::http::Http;
use super::resp::Resp;
use crate::Outcome;

pub(super) const MAX_IN_FLIGHT: usize = 1 << 12;

/// A reply to one of the requests of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reply {
    /// The number of the request on its connection, from 0.
    pub(super) index: usize,
    pub(super) is_allowed: bool,
}

/// A protocol on one connection.
pub(super) trait Exchange {
    /// Writes the bytes with which a connection begins.
    fn begin(&mut self, out: &mut Vec<u8>);

    /// Writes a request whose bytes were created before.
    fn request(&mut self, request: &[u8], out: &mut Vec<u8>);

    /// Reads the complete replies at the beginning of `input`, and returns their length. Writes
    /// answers that the protocol requires, such as answers to pings, to `out`.
    ///
    /// # Errors
    ///
    /// Returns an error if the input is not a reply, or if the reply is an error.
    fn read(&mut self, input: &[u8], replies: &mut Vec<Reply>, out: &mut Vec<u8>)
    -> Outcome<usize>;
}

pub(super) fn exchange(call: Call, authority: &str) -> Box<dyn Exchange> {
    match call.protocol() {
        Protocol::Resp => Box::new(Resp::default()),
        Protocol::Http => Box::new(Http::default()),
        Protocol::Grpc => Box::new(Grpc::new(call.path(), authority)),
    }
}
