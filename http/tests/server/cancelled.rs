//! Tests with response futures that are dropped, for example because the client disconnects.

use std::future::{Pending, pending};

use tidegate_http::server::{Limit, RateLimitLayer};
use tidegate_http::subject::Everybody;
use tidegate_memory::StoreExt;
use tidegate_testkit::faults::{Fault, Faults};
use tower::{Layer, Service};

use super::*;

#[tokio::test]
async fn dropped_before_the_decision_a_request_never_reaches_the_service() {
    let store = MemoryStore::builder().clock(ManualClock::default()).build();
    let store = Arc::new(store.layer(Faults::new(vec![Fault::Delayed])));
    let limiter = Limiter::new(store, parse(&["all: fixed-window 1/1m"])).unwrap();
    let (mut service, ledger) = limited(&limiter, [Limit::by("all", Everybody)]);
    std::future::poll_fn(|context| service.poll_ready(context)).await.unwrap();
    let mut future = service.call(request("/1", &[]));
    assert!(poll_once(&mut future).is_none());
    drop(future);
    Faults::deliver(limiter.store()).await;
    assert!(paths(&ledger).is_empty());
    // The call was already in flight when the future was dropped, so the store charged it.
    assert_eq!(status(&mut service, "/2", "").await, 429);
}

/// A service that accepts requests and never answers.
#[derive(Clone)]
struct Endless;

impl Service<Request<String>> for Endless {
    type Response = Response<String>;
    type Error = Failed;
    type Future = Pending<Result<Response<String>, Failed>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Failed>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<String>) -> Self::Future {
        pending()
    }
}

#[tokio::test]
async fn dropped_at_work_a_request_stays_charged() {
    let (limiter, _) = limiter(&["all: fixed-window 2/1m"]);
    let layer = RateLimitLayer::new(limiter.clone(), [Limit::by("all", Everybody)]).unwrap();
    let mut service = layer.refund_server_errors().layer(Endless);
    let mut future = service.call(request("/", &[]));
    assert!(poll_once(&mut future).is_none());
    assert_eq!(limiter.by("all", ()).peek().await.unwrap().verdicts()[0].remaining(), 1);
    drop(future);
    assert_eq!(limiter.by("all", ()).peek().await.unwrap().verdicts()[0].remaining(), 1);
}
