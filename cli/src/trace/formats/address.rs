//! Parses addresses of clients in the forms that logs use.

use std::net::Ipv6Addr;

use memchr::{memchr, memrchr};

/// Returns the IPv4 or IPv6 address in a word, without its port or its brackets, or `None` if the
/// word is not an address.
#[inline]
pub(in crate::trace) fn address(word: &[u8]) -> Option<&[u8]> {
    if is_ipv4(word) { Some(word) } else { other_address(word) }
}

/// Returns the address of the client in a field that contains one address or a list of addresses.
/// Other text, such as an anonymized address, is returned unchanged.
pub(in crate::trace) fn address_or_all(text: &[u8]) -> &[u8] {
    let text = text.trim_ascii();
    address(text).unwrap_or_else(|| forwarded(text))
}

/// Returns the last address of an `X-Forwarded-For`, because the nearest proxy added it. The client
/// can choose all earlier addresses.
pub(in crate::trace) fn forwarded(list: &[u8]) -> &[u8] {
    let last = match memrchr(b',', list) {
        Some(comma) => list.get(comma + 1..).unwrap_or_default().trim_ascii(),
        None => list,
    };
    address(last).unwrap_or(list)
}

/// Returns `true` if a word looks like the name of a host, which some servers log instead of an
/// address.
pub(in crate::trace) fn is_host_name(word: &[u8]) -> bool {
    let fits = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    let starts_well = word.first().is_some_and(u8::is_ascii_alphanumeric);
    word == b"localhost"
        || (starts_well
            && word.iter().all(fits)
            && word.contains(&b'.')
            // A host name must contain a letter, because times and versions also contain dots.
            && word.iter().any(u8::is_ascii_alphabetic))
}

/// Returns `true` for an address such as `203.0.113.9`.
#[inline]
fn is_ipv4(word: &[u8]) -> bool {
    if !(7..=15).contains(&word.len()) {
        return false;
    }
    let (mut dots, mut digits, mut number) = (0, 0, 0);
    for &byte in word {
        match byte {
            b'0'..=b'9' if digits < 3 => {
                digits += 1;
                number = number * 10 + u32::from(byte - b'0');
            }
            b'.' if digits > 0 && number < 256 => {
                dots += 1;
                (digits, number) = (0, 0);
            }
            _ => return false,
        }
    }
    dots == 3 && digits > 0 && number < 256
}

/// Returns the address in `2001:db8::1`, `fe80::1%eth0`, `[2001:db8::1]`, `[2001:db8::1]:443` or
/// `203.0.113.9:443`.
fn other_address(word: &[u8]) -> Option<&[u8]> {
    if let Some(inside) = word.strip_prefix(b"[") {
        let (inside, behind) = inside.split_at_checked(memchr(b']', inside)?)?;
        let port = behind.strip_prefix(b"]")?;
        let has_port = port.strip_prefix(b":").is_some_and(is_port);
        return ((port.is_empty() || has_port) && is_ipv6(inside)).then_some(inside);
    }
    if is_ipv6(word) {
        return Some(word);
    }
    let (host, port) = word.split_at_checked(memrchr(b':', word)?)?;
    (is_ipv4(host) && is_port(port.get(1..)?)).then_some(host)
}

fn is_port(text: &[u8]) -> bool {
    (1..=5).contains(&text.len()) && text.iter().all(u8::is_ascii_digit)
}

fn is_ipv6(word: &[u8]) -> bool {
    /// The maximum length of an address, including the name of an interface.
    const LENGTH_MAX: usize = 64;
    if word.len() > LENGTH_MAX || memchr(b':', word).is_none() {
        return false;
    }
    let Ok(text) = std::str::from_utf8(word) else { return false };
    let (text, zone) = text.split_once('%').unwrap_or((text, "0"));
    !zone.is_empty() && text.parse::<Ipv6Addr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_loses_its_port_and_its_brackets() {
        for (word, found) in [
            ("203.0.113.9", "203.0.113.9"),
            ("203.0.113.9:12345", "203.0.113.9"),
            ("255.255.255.255", "255.255.255.255"),
            ("2001:db8::1", "2001:db8::1"),
            ("::ffff:203.0.113.9", "::ffff:203.0.113.9"),
            ("fe80::1%eth0", "fe80::1%eth0"),
            ("[2001:db8::1]", "2001:db8::1"),
            ("[2001:db8::1]:443", "2001:db8::1"),
        ] {
            assert_eq!(address(word.as_bytes()), Some(found.as_bytes()), "{word}");
        }
    }

    #[test]
    fn what_is_no_address_is_none() {
        for word in [
            "",
            "-",
            "INFO",
            "1.2.3",
            "1.2.3.4.5",
            "1.2.3.256",
            "1..2.3",
            "1.2.3.",
            "0001.2.3.4",
            "1.2.3.4:",
            "1.2.3.4:x",
            "1.2.3.4:123456",
            "[1.2.3.4]",
            "[::1",
            "[::1]x",
            "[::1]:",
            "::1%",
            "10:00:00",
            "2026-05-01T10:00:00Z",
            "host:80",
            "www.example.com",
            "\u{663}.1.1.1",
        ] {
            assert_eq!(address(word.as_bytes()), None, "{word}");
        }
    }

    #[test]
    fn a_list_of_proxies_says_what_the_nearest_one_saw() {
        for (list, found) in [
            ("198.51.100.7", "198.51.100.7"),
            ("10.0.0.1, 198.51.100.7", "198.51.100.7"),
            ("forged,[2001:db8::1]:1", "2001:db8::1"),
            ("198.51.100.7, unknown", "198.51.100.7, unknown"),
            ("hash", "hash"),
        ] {
            assert_eq!(forwarded(list.as_bytes()), found.as_bytes(), "{list}");
        }
    }
}
