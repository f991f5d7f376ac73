//! Tests with stores that fail, with and without a failure policy.

use tidegate_http::server::{Limit, RateLimitLayer, Reason, Refusal};
use tidegate_http::subject::{Everybody, from_fn};
use tidegate_memory::{ErrorKind, Share, StoreExt};
use tidegate_testkit::faults::{Fault, Faults, FaultyStore};
use tower::Layer;

use super::*;

const POLICY: &str = "all: fixed-window 4/1m";

/// Returns a store whose next 100 calls fail with [`ErrorKind::Unavailable`].
fn down() -> FaultyStore<MemoryStore<ManualClock>> {
    let store = MemoryStore::builder().clock(ManualClock::default()).build();
    store.layer(Faults::new(vec![Fault::Before(ErrorKind::Unavailable); 100]))
}

async fn response(store: impl Store + 'static) -> (Response<String>, usize) {
    let limiter = Limiter::new(store, parse(&[POLICY])).unwrap();
    let (mut service, ledger) = limited(&limiter, [Limit::by("all", Everybody)]);
    let response = send(&mut service, request("/", &[])).await.unwrap();
    (response, paths(&ledger).len())
}

#[tokio::test]
async fn without_a_failure_policy_the_request_is_refused_with_503_and_no_numbers() {
    let (response, reached) = response(down()).await;
    let (status, fields) = head(&response);
    assert_eq!((status, reached), (503, 0));
    assert_eq!(fields, HashMap::from([("content-type", "application/problem+json")]));
    assert_eq!(
        response.body(),
        r#"{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity","title":"Request cannot be satisfied due to temporary server capacity constraints","status":503}"#
    );
}

#[tokio::test]
async fn failing_open_the_request_is_served_without_numbers() {
    let (response, reached) = response(down().or_fail_open()).await;
    assert_eq!((head(&response), reached), ((200, HashMap::new()), 1));
}

#[tokio::test]
async fn failing_closed_the_request_is_refused_with_503_and_a_hint() {
    let (response, reached) = response(down().or_fail_closed()).await;
    let (status, fields) = head(&response);
    assert_eq!((status, reached), (503, 0));
    assert_eq!(
        fields,
        HashMap::from([("content-type", "application/problem+json"), ("retry-after", "1")])
    );
}

#[tokio::test]
async fn falling_back_a_share_of_the_limit_is_told_and_its_refusal_is_503() {
    let fallback = MemoryStore::builder().clock(ManualClock::default()).build();
    let store = down().or_fall_back_to(fallback, Share::new(1, 4).unwrap());
    let limiter = Limiter::new(store, parse(&[POLICY])).unwrap();
    let (mut service, ledger) = limited(&limiter, [Limit::by("all", Everybody)]);
    let first = send(&mut service, request("/1", &[])).await.unwrap();
    assert_eq!(head(&first).0, 200);
    let second = send(&mut service, request("/2", &[])).await.unwrap();
    let (status, fields) = head(&second);
    assert_eq!((status, fields["retry-after"]), (503, "60"));
    assert!(second.body().contains("temporary-reduced-capacity"), "{}", second.body());
    assert_eq!(paths(&ledger), ["/1"]);
}

#[tokio::test]
async fn a_call_that_is_wrong_is_500_even_if_the_store_fails_open() {
    let limiter = Limiter::new(MemoryStore::new().or_fail_open(), parse(&[POLICY])).unwrap();
    let too_long = from_fn(|_| Some(Subject::from("x".repeat((1 << 20) + 1))));
    let inner = Inner::default();
    let ledger = Arc::clone(&inner.ledger);
    let layer = RateLimitLayer::new(limiter, [Limit::by("all", too_long)]).unwrap();
    let mut service = layer.layer(inner);
    let response = send(&mut service, request("/", &[])).await.unwrap();
    assert_eq!(response.status(), 500);
    assert_eq!(
        response.body(),
        r#"{"type":"about:blank","title":"Internal Server Error","status":500}"#
    );
    assert!(paths(&ledger).is_empty());
}

#[tokio::test]
async fn the_application_sees_the_stores_error() {
    let limiter = Limiter::new(down(), parse(&[POLICY])).unwrap();
    let layer = RateLimitLayer::new(limiter, [Limit::by("all", Everybody)]).unwrap();
    let layer = layer.respond_with(|refusal: &Refusal<'_>| match refusal.reason() {
        Reason::StoreFailed(error) => Response::new(error.kind().to_string()),
        reason => panic!("{reason:?}"),
    });
    let response = send(&mut layer.layer(Inner::default()), request("/", &[])).await.unwrap();
    assert_eq!(response.body(), "unavailable");
}
