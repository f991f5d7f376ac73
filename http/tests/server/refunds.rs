//! Refunds of requests that failed.

use std::time::Duration;

use tidegate_http::server::RateLimitLayer;
use tidegate_memory::{ErrorKind, StoreExt};
use tidegate_testkit::faults::{Fault, Faults, FaultyStore};
use tower::{Layer, Service};

use super::*;

async fn left<S: Store>(limiter: &Limiter<S>, policy: &str) -> u64 {
    limiter.by(policy, "a").peek().await.unwrap().verdicts()[0].remaining()
}

fn answered(status: &str) -> Request<String> {
    request("/", &[("user", "a"), ("status", status)])
}

#[tokio::test]
async fn server_errors_and_failures_are_given_back_and_nothing_else() {
    let (limiter, _) = limiter(&["user: fixed-window 9/1m"]);
    let layer = RateLimitLayer::new(limiter.clone(), [user("user").cost(2)]).unwrap();
    let mut service = layer.clone().refund_server_errors().layer(Inner::default());
    for (status, expected) in [("200", 7), ("404", 5), ("500", 5), ("503", 5), ("fail", 5)] {
        let result = send(&mut service, answered(status)).await;
        assert_eq!(result.is_err(), status == "fail");
        assert_eq!(left(&limiter, "user").await, expected, "{status}");
    }
    // A layer without a rule for refunds refunds nothing.
    let mut service = layer.layer(Inner::default());
    send(&mut service, answered("500")).await.unwrap();
    assert_eq!(left(&limiter, "user").await, 3);
}

/// Without fields, the layer keeps the decision on a request only if the request may be refunded.
/// It must still refuse and refund as with fields.
#[tokio::test]
async fn a_layer_without_fields_refuses_and_gives_back_as_with_fields() {
    for refunds in [false, true] {
        let (limiter, _) = limiter(&["user: fixed-window 2/1m"]);
        let layer = RateLimitLayer::new(limiter.clone(), [user("user")]).unwrap().without_fields();
        let layer = if refunds { layer.refund_server_errors() } else { layer };
        let mut service = layer.layer(Inner::default());
        assert_eq!(send(&mut service, answered("500")).await.unwrap().status(), 500);
        assert_eq!(left(&limiter, "user").await, if refunds { 2 } else { 1 });
        for _ in 0..left(&limiter, "user").await {
            assert_eq!(send(&mut service, answered("200")).await.unwrap().status(), 200);
        }
        let response = send(&mut service, answered("200")).await.unwrap();
        assert_eq!(response.status(), 429);
        assert!(!response.headers().contains_key("ratelimit"));
    }
}

#[tokio::test]
async fn a_rule_of_the_applications_own_decides_by_the_head_of_the_response() {
    let (limiter, _) = limiter(&["user: fixed-window 9/1m"]);
    let layer = RateLimitLayer::new(limiter.clone(), [user("user")]).unwrap();
    let mut service = layer.refund_when(|response| response.status == 404).layer(Inner::default());
    let response = send(&mut service, answered("404")).await.unwrap();
    assert_eq!(response.body(), "/"); // whole
    assert_eq!(left(&limiter, "user").await, 9);
    send(&mut service, answered("500")).await.unwrap();
    assert_eq!(left(&limiter, "user").await, 8);
}

#[tokio::test]
async fn a_limit_on_attempts_keeps_its_charge() {
    let (limiter, _) = limiter(&["user: fixed-window 9/1m", "login: fixed-window 5/1m"]);
    let limits = [user("user"), user("login").without_refund()];
    let layer = RateLimitLayer::new(limiter.clone(), limits).unwrap();
    let mut service = layer.refund_server_errors().layer(Inner::default());
    send(&mut service, answered("500")).await.unwrap();
    assert_eq!((left(&limiter, "user").await, left(&limiter, "login").await), (9, 4));
}

#[tokio::test]
async fn a_shadow_that_was_not_charged_is_not_given_back() {
    let (limiter, _) = limiter(&["user: fixed-window 9/1m", "strict: fixed-window 3/1m shadow"]);
    let limits = [user("user"), user("strict").cost(2)];
    let layer = RateLimitLayer::new(limiter.clone(), limits).unwrap();
    let mut service = layer.refund_server_errors().layer(Inner::default());
    send(&mut service, answered("200")).await.unwrap();
    assert_eq!(left(&limiter, "strict").await, 1);
    send(&mut service, answered("500")).await.unwrap();
    assert_eq!((left(&limiter, "user").await, left(&limiter, "strict").await), (8, 1));
}

