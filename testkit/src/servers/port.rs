//! Free ports.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::{Ipv4Addr, TcpListener};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU16, Ordering};

use super::Error;

/// The first port that may be picked, and how many follow.
///
/// All lie below the ports that systems give to outgoing connections (from 32768 on Linux, from 49152 on
/// macOS): no such connection takes the port of a server that is down for a moment.
const FIRST: u16 = 10_000;
const COUNT: u16 = 22_000;

/// Counts on from a random place: two servers of one process never want the same port, and those of two
/// processes hardly ever.
static NEXT: LazyLock<AtomicU16> = LazyLock::new(|| {
    let [low, high, ..] = RandomState::new().build_hasher().finish().to_le_bytes();
    AtomicU16::new(u16::from_le_bytes([low, high]))
});

/// A port on 127.0.0.1 that is free now.
///
/// Another process may take it before it is used: then the caller tries the next one.
///
/// # Errors
/// If none is free.
pub fn free_port() -> Result<u16, Error> {
    (0..COUNT)
        .map(|_| FIRST + NEXT.fetch_add(1, Ordering::Relaxed) % COUNT)
        .find(|&port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok())
        .ok_or_else(|| {
            let last = FIRST + COUNT - 1;
            Error::new(format!("no free port on 127.0.0.1 from {FIRST} to {last}"))
        })
}
