//! Tests the settings of a limit for requests without a subject.

use http::request::Parts;
use http::{HeaderValue, StatusCode};
use tidegate_http::server::{GrpcStatus, Limit, RateLimitLayer};
use tidegate_http::subject::{ApiKey, ClientAddress, Everybody, ExtractSubject, HashKey};
use tidegate_memory::{PolicyLists, StoreExt};
use tower::Layer;

use super::*;

#[tokio::test]
async fn by_default_a_request_without_a_subject_is_refused_and_says_why() {
    let (limiter, _) = limiter(&["user: fixed-window 1/1m"]);
    let (mut service, ledger) = limited(&limiter, [user("user")]);
    for _ in 0..3 {
        let response = send(&mut service, request("/", &[])).await.unwrap();
        let (status, fields) = head(&response);
        assert_eq!(
            (status, fields),
            (400, HashMap::from([("content-type", "application/problem+json")]))
        );
        assert_eq!(
            response.body(),
            r#"{"type":"about:blank","title":"Bad Request","status":400,"detail":"the request has no subject for the limit 'user'"}"#
        );
    }
    assert!(paths(&ledger).is_empty());
}

#[tokio::test]
async fn a_server_that_does_not_pass_the_peers_address_on_is_told_what_to_set() {
    let (limiter, _) = limiter(&["ip: fixed-window 1/1m"]);
    let layer = RateLimitLayer::new(limiter, [Limit::by("ip", ClientAddress::peer())]).unwrap();
    let mut service = layer.clone().layer(Inner::default());
    let problem = send(&mut service, request("/", &[])).await.unwrap();
    let mut service = layer.respond(GrpcStatus).layer(Inner::default());
    let grpc = send(&mut service, request("/", &[])).await.unwrap();
    assert_eq!(grpc.headers()["grpc-status"], "3");
    for text in [problem.body(), grpc.headers()["grpc-message"].to_str().unwrap()] {
        assert!(text.contains("no subject for the limit 'ip': the server does not pass"), "{text}");
        assert!(text.contains("with tonic, set `ClientAddress::peer_by`"), "{text}");
        assert!(text.contains("`into_make_service_with_connect_info::<SocketAddr>()`"), "{text}");
    }
}

/// The subject of an IPv6 client is its network.
#[tokio::test]
async fn a_list_finds_the_networks_of_clients() {
    let lists = "deny 2001:db8:bad::/48\nallow 2001:db8:7::/64\ndeny 10.0.0.0/8\n".parse().unwrap();
    let store = MemoryStore::new().listed(PolicyLists::new().with("ip", lists));
    let policy: Policy = "ip: fixed-window 1/1m".parse().unwrap();
    let limiter = Limiter::new(store, [policy]).unwrap();
    let layer = RateLimitLayer::new(limiter, [Limit::by("ip", ClientAddress::peer())]).unwrap();
    let mut service = layer.layer(Inner::default());
    for (peer, statuses) in [
        ("[2001:db8:bad:1::9]:1", [429, 429]),
        ("[2001:db8:7::9]:1", [200, 200]),
        ("[2001:db8:8::9]:1", [200, 429]),
        ("10.1.1.1:1", [429, 429]),
        ("11.1.1.1:1", [200, 429]),
    ] {
        for status in statuses {
            let mut request = request("/", &[]);
            let peer = tidegate_http::subject::PeerAddr(peer.parse().unwrap());
            request.extensions_mut().insert(peer);
            let response = send(&mut service, request).await.unwrap();
            assert_eq!(response.status(), status, "{peer:?}");
        }
    }
}

/// An extractor that finds no subject. Its remedy contains characters that a response must escape.
struct Misplaced;

impl ExtractSubject for Misplaced {
    fn extract<'r>(&'r self, _: &'r Parts) -> Option<Subject<'r>> {
        None
    }

    fn remedy(&self, _: &Parts) -> Option<&'static str> {
        Some("100 % \"größer\"\n\\")
    }
}

