//! Sends bytes to the gRPC port, as an HTTP/2 connection and as the body of a request.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::OnceLock;
use std::time::Duration;

use envoy_types::pb::envoy::service::ratelimit::v3::RateLimitResponse;
use prost::Message;
use tidegate_server::envoy::grpc::{GrpcSettings, serve};
use tokio::net::TcpListener;

use super::service;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const END_STREAM: u8 = 1;
/// The flag of the answer to a `PING`.
pub(crate) const ACK: u8 = 1;
const END_HEADERS: u8 = 4;

/// A request with the domain `d` and the entry `u`, which has no limit.
pub(crate) const REQUEST: &[u8] = b"\0\0\0\0\x0a\x0a\x01d\x12\x05\x0a\x03\x0a\x01u";

/// The maximum time for an answer on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Sends bytes, which need not be HTTP/2, on a new connection.
pub(crate) fn check_bytes(bytes: &[u8]) {
    exchange(bytes);
}

/// Starts a valid HTTP/2 connection, and then sends `bytes` as frames, which may be invalid.
pub(crate) fn check_frames(bytes: &[u8]) {
    exchange(&[PREFACE, &frame(SETTINGS, 0, 0, &[]), bytes].concat());
}

pub(crate) fn check_body(bytes: &[u8]) {
    exchange(&call(bytes));
}

pub(crate) fn check_serving() {
    let answer = ask(REQUEST);
    let data = frames(&answer).into_iter().find(|frame_read| frame_read.kind == DATA);
    let data = data.unwrap_or_else(|| panic!("{}", answer.escape_ascii()));
    let response = RateLimitResponse::decode(&data.payload[5..]).unwrap();
    assert_eq!((response.overall_code, response.statuses.len()), (1, 1));
}

/// Returns the bytes of a call on a new connection.
pub(crate) fn call(body: &[u8]) -> Vec<u8> {
    [PREFACE, &frame(SETTINGS, 0, 0, &[]), &call_on(1, body)].concat()
}

/// Returns the bytes of a call on an open connection.
pub(crate) fn call_on(stream: u32, body: &[u8]) -> Vec<u8> {
    // In HPACK, 0x83 is the field `:method: POST`, and 0x86 is `:scheme: http`. The loop adds the
    // other fields as literals.
    let mut head = vec![0x83, 0x86];
    for (name, value) in [
        (":path", "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"),
        (":authority", "x"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ] {
        head.push(0);
        for text in [name, value] {
            head.push(u8::try_from(text.len()).unwrap());
            head.extend_from_slice(text.as_bytes());
        }
    }
    let mut bytes = frame(HEADERS, END_HEADERS, stream, &head);
    let parts: Vec<&[u8]> = body.chunks(16_000).collect();
    for (index, part) in parts.iter().enumerate() {
        let flags = if index + 1 == parts.len() { END_STREAM } else { 0 };
        bytes.extend(frame(DATA, flags, stream, part));
    }
    if parts.is_empty() {
        bytes.extend(frame(DATA, END_STREAM, stream, &[]));
    }
    bytes
}

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = u32::try_from(payload.len()).unwrap().to_be_bytes()[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

pub(crate) struct Frame<'b> {
    pub(crate) kind: u8,
    flags: u8,
    pub(crate) payload: &'b [u8],
}

impl Frame<'_> {
    pub(crate) fn ends_stream(&self) -> bool {
        matches!(self.kind, DATA | HEADERS) && self.flags & END_STREAM != 0
    }
}

/// Splits bytes into HTTP/2 frames. Ignores an incomplete frame at the end.
pub(crate) fn frames(mut bytes: &[u8]) -> Vec<Frame<'_>> {
    let mut frames = Vec::new();
    while let Some((head, rest)) = bytes.split_at_checked(9) {
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        assert!(length <= 16_384 && head[3] <= 9, "{}", head.escape_ascii());
        let Some((payload, rest)) = rest.split_at_checked(length) else { break };
        frames.push(Frame { kind: head[3], flags: head[4], payload });
        bytes = rest;
    }
    frames
}

/// Makes a call, and returns the bytes of its answer. Closes the connection only after the answer
/// is complete, because an earlier close could cut the answer off.
pub(crate) fn ask(body: &[u8]) -> Vec<u8> {
    let mut stream = connect();
    stream.write_all(&call(body)).unwrap();
    let mut answer = Vec::new();
    while !frames(&answer).iter().any(Frame::ends_stream) {
        let mut part = [0; 1024];
        let read = stream.read(&mut part).unwrap();
        assert!(read > 0, "{}", answer.escape_ascii());
        answer.extend_from_slice(&part[..read]);
    }
    answer
}

fn connect() -> TcpStream {
    let stream = TcpStream::connect_timeout(&server(), PATIENCE).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Sends bytes, closes the sending direction, and waits until the server has closed the connection.
pub(crate) fn exchange(bytes: &[u8]) -> Vec<u8> {
    let mut stream = connect();
    // If the server has closed the connection, the write fails, and a reset may discard the
    // server's answer.
    let _ = stream.write_all(bytes).and_then(|()| stream.shutdown(Shutdown::Write));
    let mut answer = Vec::new();
    if let Err(error) = stream.read_to_end(&mut answer) {
        assert!(error.kind() == std::io::ErrorKind::ConnectionReset, "{error}");
    }
    if !answer.starts_with(b"HTTP/1.1 ") {
        frames(&answer);
    }
    answer
}

/// Returns the address of a server that all checks share.
fn server() -> SocketAddr {
    static SERVER: OnceLock<SocketAddr> = OnceLock::new();
    *SERVER.get_or_init(|| {
        let (send, receive) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                send.send(listener.local_addr().unwrap()).unwrap();
                let settings = GrpcSettings::default();
                serve(listener, service(), settings, std::future::pending()).await;
            });
        });
        receive.recv().unwrap()
    })
}
