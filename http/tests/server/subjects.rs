//! Requests without a subject get what was chosen.

use http::StatusCode;
use tidegate_http::server::{Limit, RateLimitLayer};
use tidegate_http::subject::{ClientAddress, Everybody};
use tower::Layer;

use super::*;

#[tokio::test]
async fn by_default_a_request_without_a_subject_is_refused_and_says_why() {
    let (limiter, _) = limiter(&["ip: fixed-window 1/1m"]);
    let (mut service, ledger) = limited(&limiter, [Limit::by("ip", ClientAddress::peer())]);
    for _ in 0..3 {
        let response = send(&mut service, request("/", &[])).await.unwrap();
        let (status, fields) = head(&response);
        assert_eq!(
            (status, fields),
            (400, HashMap::from([("content-type", "application/problem+json")]))
        );
        assert_eq!(
            response.body(),
            r#"{"type":"about:blank","title":"Bad Request","status":400,"detail":"The request has nothing that the limit 'ip' can be counted by"}"#
        );
    }
    assert!(paths(&ledger).is_empty());
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
    let of = |peer: &str| {
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
        assert_eq!(send(&mut service, of(peer)).await.unwrap().status(), status, "{peer}");
    }
}
