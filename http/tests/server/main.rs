//! Tests of the layer for servers, in virtual time. The inner service keeps a ledger of its
//! requests.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod alternatives;
mod cancelled;
mod decided;
mod degraded;
mod ready;
mod refunds;
mod responses;
mod routes;
mod settings;
mod subjects;

use std::collections::HashMap;
use std::convert::Infallible;
use std::future::{Future, Ready, ready};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use http::{HeaderValue, Request, Response, StatusCode};
use tidegate_http::server::{Limit, RateLimitLayer};
use tidegate_http::subject::from_fn;
use tidegate_memory::{Limiter, ManualClock, MemoryStore, Policy, Store, Subject};
use tower::{Layer, Service};

type Requests = Arc<Mutex<Vec<String>>>;

/// A service that panics if it is called without having been made ready. Otherwise it answers with
/// the body of the request, and with the status in the request's field `status`. For the status
/// `fail` it returns an error.
#[derive(Debug, Default)]
struct Inner {
    /// The paths of the requests that reached the service.
    ledger: Requests,
    is_ready: bool,
}

#[derive(Debug, PartialEq)]
struct Failed;

impl Clone for Inner {
    /// Returns a clone, which is not ready.
    fn clone(&self) -> Self {
        Self { ledger: Arc::clone(&self.ledger), is_ready: false }
    }
}

impl Service<Request<String>> for Inner {
    type Response = Response<String>;
    type Error = Failed;
    type Future = Ready<Result<Response<String>, Failed>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Failed>> {
        self.is_ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<String>) -> Self::Future {
        assert!(std::mem::take(&mut self.is_ready), "called without having been made ready");
        self.ledger.lock().unwrap().push(request.uri().path().to_string());
        let status = request.headers().get("status").map(HeaderValue::as_bytes);
        if status == Some(b"fail") {
            return ready(Err(Failed));
        }
        let status =
            status.map_or(StatusCode::OK, |status| StatusCode::from_bytes(status).unwrap());
        ready(Ok(Response::builder().status(status).body(request.into_body()).unwrap()))
    }
}

/// Returns a limiter on a memory store, and the clock of the store.
fn limiter(policies: &[&str]) -> (Limiter<MemoryStore<ManualClock>>, ManualClock) {
    let clock = ManualClock::default();
    let store = MemoryStore::builder().clock(clock.clone()).build();
    (Limiter::new(store, parse(policies)).unwrap(), clock)
}

fn parse(policies: &[&str]) -> Vec<Policy> {
    policies.iter().map(|text| text.parse().unwrap()).collect()
}

/// Returns a limit whose subject is the field `user` of a request.
fn user(policy: &str) -> Limit {
    Limit::by(policy, from_fn(|request| request.headers.get("user").map(Subject::from)))
}

fn request(path: &str, fields: &[(&'static str, &str)]) -> Request<String> {
    let mut request = Request::builder().uri(path);
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    request.body(path.to_uppercase()).unwrap()
}

/// Makes the service ready, and returns its response to the request.
async fn send<S, B>(service: &mut S, request: Request<B>) -> Result<S::Response, S::Error>
where
    S: Service<Request<B>>,
{
    std::future::poll_fn(|context| service.poll_ready(context)).await?;
    service.call(request).await
}

/// Returns the status of the response to a request of a user to `path`.
async fn status<S>(service: &mut S, path: &str, user: &str) -> u16
where
    S: Service<Request<String>, Response = Response<String>, Error = Failed>,
{
    send(service, request(path, &[("user", user)])).await.unwrap().status().as_u16()
}

/// Returns the status and the fields of a response.
fn head<B>(response: &Response<B>) -> (u16, HashMap<&str, &str>) {
    let fields =
        response.headers().iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap()));
    (response.status().as_u16(), fields.collect())
}

fn paths(ledger: &Requests) -> Vec<String> {
    ledger.lock().unwrap().clone()
}

/// Returns the output of a future, if the future is ready.
fn poll_once<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

/// Returns a service with these limits, and its ledger.
fn limited<S: Store>(
    limiter: &Limiter<S>,
    limits: impl IntoIterator<Item = Limit>,
) -> (tidegate_http::server::RateLimit<Inner, S>, Requests) {
    let inner = Inner::default();
    let ledger = Arc::clone(&inner.ledger);
    (RateLimitLayer::new(limiter.clone(), limits).unwrap().layer(inner), ledger)
}

/// Checks that the body of a request can have any type, even a type that is not `Send`.
#[tokio::test]
async fn any_body_reaches_the_service() {
    let (limiter, _) = limiter(&["all: fixed-window 2/1s"]);
    let layer = RateLimitLayer::new(limiter, [Limit::by("all", tidegate_http::subject::Everybody)])
        .unwrap();
    let mut service =
        layer.layer(tower::service_fn(|request: Request<std::rc::Rc<str>>| async move {
            Ok::<_, Infallible>(Response::new(request.into_body().to_string()))
        }));
    let response = send(&mut service, Request::new("as it is".into())).await.unwrap();
    assert_eq!(response.into_body(), "as it is");
}
