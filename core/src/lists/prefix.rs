//! Prefixes of addresses, and the look-up of the longest prefix that contains an address.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

use super::{ListAction, add};
use crate::policy::shown;
use crate::sync::hash::RandomState;

/// The number of bits before the IPv4 address in an IPv4-mapped address.
const BEFORE_V4: u8 = 96;

/// The maximum length of the text of a prefix.
const MAX_TEXT: usize = "ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255/128".len();

/// A prefix of IPv6 addresses. An IPv4 prefix is a prefix of the IPv4-mapped addresses, so that it
/// has at least 96 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Prefix {
    /// The number of bits of the prefix.
    len: u8,
    /// The first address with the prefix.
    first: u128,
}

impl Prefix {
    /// Returns the prefix that contains only this address.
    pub(super) fn from_address(address: IpAddr) -> Self {
        Self { len: 128, first: number(address) }
    }

    /// Returns the prefix of a subject that is the text of an address, or of a network such as
    /// `2001:db8:0:1::/64`. Returns `None` for any other subject.
    pub(super) fn from_subject(subject: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(subject).ok()?;
        match text.parse::<IpAddr>() {
            Ok(address) => Some(Self::from_address(address)),
            // The parser of prefixes allocates an error message, which most subjects do not need.
            Err(_) if text.contains('/') && text.len() <= MAX_TEXT => text.parse().ok(),
            Err(_) => None,
        }
    }

    #[cfg(test)]
    pub(super) fn truncated(address: IpAddr, len: usize) -> IpAddr {
        let len = u8::try_from(len).unwrap() + if address.is_ipv4() { BEFORE_V4 } else { 0 };
        IpAddr::from(Ipv6Addr::from(number(address) & mask(len))).to_canonical()
    }
}

impl FromStr for Prefix {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (address, len) = text.split_once('/').map_or((text, None), |(a, len)| (a, Some(len)));
        let address: IpAddr = address.parse().map_err(|_| {
            format!(
                "`{}` is not an address and not a prefix such as `203.0.113.0/24`; an entry for \
                 another subject has the word `subject` before it",
                shown(text)
            )
        })?;
        let Some(given) = len else { return Ok(Self::from_address(address)) };
        let (max, before) = if address.is_ipv4() { (32, BEFORE_V4) } else { (128, 0) };
        let is_number = given.bytes().all(|byte| byte.is_ascii_digit());
        let len = given.parse::<u8>().ok().filter(|len| is_number && *len <= max);
        let Some(len) = len else {
            return Err(format!(
                "the length of the prefix `{}` is `{}`; it must be from 0 to {max}",
                shown(text),
                shown(given)
            ));
        };
        let prefix = Self { len: len + before, first: number(address) & mask(len + before) };
        if prefix.first != number(address) {
            let first = Ipv6Addr::from(prefix.first);
            let first = if address.is_ipv4() { first.to_canonical() } else { first.into() };
            return Err(format!(
                "the address `{address}` has bits after the first {len}; the prefix must be \
                 `{first}/{len}`"
            ));
        }
        Ok(prefix)
    }
}

/// The actions of prefixes. One hash map has the prefixes of all lengths. A search looks up the
/// lengths in use, from the longest to the shortest. So it takes the same time for any number of
/// prefixes, and needs no library for tries.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Prefixes {
    actions: HashMap<Prefix, ListAction, RandomState>,
    /// The lengths in use, the longest first.
    lengths: Vec<u8>,
}

impl Prefixes {
    pub(super) fn add(&mut self, prefix: Prefix, action: ListAction) {
        if let Err(place) = self.lengths.binary_search_by(|len| prefix.len.cmp(len)) {
            self.lengths.insert(place, prefix.len);
        }
        add(&mut self.actions, prefix, action);
    }

    /// Returns the action of the longest prefix that contains all addresses with the prefix of the
    /// subject.
    pub(super) fn find(&self, subject: Prefix) -> Option<ListAction> {
        let Prefix { len: max, first } = subject;
        // No shorter prefix of IPv6 addresses contains IPv4 addresses.
        let min = if is_v4(first) { BEFORE_V4 } else { 0 };
        let lengths = self.lengths.iter().skip_while(|len| **len > max);
        let lengths = lengths.take_while(|len| **len >= min);
        let mut prefixes = lengths.map(|&len| Prefix { len, first: first & mask(len) });
        prefixes.find_map(|prefix| self.actions.get(&prefix).copied())
    }

    pub(super) fn len(&self) -> usize {
        self.actions.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.actions.is_empty()
    }
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().into(),
        IpAddr::V6(address) => address.into(),
    }
}

fn is_v4(address: u128) -> bool {
    Ipv6Addr::from(address).to_ipv4_mapped().is_some()
}

/// Returns the first `len` bits.
fn mask(len: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0)
}
