//! One line of the log.

use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use jiff::Timestamp;

use super::START;

/// A request with all fields of its line in the log.
#[derive(Clone, Debug)]
pub(super) struct Request {
    /// The beginning of the request, in milliseconds since the day began.
    pub(super) at: u64,
    pub(super) took: u64,
    pub(super) client: Client,
    pub(super) method: &'static str,
    pub(super) path: String,
    pub(super) status: u16,
    pub(super) bytes: u64,
    pub(super) referer: &'static str,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Client {
    pub(super) address: IpAddr,
    pub(super) user: &'static str,
    pub(super) agent: &'static str,
}

impl Client {
    /// Returns an address in one of the ranges that are reserved for documentation.
    pub(super) fn v4(range: [u8; 3], last: u64) -> IpAddr {
        let [a, b, c] = range;
        let last = u8::try_from(last % 254 + 1).unwrap_or(1);
        IpAddr::V4(Ipv4Addr::new(a, b, c, last))
    }

    /// Returns an address in 2001:db8::/32. `network` is the number of a /64 network.
    pub(super) fn v6(network: u32, interface: u64) -> IpAddr {
        let bits = (0x2001_0db8_u128 << 96) | (u128::from(network) << 64) | u128::from(interface);
        IpAddr::V6(Ipv6Addr::from(bits))
    }
}

impl Request {
    /// Returns the end of the request, in milliseconds since the day began.
    pub(super) fn end(&self) -> u64 {
        self.at + self.took
    }

    pub(super) fn write(&self, to: &mut impl Write) -> io::Result<()> {
        let Self { client, method, path, status, bytes, referer, .. } = self;
        let Client { address, user, agent } = client;
        let second = START.saturating_add_unsigned(self.at / 1000);
        let time = Timestamp::from_second(second).map_err(io::Error::other)?;
        let time = time.strftime("%d/%b/%Y:%H:%M:%S +0000");
        writeln!(
            to,
            "{address} - {user} [{time}] \"{method} {path} HTTP/1.1\" {status} {bytes} \
             \"{referer}\" \"{agent}\""
        )
    }
}
