//! Limits that are alternatives.

use tidegate_http::server::{Limit, RateLimitLayer};
use tidegate_http::subject::Everybody;
use tidegate_memory::ErrorKind;
use tower::Layer;

use super::*;

fn limits() -> [Limit; 3] {
    let pool = Limit::by("pool", Everybody).alternative().cost(2);
    [user("day"), user("own"), pool]
}

const POLICIES: [&str; 3] =
    ["day: fixed-window 9/1d", "own: fixed-window 1/1m", "pool: gcra 4/1m burst 4"];

async fn left<S: Store>(limiter: &Limiter<S>) -> [u64; 3] {
    let all = [("day", "a"), ("own", "a"), ("pool", "")];
    let mut left = [0; 3];
    for (left, (policy, subject)) in left.iter_mut().zip(all) {
        *left = limiter.by(policy, subject).peek().await.unwrap().verdicts()[0].remaining();
    }
    left
}

fn get(status: &str) -> Request<String> {
    request("/", &[("user", "a"), ("status", status)])
}

#[tokio::test]
async fn the_first_limit_that_its_policy_admits_pays_and_is_announced() {
    let (limiter, _) = limiter(&POLICIES);
    let layer = RateLimitLayer::new(limiter.clone(), limits()).unwrap();
    let mut service = layer.layer(Inner::default());
    for (announced, expected) in [
        (&["\"day\"", "\"own\""][..], [8, 0, 4]),
        (&["\"day\"", "\"pool\""], [7, 0, 2]),
        (&["\"day\"", "\"pool\""], [6, 0, 0]),
    ] {
        let response = send(&mut service, get("200")).await.unwrap();
        assert_eq!(response.status(), 200);
        let field = response.headers()["ratelimit"].to_str().unwrap().to_owned();
        let names: Vec<_> = field.split(", ").map(|item| item.split(';').next().unwrap()).collect();
        assert_eq!(names, announced, "{field}");
        assert_eq!(left(&limiter).await, expected);
    }
    let response = send(&mut service, get("200")).await.unwrap();
    assert_eq!(response.status(), 429);
    // The pool has a token again after 15 s, but a request costs two, so the pool waits for 30 s.
    assert_eq!(response.headers()["retry-after"], "30");
    assert_eq!(left(&limiter).await, [6, 0, 0]);
}

#[tokio::test]
async fn a_refund_names_the_limit_that_paid() {
    let (limiter, _) = limiter(&POLICIES);
    let layer = RateLimitLayer::new(limiter.clone(), limits()).unwrap().refund_server_errors();
    let mut service = layer.layer(Inner::default());
    for _ in 0..2 {
        assert_eq!(send(&mut service, get("503")).await.unwrap().status(), 503);
        assert_eq!(left(&limiter).await, [9, 1, 4]);
    }
    send(&mut service, get("200")).await.unwrap();
    send(&mut service, get("503")).await.unwrap();
    assert_eq!(left(&limiter).await, [8, 0, 4]);
}

#[tokio::test]
async fn a_limit_whose_alternatives_do_not_apply_is_an_ordinary_limit() {
    let (limiter, _) = limiter(&POLICIES);
    let [day, own, pool] = limits();
    let limits = [day, own.only(|request| request.uri.path() != "/"), pool];
    let layer = RateLimitLayer::new(limiter.clone(), limits).unwrap();
    let mut service = layer.layer(Inner::default());
    for expected in [200, 200, 429] {
        assert_eq!(send(&mut service, get("200")).await.unwrap().status(), expected);
    }
    assert_eq!(left(&limiter).await, [7, 1, 0]);
}

#[test]
fn a_list_that_could_not_work_is_not_built() {
    let error = |policies: &[&str], limits: Vec<Limit>| {
        let error = RateLimitLayer::new(limiter(policies).0, limits).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidConfig);
        error.to_string()
    };
    let text = error(&["a: gcra 1/s"], vec![user("a").alternative()]);
    assert!(text.contains("is the first limit"), "{text}");
    for bad in ["b: fixed-window 1/1m shadow", "b: fixed-window 1/1m block 1m"] {
        let limits = vec![user("a"), user("b").alternative()];
        let text = error(&["a: gcra 1/s", bad], limits);
        assert!(text.contains(bad) && text.contains("cannot be an alternative"), "{text}");
    }
}
