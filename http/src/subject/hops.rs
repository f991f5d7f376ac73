//! Reads lists of addresses from the right. Each proxy appends an address to the list.
//!
//! Each proxy appends the address of its client. Therefore, the nearest proxy wrote the rightmost
//! element, and this element is as credible as the proxy. If an element was not written by a
//! trusted proxy, everything to its left can be forged. For this reason, the functions of this
//! module never read the text to the left of an element, not even to find the start of a quoted
//! string.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The maximum length of an element, in bytes. This bounds the work for a field without commas.
const MAX_ELEMENT: usize = 1024;

/// The syntax of the elements of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Syntax {
    /// `X-Forwarded-For`: addresses.
    Addresses,
    /// `Forwarded` (RFC 7239): parameters. The parameter `for` contains the address.
    Parameters,
}

impl Syntax {
    /// Returns the address in the last element of `line`, and the text to the left of this element
    /// if there is a comma. Returns `None` if the element is not an address.
    pub(super) fn last_address(self, line: &[u8]) -> Option<(IpAddr, Option<&[u8]>)> {
        let start = line.len().saturating_sub(MAX_ELEMENT + 1);
        let tail = line.get(start..)?;
        let comma = match self {
            Self::Addresses => tail.iter().rposition(|&byte| byte == b','),
            Self::Parameters => last_comma_outside_quotes(tail),
        };
        let (element, left) = match comma {
            Some(at) => (tail.get(at + 1..)?, line.get(..start + at)),
            None if start == 0 => (tail, None),
            None => return None,
        };
        let element = element.trim_ascii();
        let address = match self {
            Self::Addresses => address_of_node(element),
            Self::Parameters => address_of_node(&for_parameter(element)?),
        };
        Some((address?, left))
    }
}

/// Parses an address in the forms that proxies write: with or without a port, brackets and a zone.
pub(super) fn address_of_node(node: &[u8]) -> Option<IpAddr> {
    let node = std::str::from_utf8(node).ok()?;
    if let Some(bracketed) = node.strip_prefix('[') {
        let (address, port) = bracketed.split_once(']')?;
        let is_port = port.is_empty() || port.strip_prefix(':').is_some_and(is_port);
        return if is_port { v6(address) } else { None };
    }
    match node.split_once(':') {
        None => v4(node),
        // An IPv6 address has at least two colons, so a single colon separates a port.
        Some((address, port)) if !port.contains(':') => v4(address).filter(|_| is_port(port)),
        Some(_) => v6(node),
    }
}

// `Ipv4Addr` rejects octets with leading zeros, because some systems read them as octal numbers.
fn v4(text: &str) -> Option<IpAddr> {
    text.parse::<Ipv4Addr>().ok().map(IpAddr::V4)
}

fn v6(text: &str) -> Option<IpAddr> {
    let address = match text.split_once('%') {
        Some((_, "")) => return None,
        Some((address, _zone)) => address,
        None => text,
    };
    address.parse::<Ipv6Addr>().ok().map(|address| address.to_canonical())
}

/// Returns `true` for a number and for an obfuscated port of RFC 7239, such as `_p1`.
fn is_port(text: &str) -> bool {
    match text.strip_prefix('_') {
        Some(name) => {
            !name.is_empty()
                && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
        }
        None => text.bytes().all(|byte| byte.is_ascii_digit()) && text.parse::<u16>().is_ok(),
    }
}

/// Finds the last comma outside of quotes by reading backwards. If the last element is well formed,
/// its start is found regardless of the text to its left.
fn last_comma_outside_quotes(line: &[u8]) -> Option<usize> {
    let mut in_quotes = false;
    for (at, byte) in line.iter().enumerate().rev() {
        match byte {
            b'"' if !in_quotes => in_quotes = true,
            b'"' => in_quotes = is_escaped(line, at),
            b',' if !in_quotes => return Some(at),
            _ => {}
        }
    }
    None
}

fn is_escaped(line: &[u8], at: usize) -> bool {
    let before = line.get(..at).unwrap_or_default();
    before.iter().rev().take_while(|&&byte| byte == b'\\').count() % 2 == 1
}

