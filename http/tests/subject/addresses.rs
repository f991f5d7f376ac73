//! Addresses from requests.

use http::Request;
use tidegate_core::ErrorKind;
use tidegate_http::subject::{ClientAddress, ExtractSubject, PeerAddr};

use super::{TRUSTED, request, subject};

/// Returns the subject of a request from a trusted proxy with these lines of `X-Forwarded-For`.
fn xff(lines: &[&str]) -> Option<String> {
    let request = request("10.0.0.1:80", "x-forwarded-for", lines);
    subject(&ClientAddress::x_forwarded_for(TRUSTED).unwrap(), &request)
}

fn forwarded(lines: &[&str]) -> Option<String> {
    let request = request("10.0.0.1:80", "forwarded", lines);
    subject(&ClientAddress::forwarded(TRUSTED).unwrap(), &request)
}

#[test]
fn by_default_the_peer_counts_and_no_field_does() {
    let fields = ["x-forwarded-for", "forwarded", "x-real-ip"];
    for (field, value) in fields.into_iter().zip(["9.9.9.9", "for=9.9.9.9", "9.9.9.9"]) {
        let request = request("203.0.113.9:80", field, &[value]);
        assert_eq!(subject(&ClientAddress::peer(), &request).as_deref(), Some("203.0.113.9"));
    }
}

#[test]
fn without_the_peers_address_there_is_no_subject() {
    let (mut request, ()) = Request::new(()).into_parts();
    request.headers.insert("x-forwarded-for", "203.0.113.9".parse().unwrap());
    for client in [ClientAddress::peer(), ClientAddress::x_forwarded_for(TRUSTED).unwrap()] {
        assert_eq!(client.extract(&request), None);
        assert!(client.remedy(&request).unwrap().contains("`ClientAddress::peer_by`"));
    }
}

#[test]
fn a_peer_that_is_not_trusted_cannot_name_another_address() {
    let values = ["9.9.9.9", "for=9.9.9.9", "9.9.9.9"];
    let clients = [
        ClientAddress::x_forwarded_for(TRUSTED).unwrap(),
        ClientAddress::forwarded(TRUSTED).unwrap(),
        ClientAddress::x_real_ip(TRUSTED).unwrap(),
    ];
    for (client, value) in clients.into_iter().zip(values) {
        for field in ["x-forwarded-for", "forwarded", "x-real-ip"] {
            let request = request("11.0.0.1:80", field, &[value]);
            assert_eq!(subject(&client, &request).as_deref(), Some("11.0.0.1"));
        }
    }
}

#[test]
fn the_first_address_from_the_right_that_is_not_trusted_is_the_client() {
    for (lines, client) in [
        (&["203.0.113.9"][..], "203.0.113.9"),
        (&["6.6.6.6, 203.0.113.9"], "203.0.113.9"),
        (&["6.6.6.6,203.0.113.9,10.1.2.3"], "203.0.113.9"),
        (&["6.6.6.6,\t203.0.113.9:4711 , 10.1.2.3 ,192.168.1.1:80"], "203.0.113.9"),
        (&["junk, , unknown, 203.0.113.9, fd00::1"], "203.0.113.9"),
        (&["203.0.113.9, 192.168.1.2"], "192.168.1.2"),
        (&["203.0.113.9, ::ffff:10.0.0.1"], "203.0.113.9"),
        (&["::ffff:203.0.113.9"], "203.0.113.9"),
        (&["[2001:db8::1]:4711"], "2001:db8::/64"),
        (&["fe80::1%eth0"], "fe80::/64"),
    ] {
        assert_eq!(xff(lines).as_deref(), Some(client), "{lines:?}");
    }
}

#[test]
fn lines_are_joined_in_order() {
    assert_eq!(
        xff(&["6.6.6.6", "203.0.113.9, 10.0.0.2", "10.0.0.3"]).as_deref(),
        Some("203.0.113.9")
    );
    assert_eq!(xff(&["203.0.113.9", "6.6.6.6"]).as_deref(), Some("6.6.6.6"));
    let lines = ["for=6.6.6.6", "for=203.0.113.9, for=10.0.0.2", "for=\"[fd00::1]\""];
    assert_eq!(forwarded(&lines).as_deref(), Some("203.0.113.9"));
}

#[test]
fn if_all_are_trusted_the_farthest_is_the_client() {
    assert_eq!(xff(&["10.0.0.9, 10.0.0.8", "10.0.0.7"]).as_deref(), Some("10.0.0.9"));
    assert_eq!(forwarded(&["for=10.0.0.9, for=10.0.0.8"]).as_deref(), Some("10.0.0.9"));
}

#[test]
fn a_trusted_peer_without_the_field_is_itself() {
    assert_eq!(xff(&[]).as_deref(), Some("10.0.0.1"));
    assert_eq!(forwarded(&[]).as_deref(), Some("10.0.0.1"));
    // The extractor of `X-Forwarded-For` does not read `Forwarded` if its own field is absent.
    let request = request("10.0.0.1:80", "forwarded", &["for=203.0.113.9"]);
    let client = ClientAddress::x_forwarded_for(TRUSTED).unwrap();
    assert_eq!(subject(&client, &request).as_deref(), Some("10.0.0.1"));
}

