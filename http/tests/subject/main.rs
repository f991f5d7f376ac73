//! Tests of the subjects of requests. A client cannot choose its address, regardless of the fields
//! that it sends.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod addresses;
mod forged;
mod forged_checks;
mod keys;

use std::net::SocketAddr;

use http::HeaderValue;
use http::request::Parts;
use tidegate_http::subject::{ClientAddress, ExtractSubject, PeerAddr};

const TRUSTED: [&str; 3] = ["10.0.0.0/8", "192.168.1.1", "fd00::/8"];

/// Returns a request from this peer, with these lines of a header field.
fn request(peer: &str, field: &'static str, lines: &[impl AsRef<[u8]>]) -> Parts {
    let (mut request, ()) = http::Request::new(()).into_parts();
    let peer: SocketAddr = peer.parse().unwrap();
    request.extensions.insert(PeerAddr(peer));
    for line in lines {
        request.headers.append(field, HeaderValue::from_bytes(line.as_ref()).unwrap());
    }
    request
}

fn subject(client: &ClientAddress, request: &Parts) -> Option<String> {
    let subject = client.extract(request)?;
    Some(String::from_utf8(subject.as_bytes().to_vec()).unwrap())
}
