//! Checks that must pass for any bytes that a client sends. A fuzz target and property tests run
//! these checks.

use std::net::{IpAddr, SocketAddr};
use std::sync::LazyLock;

use http::request::Parts;
use http::{HeaderValue, Request};
use ipnet::IpNet;
use tidegate_http::subject::{ClientAddress, PeerAddr};

const FIELDS: [&str; 3] = ["x-forwarded-for", "forwarded", "x-real-ip"];

const TRUSTED: [&str; 3] = ["10.0.0.0/8", "192.168.1.1/32", "fd00::/8"];

/// The extractor of each field in `FIELDS`. The extractors are created once, because a fuzzer
/// checks thousands of inputs per second.
static CLIENTS: LazyLock<[ClientAddress; 3]> = LazyLock::new(|| {
    [
        ClientAddress::x_forwarded_for(TRUSTED).unwrap(),
        ClientAddress::forwarded(TRUSTED).unwrap(),
        ClientAddress::x_real_ip(TRUSTED).unwrap(),
    ]
});

fn request(peer: IpAddr, field: &'static str, lines: &[&[u8]]) -> Parts {
    let (mut request, ()) = Request::new(()).into_parts();
    request.extensions.insert(PeerAddr(SocketAddr::new(peer, 80)));
    for line in lines {
        if let Ok(value) = HeaderValue::from_bytes(line) {
            request.headers.append(field, value);
        }
    }
    request
}

/// Checks that a client cannot forge its address with these bytes, which it sends as the lines of a
/// field.
pub(crate) fn check(forged: &[u8]) {
    let proxy: IpAddr = "10.0.0.1".parse().unwrap();
    let stranger: IpAddr = "198.51.100.7".parse().unwrap();
    let lines: Vec<&[u8]> = forged.split(|&byte| byte == b'\n').collect();
    let [list, forwarded, _] = &*CLIENTS;

    for (client, field) in CLIENTS.iter().zip(FIELDS) {
        // A trusted proxy does not know the field and passes it on unchanged. The extractor can
        // return any address, but it must not panic.
        let _ = client.address(&request(proxy, field, &lines));
        // If the client connects without a proxy, the field has no effect.
        assert_eq!(client.address(&request(stranger, field, &lines)), Some(stranger));
    }

    // A proxy appends the address of its client to the last line, or adds a line. The extractor
    // must return this address.
    for (client, field, appended) in [
        (list, "x-forwarded-for", "198.51.100.7"),
        (list, "x-forwarded-for", "198.51.100.7:4711, 10.0.0.2,fd00::1"),
        (forwarded, "forwarded", "for=198.51.100.7"),
        (
            forwarded,
            "forwarded",
            "for=\"198.51.100.7:4711\";host=\"a,\\\"b\", For=\"[fd00::1]\";proto=http",
        ),
    ] {
        let mut lines = lines.clone();
        let last = lines.pop().unwrap_or_default();
        let joined = [last, b", ", appended.as_bytes()].concat();
        lines.push(&joined);
        if HeaderValue::from_bytes(&joined).is_ok() {
            assert_eq!(client.address(&request(proxy, field, &lines)), Some(stranger));
        }
        lines.pop();
        lines.extend([last, appended.as_bytes()]);
        assert_eq!(client.address(&request(proxy, field, &lines)), Some(stranger));
    }

    // A proxy appends an element without an address. The extractor must return no address,
    // regardless of the elements that the client sent.
    for (client, field, junk) in [
        (list, "x-forwarded-for", "unknown"),
        (list, "x-forwarded-for", "_hidden, 10.0.0.2"),
        (forwarded, "forwarded", "for=unknown"),
        (forwarded, "forwarded", "proto=http"),
    ] {
        let lines = [&lines[..], &[junk.as_bytes()]].concat();
        assert_eq!(client.address(&request(proxy, field, &lines)), None);
    }
}

/// Compares the extractor of `X-Forwarded-For` with a second, simple implementation.
pub(crate) fn model(lines: &[String]) {
    let proxy: IpAddr = "10.0.0.1".parse().unwrap();
    let joined = lines.join(",");
    let trusted = TRUSTED.map(|network| network.parse::<IpNet>().unwrap());
    let mut expected = Some(proxy);
    if !lines.is_empty() {
        for element in joined.rsplit(',') {
            let element = element.trim();
            let address = element
                .parse::<IpAddr>()
                .or_else(|_| element.parse::<SocketAddr>().map(|address| address.ip()));
            expected = address.ok().map(|address| address.to_canonical());
            let is_trusted =
                expected.is_some_and(|address| trusted.iter().any(|net| net.contains(&address)));
            if !is_trusted {
                break;
            }
        }
    }
    let lines: Vec<&[u8]> = lines.iter().map(String::as_bytes).collect();
    let [list, ..] = &*CLIENTS;
    assert_eq!(list.address(&request(proxy, "x-forwarded-for", &lines)), expected, "{joined:?}");
}
