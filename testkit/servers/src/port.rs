//! Free ports for the servers of tests.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::{Ipv4Addr, TcpListener};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU16, Ordering};

use super::error::Error;

/// The range from which ports are picked: its first port, and its number of ports.
///
/// The whole range is below the ports that operating systems assign to outgoing connections (from
/// 32768 on Linux, from 49152 on macOS). Therefore no outgoing connection takes the port of a
/// server that is down for a moment.
const FIRST: u16 = 10_000;
const COUNT: u16 = 22_000;

/// A counter that determines the next port to try. It starts at a random number. Therefore two
/// servers of one process never try the same port, and two servers of different processes rarely
/// do.
static NEXT: LazyLock<AtomicU16> = LazyLock::new(|| {
    let [low, high, ..] = RandomState::new().build_hasher().finish().to_le_bytes();
    AtomicU16::new(u16::from_le_bytes([low, high]))
});

/// Returns a port on 127.0.0.1 on which no process listens.
///
/// Another process can take the port before the caller uses the port. In this case, the caller must
/// call the function again.
pub fn free_port() -> Result<u16, Error> {
    (0..COUNT)
        .map(|_| FIRST + NEXT.fetch_add(1, Ordering::Relaxed) % COUNT)
        .find(|&port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok())
        .ok_or_else(|| {
            let last = FIRST + COUNT - 1;
            Error::new(format!("no free port on 127.0.0.1 from {FIRST} to {last}"))
        })
}