#[test]
fn junk_in_the_place_that_decides_is_no_subject() {
    for junk in ["", " ", "unknown", "_hidden", "203.0.113.009", "example.org", "-", "1.2.3.4;"] {
        for line in [
            junk.to_string(),
            format!("203.0.113.9, {junk}"),
            format!("203.0.113.9,{junk}, 10.0.0.2"),
        ] {
            assert_eq!(xff(&[&line]), None, "{line}");
        }
        assert_eq!(xff(&["203.0.113.9", junk]), None, "{junk}");
    }
    for junk in [
        "",
        "for=unknown",
        "for=\"_a\"",
        "proto=http",
        "for=1.1.1.1;for=1.1.1.1",
        "203.0.113.9",
        "for=\"1.1.1.1",
    ] {
        assert_eq!(forwarded(&[&format!("for=203.0.113.9, {junk}")]), None, "{junk}");
        assert_eq!(forwarded(&["for=203.0.113.9", junk]), None, "{junk}");
    }
    let request = request("10.0.0.1:80", "x-forwarded-for", &[&b"203.0.113.9, \xff\xfe"[..]]);
    assert_eq!(subject(&ClientAddress::x_forwarded_for(TRUSTED).unwrap(), &request), None);
}

#[test]
fn what_is_forged_to_the_left_of_the_deciding_address_changes_nothing() {
    for forged in [
        "",
        ",",
        "\"",
        "\\",
        "for=\"",
        "for=\"a\\",
        "for=9.9.9.9;host=\"x, for=8.8.8.8",
        "10.0.0.1",
    ] {
        assert_eq!(xff(&[&format!("{forged}, 203.0.113.9")]).as_deref(), Some("203.0.113.9"));
        for element in ["for=203.0.113.9", "for=\"203.0.113.9:80\";host=\"a,b\""] {
            let line = format!("{forged}, {element}, for=\"[fd00::7]:1\"");
            assert_eq!(forwarded(&[&line]).as_deref(), Some("203.0.113.9"), "{line}");
            assert_eq!(forwarded(&[forged, element]).as_deref(), Some("203.0.113.9"), "{line}");
        }
    }
}

#[test]
fn a_field_of_one_address_counts_once_and_from_trusted_peers_only() {
    for (client, field) in [
        (ClientAddress::x_real_ip(TRUSTED).unwrap(), "x-real-ip"),
        (ClientAddress::header("CF-Connecting-IP", TRUSTED).unwrap(), "cf-connecting-ip"),
    ] {
        let subject_of = |lines: &[&str]| subject(&client, &request("10.0.0.1:80", field, lines));
        assert_eq!(subject_of(&["203.0.113.9"]).as_deref(), Some("203.0.113.9"));
        assert_eq!(subject_of(&[]).as_deref(), Some("10.0.0.1"));
        assert_eq!(subject_of(&["203.0.113.9", "203.0.113.9"]), None);
        assert_eq!(subject_of(&["203.0.113.9, 203.0.113.9"]), None);
        assert_eq!(subject_of(&[""]), None);
        assert_eq!(subject_of(&["unknown"]), None);
        // The field is invalid, but the setup of the server is correct, so there is no remedy.
        assert_eq!(client.remedy(&request("10.0.0.1:80", field, &["unknown"])), None);
    }
}

#[test]
fn a_proxy_is_an_address_or_a_network_and_any_other_text_is_named_with_its_position() {
    for (text, peer) in [
        ("127.0.0.1", "127.0.0.1:80"),
        ("::1", "[::1]:80"),
        ("::ffff:127.0.0.1", "127.0.0.1:80"),
        ("127.0.0.9/8", "127.0.0.1:80"),
    ] {
        let client = ClientAddress::x_forwarded_for([text]).unwrap();
        let proxied = request(peer, "x-forwarded-for", &["203.0.113.9"]);
        assert_eq!(subject(&client, &proxied).as_deref(), Some("203.0.113.9"), "{text}");
        let neighbour = request("128.0.0.1:80", "x-forwarded-for", &["203.0.113.9"]);
        assert_eq!(subject(&client, &neighbour).as_deref(), Some("128.0.0.1"), "{text}");
    }
    for text in ["", "localhost", "10.0.0.0/33", "10.0.0.1:80", " 10.0.0.1", "10.0.0.0/8,fd00::/8"]
    {
        let error = ClientAddress::forwarded(["10.0.0.0/8", text]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidConfig);
        assert_eq!(
            error.to_string(),
            format!(
                "invalid-config: trusted proxy 2 is `{text}`; it must be an address such as 127.0.0.1, or a network \
                 such as 10.0.0.0/8 or fd00::/8"
            )
        );
    }
    let long = "\n".repeat(1_000);
    let error = ClientAddress::x_real_ip([&long]).unwrap_err().to_string();
    assert!(error.len() < 300 && !error.contains('\n'), "{error}");
}