#[tokio::test]
async fn a_refused_request_has_nothing_to_give_back() {
    let (limiter, _) = limiter(&["user: fixed-window 1/1m"]);
    let layer = RateLimitLayer::new(limiter.clone(), [user("user")]).unwrap();
    let mut service = layer.refund_when(|_| true).layer(Inner::default());
    assert!(limiter.by("user", "a").acquire().await.unwrap().is_allowed());
    assert_eq!(send(&mut service, answered("200")).await.unwrap().status(), 429);
    assert_eq!(left(&limiter, "user").await, 0);
}

type Faulty = Limiter<Arc<FaultyStore<MemoryStore<ManualClock>>>>;

fn faulty(faults: &[Fault]) -> Faulty {
    let store = MemoryStore::builder().clock(ManualClock::default()).build();
    let store = Arc::new(store.layer(Faults::new(faults.to_vec())));
    Limiter::new(store, parse(&["user: fixed-window 9/1m"])).unwrap()
}

#[tokio::test]
async fn the_response_waits_for_the_refund() {
    let limiter = faulty(&[Fault::None, Fault::Delayed]);
    let layer = RateLimitLayer::new(limiter.clone(), [user("user")]).unwrap();
    let mut service = layer.refund_server_errors().layer(Inner::default());
    std::future::poll_fn(|context| service.poll_ready(context)).await.unwrap();
    let mut future = service.call(answered("500"));
    assert!(poll_once(&mut future).is_none());
    Faults::deliver(limiter.store()).await;
    let response = poll_once(&mut future).unwrap().unwrap();
    assert_eq!(response.status(), 500);
    assert_eq!(response.headers()["ratelimit"], r#""user";r=8;t=60"#); // as decided
    assert_eq!(left(&limiter, "user").await, 9);
}

#[tokio::test]
async fn a_refund_that_fails_changes_no_response() {
    let limiter = faulty(&[Fault::None, Fault::Before(ErrorKind::Timeout)]);
    let layer = RateLimitLayer::new(limiter.clone(), [user("user")]).unwrap();
    let mut service = layer.refund_server_errors().layer(Inner::default());
    assert_eq!(send(&mut service, answered("500")).await.unwrap().status(), 500);
    assert_eq!(left(&limiter, "user").await, 8);
}

#[tokio::test]
async fn what_a_failure_policy_admitted_is_not_given_back_to_the_store() {
    let store = MemoryStore::builder().clock(ManualClock::default()).build();
    let faults = vec![Fault::None, Fault::Before(ErrorKind::Unavailable)];
    let store = Arc::new(store.layer(Faults::new(faults))).or_fail_open();
    let limiter = Limiter::new(store, parse(&["user: fixed-window 9/1m"])).unwrap();
    let layer = RateLimitLayer::new(limiter.clone(), [user("user")]).unwrap();
    let mut service = layer.refund_server_errors().layer(Inner::default());
    send(&mut service, answered("200")).await.unwrap();
    assert_eq!(send(&mut service, answered("500")).await.unwrap().status(), 500); // failed open
    assert_eq!(left(&limiter, "user").await, 8);
}

/// A slow response comes after the window of its charge, so it must not refund another charge.
#[tokio::test(start_paused = true)]
async fn a_response_after_the_window_of_its_charge_refunds_nothing() {
    for (seconds, expected) in [(59, 9), (60, 0)] {
        let (limiter, clock) = limiter(&["user: fixed-window 9/1m"]);
        let layer = RateLimitLayer::new(limiter.clone(), [user("user").cost(9)]).unwrap();
        let wait = Duration::from_secs(seconds);
        let inner = tower::service_fn(move |_: Request<String>| async move {
            tokio::time::sleep(wait).await;
            Ok::<_, Failed>(Response::builder().status(504).body(String::new()).unwrap())
        });
        let mut service = layer.refund_server_errors().layer(inner);
        let mut slow = Box::pin(send(&mut service, request("/", &[("user", "a")])));
        assert!(poll_once(&mut slow).is_none());
        clock.advance(wait);
        if expected == 0 {
            let later = limiter.by("user", "a").cost(9).acquire().await.unwrap();
            assert!(later.is_allowed());
        }
        assert_eq!(slow.await.unwrap().status(), 504);
        assert_eq!(left(&limiter, "user").await, expected);
    }
}
