//! One line of the log.

use std::io::{self, ErrorKind, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use jiff::Timestamp;

/// One request, as it is logged.
#[derive(Clone, Debug)]
pub(super) struct Request {
    /// When it came, in milliseconds since the day began.
    pub(super) at: u64,
    /// How long it took, in milliseconds.
    pub(super) took: u64,
    pub(super) client: Client,
    pub(super) method: &'static str,
    pub(super) path: String,
    pub(super) status: u16,
    pub(super) bytes: u64,
    pub(super) referer: &'static str,
}

/// A client.
#[derive(Clone, Copy, Debug)]
pub(super) struct Client {
    pub(super) address: IpAddr,
    pub(super) user: &'static str,
    pub(super) agent: &'static str,
}

impl Client {
    /// An address of one of the ranges reserved for documentation, by its last number.
    pub(super) fn v4(range: [u8; 3], last: u64) -> IpAddr {
        let [a, b, c] = range;
        let last = u8::try_from(last % 254 + 1).unwrap_or(1);
        IpAddr::V4(Ipv4Addr::new(a, b, c, last))
    }

    /// An address of 2001:db8::/32: the number of a network of size /64, and what is behind it.
    pub(super) fn v6(network: u32, interface: u64) -> IpAddr {
        let bits = (0x2001_0db8_u128 << 96) | (u128::from(network) << 64) | u128::from(interface);
        IpAddr::V6(Ipv6Addr::from(bits))
    }
}

impl Request {
    /// When it was done, and logged.
    pub(super) fn done(&self) -> u64 {
        self.at + self.took
    }

    /// Writes the line, in the combined format.
    pub(super) fn write(&self, start: u64, to: &mut impl Write) -> io::Result<()> {
        let Self { client, method, path, status, bytes, referer, .. } = self;
        let Client { address, user, agent } = client;
        let second = i64::try_from(start.saturating_add(self.at / 1000));
        let time = second.ok().and_then(|second| Timestamp::from_second(second).ok());
        let time = time.ok_or_else(|| {
            let message = format!("a sample cannot start {start} s after 1970: that is no date");
            io::Error::new(ErrorKind::InvalidInput, message)
        })?;
        let time = time.strftime("%d/%b/%Y:%H:%M:%S +0000");
        writeln!(
            to,
            "{address} - {user} [{time}] \"{method} {path} HTTP/1.1\" {status} {bytes} \
             \"{referer}\" \"{agent}\""
        )
    }
}