/// Returns the value of the parameter `for` of an element. Returns `None` if there is no such
/// parameter, if there are two, or if any parameter is malformed.
fn for_parameter(element: &[u8]) -> Option<Cow<'_, [u8]>> {
    let mut found = None;
    let mut rest = element;
    while !rest.is_empty() {
        let equals = rest.iter().position(|&byte| byte == b'=' || byte == b';')?;
        let (name, after) = rest.split_at(equals);
        if after.first() == Some(&b';') {
            // RFC 7239 permits an empty pair, as in `for=192.0.2.43;;proto=https`.
            if !name.trim_ascii().is_empty() {
                return None;
            }
            rest = after.get(1..)?;
            continue;
        }
        let name = name.trim_ascii();
        if name.is_empty() || !name.iter().all(|&byte| is_token(byte)) {
            return None;
        }
        let (value, after) = value(after.get(1..)?)?;
        if name.eq_ignore_ascii_case(b"for") && found.replace(value).is_some() {
            return None;
        }
        rest = match after.trim_ascii_start() {
            [] => after.trim_ascii_start(),
            [b';', after @ ..] => after.trim_ascii_start(),
            _ => return None,
        };
    }
    found
}

/// Returns a value, quoted or not, and the text after it. An unquoted value may contain colons and
/// brackets. RFC 7239 demands quotes for these characters, but many proxies omit the quotes.
fn value(text: &[u8]) -> Option<(Cow<'_, [u8]>, &[u8])> {
    let Some(quoted) = text.strip_prefix(b"\"") else {
        let ends = |byte: &u8| *byte == b';' || byte.is_ascii_whitespace();
        let end = text.iter().position(ends).unwrap_or(text.len());
        let (value, after) = text.split_at(end);
        let is_valid =
            !value.is_empty() && value.iter().all(|byte| byte.is_ascii_graphic() && *byte != b'"');
        return is_valid.then_some((Cow::Borrowed(value), after));
    };
    let mut unescaped: Option<Vec<u8>> = None;
    let mut at = 0;
    loop {
        match *quoted.get(at)? {
            b'"' => {
                let value = unescaped.map_or_else(
                    || quoted.get(..at).map(Cow::Borrowed),
                    |value| Some(Cow::Owned(value)),
                );
                return Some((value?, quoted.get(at + 1..)?));
            }
            b'\\' => {
                let escaped = *quoted.get(at + 1)?;
                unescaped
                    .get_or_insert_with(|| quoted.iter().take(at).copied().collect())
                    .push(escaped);
                at += 2;
            }
            byte => {
                if let Some(unescaped) = &mut unescaped {
                    unescaped.push(byte);
                }
                at += 1;
            }
        }
    }
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(text: &str) -> Option<String> {
        address_of_node(text.as_bytes()).map(|address| address.to_string())
    }

    #[test]
    fn an_address_loses_its_port_its_zone_and_its_brackets() {
        for (text, address) in [
            ("203.0.113.9", "203.0.113.9"),
            ("203.0.113.9:4711", "203.0.113.9"),
            ("203.0.113.9:_port", "203.0.113.9"),
            ("2001:db8::1", "2001:db8::1"),
            ("2001:DB8:0:0::1", "2001:db8::1"),
            ("[2001:db8::1]", "2001:db8::1"),
            ("[2001:db8::1]:4711", "2001:db8::1"),
            ("fe80::1%eth0", "fe80::1"),
            ("[fe80::1%25eth0]:80", "fe80::1"),
            ("::1", "::1"),
            ("::ffff:203.0.113.9", "203.0.113.9"),
            ("[::ffff:203.0.113.9]:80", "203.0.113.9"),
            ("::ffff:cb00:7109", "203.0.113.9"),
        ] {
            assert_eq!(node(text).as_deref(), Some(address), "{text}");
        }
    }

    #[test]
    fn what_is_not_an_address_is_none() {
        for text in [
            "",
            " ",
            "-",
            "unknown",
            "_hidden",
            "localhost",
            "203.0.113",
            "203.0.113.009",
            "010.0.0.1",
            "0xcb.0.113.9",
            "3405803785",
            "203.0.113.9.1",
            "203.0.113.256",
            "203.0.113.9:",
            "203.0.113.9:+80",
            "203.0.113.9:65536",
            "203.0.113.9:_",
            "203.0.113.9%eth0",
            "203.0.113.9 ",
            "[203.0.113.9]",
            "[2001:db8::1",
            "2001:db8::1]",
            "[2001:db8::1]80",
            "[2001:db8::1]:",
            "fe80::1%",
            "1::2::3",
            "\"203.0.113.9\"",
            "203.0.113.9/32",
            "unix:",
            "203.0.113.9;",
            "\u{661}.1.1.1",
        ] {
            assert_eq!(node(text), None, "{text}");
        }
        assert_eq!(address_of_node(b"203.0.113.9\xff"), None);
    }

    fn parameters(element: &str) -> Option<String> {
        let (address, left) = Syntax::Parameters.last_address(element.as_bytes())?;
        assert_eq!(left, None, "{element}");
        Some(address.to_string())
    }

    #[test]
    fn the_parameter_for_is_read_as_rfc_7239_writes_it() {
        for (element, address) in [
            ("for=192.0.2.43", "192.0.2.43"),
            ("For=\"[2001:db8:cafe::17]:4711\"", "2001:db8:cafe::17"),
            ("for=192.0.2.60;proto=http;by=203.0.113.43", "192.0.2.60"),
            ("proto=http;FOR=192.0.2.60;host=\"a,b;for=9.9.9.9\"", "192.0.2.60"),
            ("for=\"192.0.2.43:47011\"", "192.0.2.43"),
            ("for=192.0.2.43:47011", "192.0.2.43"),
            ("for=[2001:db8::1]:80", "2001:db8::1"),
            (r#"for="\[2001:db8\::1\]""#, "2001:db8::1"),
            (r#"host="a\"b\\";for=192.0.2.43"#, "192.0.2.43"),
            (";for=192.0.2.43;; proto=https;", "192.0.2.43"),
            (" for=192.0.2.43 ; proto=https ", "192.0.2.43"),
        ] {
            assert_eq!(parameters(element).as_deref(), Some(address), "{element}");
        }
    }

    #[test]
    fn an_element_that_is_malformed_has_no_address() {
        for element in [
            "",
            ";",
            "192.0.2.43",
            "for",
            "for=",
            "for=unknown",
            "for=_gazonk",
            "for=\"_gazonk\"",
            "for =192.0.2.43x",
            "for=192.0.2.43;for=192.0.2.43",
            "for=192.0.2.43;FOR=192.0.2.44",
            "by=192.0.2.43",
            "for=\"192.0.2.43",
            "for=192.0.2.43\"",
            "for=\"192.0.2.43\\",
            "for=192.0.2.43 proto=http",
            "=192.0.2.43",
            "for=192.0.2.43;proto",
            "for=192.0.2.43;a b=c",
            "for=192.0.2.43;proto=",
            "for=\"192.0.2.43\"x",
            "for=192.0.2.\u{663}",
        ] {
            assert_eq!(parameters(element), None, "{element}");
        }
    }

    #[test]
    fn a_comma_in_quotes_does_not_end_an_element() {
        let line = br#"for=9.9.9.9, for=1.1.1.1;host="a,\"b,\\", for="2.2.2.2";host=",""#;
        let (address, left) = Syntax::Parameters.last_address(line).unwrap();
        assert_eq!(address.to_string(), "2.2.2.2");
        let (address, left) = Syntax::Parameters.last_address(left.unwrap()).unwrap();
        assert_eq!(address.to_string(), "1.1.1.1");
        assert_eq!(left, Some(&b"for=9.9.9.9"[..]));
    }

    #[test]
    fn an_element_without_end_is_not_searched_for_its_beginning() {
        let long = "a".repeat(MAX_ELEMENT - 7);
        for (syntax, element) in [
            (Syntax::Addresses, "1.1.1.1".to_string()),
            (Syntax::Parameters, "for=1.1.1.1".to_string()),
        ] {
            let padded = |spaces: usize| format!("x,{}{element}", " ".repeat(spaces));
            let fits = padded(MAX_ELEMENT - element.len());
            assert!(syntax.last_address(fits.as_bytes()).is_some());
            let too_long = padded(MAX_ELEMENT + 1 - element.len());
            assert!(syntax.last_address(too_long.as_bytes()).is_none());
        }
        assert!(Syntax::Addresses.last_address(long.repeat(64).as_bytes()).is_none());
    }
}