#[tokio::test]
async fn the_remedy_of_an_application_is_escaped() {
    let (limiter, _) = limiter(&["ip: fixed-window 1/1m"]);
    for limit in [Limit::by("ip", Misplaced), Limit::by("ip", Everybody).tenant_by(Misplaced)] {
        let layer = RateLimitLayer::new(limiter.clone(), [limit]).unwrap();
        let mut service = layer.clone().layer(Inner::default());
        let problem = send(&mut service, request("/", &[])).await.unwrap();
        assert!(problem.body().ends_with(r#"'ip': 100 % \"größer\"\u000a\\"}"#), "{problem:?}");
        let mut service = layer.respond(GrpcStatus).layer(Inner::default());
        let grpc = send(&mut service, request("/", &[])).await.unwrap();
        let message = grpc.headers()["grpc-message"].clone();
        let message = message.to_str().unwrap();
        assert!(message.ends_with(r#"'ip': 100 %25 "gr%C3%B6%C3%9Fer"%0A\"#), "{message}");
    }
}

#[tokio::test]
async fn a_refusal_for_want_of_a_subject_charges_nothing() {
    let (limiter, _) = limiter(&["all: fixed-window 1/1m", "user: fixed-window 1/1m"]);
    let limits = [Limit::by("all", Everybody), user("user").or_refuse(StatusCode::UNAUTHORIZED)];
    let (mut service, _) = limited(&limiter, limits);
    assert_eq!(send(&mut service, request("/", &[])).await.unwrap().status(), 401);
    assert_eq!(status(&mut service, "/", "a").await, 200);
}

#[tokio::test]
async fn b95_a_header_field_of_any_bytes_is_limited_or_refused() {
    let (limiter, _) = limiter(&["key: fixed-window 1/1m", "ip: fixed-window 9/1m"]);
    let key = HashKey::new(b"0123456789abcdef").unwrap();
    let by_key = ApiKey::header("x-api-key", key).unwrap();
    let client = ClientAddress::x_forwarded_for(["10.0.0.0/8"]).unwrap();
    let limits = [Limit::by("key", by_key), Limit::by("ip", client)];
    let layer = RateLimitLayer::new(limiter, limits).unwrap();
    let mut service = layer.layer(Inner::default());
    let request = |key: &[u8], client: &[u8]| {
        let mut request = request("/", &[]);
        let headers = request.headers_mut();
        headers.insert("x-api-key", HeaderValue::from_bytes(key).unwrap());
        headers.insert("x-forwarded-for", HeaderValue::from_bytes(client).unwrap());
        let peer = tidegate_http::subject::PeerAddr("10.0.0.1:1".parse().unwrap());
        request.extensions_mut().insert(peer);
        request
    };
    for (key, client, status) in [
        (&b"dave\xff"[..], &b"203.0.113.9"[..], 200),
        (b"dave\xff", b"203.0.113.9", 429),
        (b"dave\xfe", b"203.0.113.9", 200),
        // The field `X-Forwarded-For` contains no valid address, so the request has no subject and
        // is refused.
        (b"dave", b"203.0.113.9\xff", 400),
        (b"dave", b"\xff", 400),
    ] {
        let response = send(&mut service, request(key, client)).await.unwrap();
        let shown = (key.escape_ascii().to_string(), client.escape_ascii().to_string());
        assert_eq!(response.status(), status, "{shown:?}");
    }
}

#[tokio::test]
async fn a_limit_that_lets_pass_leaves_the_others_in_force() {
    let (limiter, _) = limiter(&["all: fixed-window 2/1m", "user: fixed-window 1/1m"]);
    let (mut service, _) = limited(&limiter, [Limit::by("all", Everybody), user("user").or_pass()]);
    for (status, fields) in
        [(200, r#""all";r=1;t=60"#), (200, r#""all";r=0;t=60"#), (429, r#""all";r=0;t=60"#)]
    {
        let response = send(&mut service, request("/", &[])).await.unwrap();
        assert_eq!(response.status(), status);
        assert_eq!(response.headers()["ratelimit"], fields);
        assert_eq!(response.headers()["ratelimit-policy"], r#""all";q=2;w=60"#);
    }
}

#[tokio::test]
async fn a_shared_subject_is_no_one_elses() {
    let (limiter, _) = limiter(&["user: fixed-window 1/1m"]);
    let (mut service, _) = limited(&limiter, [user("user").or_share("anonymous")]);
    let anonymous = || request("/", &[]);
    assert_eq!(send(&mut service, anonymous()).await.unwrap().status(), 200);
    assert_eq!(send(&mut service, anonymous()).await.unwrap().status(), 429);
    assert_eq!(status(&mut service, "/", "anonymous").await, 200);
}

#[tokio::test]
async fn addresses_of_one_network_count_together() {
    let (limiter, _) = limiter(&["ip: fixed-window 1/1m"]);
    let layer = RateLimitLayer::new(limiter, [Limit::by("ip", ClientAddress::peer())]).unwrap();
    let mut service = layer.layer(Inner::default());
    let from_peer = |peer: &str| {
        let mut request = request("/", &[("x-forwarded-for", "6.6.6.6")]);
        let peer = tidegate_http::subject::PeerAddr(peer.parse().unwrap());
        request.extensions_mut().insert(peer);
        request
    };
    for (peer, status) in [
        ("203.0.113.9:1", 200),
        ("203.0.113.9:2", 429),
        ("[::ffff:203.0.113.9]:2", 429),
        ("203.0.113.8:1", 200),
        ("[2001:db8::1]:1", 200),
        ("[2001:db8::2]:1", 429),
        ("[2001:db8:0:1::2]:1", 200),
    ] {
        assert_eq!(send(&mut service, from_peer(peer)).await.unwrap().status(), status, "{peer}");
    }
}
