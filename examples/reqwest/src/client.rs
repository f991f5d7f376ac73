//! The client of an application.

use std::time::Duration;

use http::{Method, Request, Response};
use reqwest::Body;
use tidegate_http::client::{ClientError, ThrottleLayer};
use tidegate_redis::{Limiter, Store};
use tower::{Layer, Service, service_fn};

/// A client that waits for its turn in `limiter`, and for the service when that asks for quiet.
pub fn client<S: Store + 'static>(
    limiter: Limiter<S>,
) -> impl Service<
    Request<Body>,
    Response = Response<Body>,
    Error = ClientError<reqwest::Error>,
    Future: Send,
> + Clone
+ Send {
    let client = reqwest::Client::new();
    let send = service_fn(move |request: Request<Body>| {
        let client = client.clone();
        async move {
            let response = client.execute(request.try_into()?).await?;
            Ok::<Response<Body>, reqwest::Error>(response.into())
        }
    });
    let layer = ThrottleLayer::new(limiter).max_wait(Duration::from_secs(10)).retry(3, copy);
    layer.layer(send)
}

/// A copy of a request that may be sent again: one that only reads.
fn copy(request: &Request<Body>) -> Option<Request<Body>> {
    if request.method() != Method::GET {
        return None;
    }
    // A body that is a stream has no bytes yet, and cannot be sent twice.
    let body = request.body().as_bytes()?.to_vec();
    let (parts, ()) =
        Request::builder().method(request.method()).uri(request.uri()).body(()).ok()?.into_parts();
    let mut copy = Request::from_parts(parts, Body::from(body));
    copy.headers_mut().clone_from(request.headers());
    Some(copy)
}