#[test]
fn a_name_that_is_not_of_a_field_is_an_error() {
    for name in ["", "x api", "größe", "a:b"] {
        let error = ClientAddress::header(name, TRUSTED).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidConfig);
        assert!(
            error.to_string().contains(&format!("the name of the field is `{name}`")),
            "{error}"
        );
    }
}

#[test]
fn networks_of_mapped_addresses_are_networks_of_ipv4() {
    let client = ClientAddress::x_forwarded_for(["::ffff:10.0.0.0/104"]).unwrap();
    let request = request("10.0.0.1:80", "x-forwarded-for", &["203.0.113.9, 10.9.9.9"]);
    assert_eq!(subject(&client, &request).as_deref(), Some("203.0.113.9"));
    // If a socket listens on both IPv6 and IPv4, the address of an IPv4 peer is an IPv4-mapped IPv6
    // address.
    let mut request = request;
    request.extensions.insert(PeerAddr("[::ffff:10.0.0.1]:80".parse().unwrap()));
    assert_eq!(subject(&client, &request).as_deref(), Some("203.0.113.9"));
}

#[test]
fn ipv6_addresses_count_by_prefix() {
    let request = request("[2001:db8:7:1:2:3:4:5]:80", "x-forwarded-for", &[""; 0]);
    let with = |prefix| subject(&ClientAddress::peer().v6_prefix(prefix), &request).unwrap();
    assert_eq!(subject(&ClientAddress::peer(), &request).unwrap(), "2001:db8:7:1::/64");
    assert_eq!(with(127), "2001:db8:7:1:2:3:4:4/127");
    assert_eq!(with(128), "2001:db8:7:1:2:3:4:5");
    assert_eq!(with(200), "2001:db8:7:1:2:3:4:5");
    assert_eq!(with(0), "::/0");
}

#[test]
fn a_function_finds_the_peer_of_another_server() {
    #[derive(Clone)]
    struct Conn(std::net::IpAddr);
    let client = ClientAddress::x_forwarded_for(TRUSTED)
        .unwrap()
        .peer_by(|extensions| Some(extensions.get::<Conn>()?.0));
    let mut request = request("203.0.113.9:80", "x-forwarded-for", &["6.6.6.6"]);
    assert_eq!(client.extract(&request), None);
    request.extensions.insert(Conn("10.0.0.1".parse().unwrap()));
    assert_eq!(subject(&client, &request).as_deref(), Some("6.6.6.6"));
}

#[cfg(feature = "axum")]
#[test]
fn axum_has_the_peers_address_in_the_request() {
    use axum::extract::connect_info::{ConnectInfo, MockConnectInfo};
    use std::net::SocketAddr;

    let address: SocketAddr = "203.0.113.9:80".parse().unwrap();
    let (mut request, ()) = Request::new(()).into_parts();
    request.extensions.insert(MockConnectInfo(address));
    assert_eq!(subject(&ClientAddress::peer(), &request).as_deref(), Some("203.0.113.9"));
    let (mut request, ()) = Request::new(()).into_parts();
    request.extensions.insert(ConnectInfo(address));
    assert_eq!(subject(&ClientAddress::peer(), &request).as_deref(), Some("203.0.113.9"));
}

#[test]
fn a_long_list_costs_bounded_work() {
    // The list contains 6,000 trusted proxies. The maximum is 64.
    let list = ["10.0.0.2"; 6_000].join(", ");
    assert_eq!(xff(&[&list]), None);
    let elements = ["for=10.0.0.2"; 5_000].join(", ");
    assert_eq!(forwarded(&[&elements]), None);
    assert_eq!(xff(&["10.0.0.2"; 64]), None);
    assert_eq!(xff(&["10.0.0.2"; 63]).as_deref(), Some("10.0.0.2"));
    // Each field has 64 KiB of one repeated text, such as a comma or a quote. No field contains an
    // address.
    for byte in ["1", ",", "\"", "\\", "\\\"", " "] {
        let field = byte.repeat(65_536 / byte.len());
        assert_eq!(xff(&[&field]), None);
        assert_eq!(forwarded(&[&field]), None);
    }
}

#[test]
fn a_million_forged_fields_are_one_subject() {
    const FORGED: u32 = 1_000_000;
    let client = ClientAddress::x_forwarded_for(TRUSTED).unwrap();
    let mut request = request("10.0.0.1:80", "x-forwarded-for", &[""; 0]);
    for number in 0..FORGED {
        let value = format!(
            "{}, 203.0.113.9",
            std::net::Ipv4Addr::from(number.wrapping_mul(2_654_435_761))
        );
        request.headers.insert("x-forwarded-for", value.parse().unwrap());
        assert_eq!(client.extract(&request).unwrap().as_bytes(), b"203.0.113.9");
    }
}
