//! Tests that the layer calls only a service that was made ready.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tidegate_http::server::{Limit, RateLimitLayer};
use tidegate_http::subject::Everybody;
use tidegate_memory::{Breaker, DenyCache, StoreExt};
use tidegate_testkit::faults::{Fault, Faults, FaultyStore};
use tower::{Layer, Service};

use super::*;

/// Returns a limiter on a store whose calls have these faults, one after another. A fault can delay
/// a decision.
fn late(limit: &str, faults: &[Fault]) -> Limiter<Arc<FaultyStore<MemoryStore<ManualClock>>>> {
    let store = MemoryStore::builder().clock(ManualClock::default()).build();
    let store = Arc::new(store.layer(Faults::new(faults.to_vec())));
    Limiter::new(store, [limit.parse().unwrap()]).unwrap()
}

// The service `Inner` panics if it is called before it was made ready. A clone of `Inner` is not
// ready.

#[tokio::test]
async fn with_a_store_that_answers_at_once() {
    let (limiter, _) = limiter(&["all: fixed-window 2/1m"]);
    let (mut service, ledger) = limited(&limiter, [Limit::by("all", Everybody)]);
    for path in ["/1", "/2", "/3"] {
        send(&mut service, request(path, &[])).await.unwrap();
    }
    assert_eq!(paths(&ledger), ["/1", "/2"]);
}

/// A service that returns a given response, and panics if it is cloned.
struct Once(Option<Response<String>>);

impl Clone for Once {
    fn clone(&self) -> Self {
        panic!("cloned")
    }
}

impl Service<Request<String>> for Once {
    type Response = Response<String>;
    type Error = Failed;
    type Future = Ready<Result<Response<String>, Failed>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Failed>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<String>) -> Self::Future {
        ready(Ok(self.0.take().unwrap()))
    }
}

#[test]
fn with_a_store_that_answers_at_once_a_request_costs_one_allocation_and_no_clone() {
    let (limiter, _) = limiter(&["all: fixed-window 9/1m"]);
    assert!(limiter.store().answers_immediately());
    let layer = RateLimitLayer::new(limiter, [Limit::by("all", Everybody)]).unwrap();
    let mut service = layer.layer(Once(None));
    // The first request needs more allocations: it creates the state, and its clone of the prepared
    // `HeaderValue` makes the bytes of the value shared.
    for most in [9, 1] {
        let mut response = Response::new(String::new());
        // The map of fields has capacity, because a response usually has other fields.
        response.headers_mut().reserve(12);
        service.get_mut().0 = Some(response);
        let request = request("/", &[]);
        let mut status = None;
        let counted = allocation_counter::measure(|| {
            let mut future = service.call(request);
            status = poll_once(&mut future).map(|response| response.unwrap().status());
        });
        assert_eq!(status, Some(StatusCode::OK));
        assert!(counted.count_total <= most, "{} allocations", counted.count_total);
    }
}

#[test]
fn with_layers_around_such_a_store_there_is_no_clone_either() {
    let store = MemoryStore::builder().clock(ManualClock::default()).build();
    let store = store
        .timeout(Duration::from_secs(1))
        .breaker(Breaker::new())
        .deny_cache(DenyCache::new())
        .or_fail_open();
    let limiter = Limiter::new(store, parse(&["all: fixed-window 1/1m"])).unwrap();
    let layer = RateLimitLayer::new(limiter, [Limit::by("all", Everybody)]).unwrap();
    let mut service = layer.layer(Once(Some(Response::new(String::new()))));
    for status in [200, 429, 429] {
        let response = poll_once(&mut service.call(request("/", &[]))).unwrap().unwrap();
        assert_eq!(response.status(), status);
    }
}

#[tokio::test]
async fn with_a_store_that_answers_later() {
    let limiter = late("all: fixed-window 2/1m", &[Fault::Delayed; 4]);
    let (mut service, ledger) = limited(&limiter, [Limit::by("all", Everybody)]);
    for path in ["/1", "/2", "/3"] {
        std::future::poll_fn(|context| service.poll_ready(context)).await.unwrap();
        let mut future = service.call(request(path, &[]));
        assert!(poll_once(&mut future).is_none());
        Faults::deliver(limiter.store()).await;
        let response = poll_once(&mut future).unwrap().unwrap();
        assert_eq!(response.status(), if path == "/3" { 429 } else { 200 });
    }
    assert_eq!(paths(&ledger), ["/1", "/2"]);
}

#[tokio::test]
async fn responses_in_flight_do_not_share_a_service() {
    let limiter = late("all: fixed-window 9/1m", &[Fault::Delayed; 3]);
    let (mut service, ledger) = limited(&limiter, [Limit::by("all", Everybody)]);
    let mut futures = vec![];
    for path in ["/1", "/2", "/3"] {
        std::future::poll_fn(|context| service.poll_ready(context)).await.unwrap();
        futures.push(service.call(request(path, &[])));
    }
    assert!(futures.iter_mut().all(|future| poll_once(future).is_none()));
    Faults::deliver(limiter.store()).await;
    for future in futures.iter_mut().rev() {
        assert_eq!(poll_once(future).unwrap().unwrap().status(), 200);
    }
    assert_eq!(paths(&ledger), ["/3", "/2", "/1"]);
}

#[tokio::test]
async fn a_wake_up_comes_when_the_store_has_decided() {
    let limiter = late("all: fixed-window 9/1m", &[Fault::Delayed]);
    let (mut service, _) = limited(&limiter, [Limit::by("all", Everybody)]);
    let sent =
        tokio::spawn(async move { send(&mut service, request("/", &[])).await.unwrap().status() });
    while limiter.store().as_layer().in_flight() == 0 {
        tokio::task::yield_now().await;
    }
    Faults::deliver(limiter.store()).await;
    assert_eq!(sent.await.unwrap(), 200);
}

/// A service that is not ready at first, and then fails.
#[derive(Clone, Default)]
struct Busy(Arc<AtomicUsize>);

impl Service<Request<String>> for Busy {
    type Response = Response<String>;
    type Error = Failed;
    type Future = Ready<Result<Response<String>, Failed>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Failed>> {
        match self.0.fetch_add(1, Ordering::Relaxed) {
            0 => Poll::Pending,
            _ => Poll::Ready(Err(Failed)),
        }
    }

    fn call(&mut self, _: Request<String>) -> Self::Future {
        panic!("called, and never ready")
    }
}

#[test]
fn readiness_is_that_of_the_service() {
    let (limiter, _) = limiter(&["all: fixed-window 9/1m"]);
    let layer = RateLimitLayer::new(limiter, [Limit::by("all", Everybody)]).unwrap();
    let mut service = layer.layer(Busy::default());
    let mut context = Context::from_waker(Waker::noop());
    assert_eq!(service.poll_ready(&mut context), Poll::Pending);
    assert_eq!(service.poll_ready(&mut context), Poll::Ready(Err(Failed)));
}
