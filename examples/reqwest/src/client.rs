//! The client of an application, built on reqwest or hyper-util.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::client::legacy::{Client, Error as HyperError};
use hyper_util::rt::TokioExecutor;
use reqwest::Body;
use tidegate_http::client::{ClientError, ThrottleLayer, copy_if_safe};
use tidegate_redis::{Limiter, Store};
use tower::{Layer, Service, service_fn};

/// Returns a client of reqwest as a [`Service`].
pub fn reqwest_service()
-> impl Service<Request<Body>, Response = Response<Body>, Error = reqwest::Error, Future: Send>
+ Clone
+ Send {
    let client = reqwest::Client::new();
    service_fn(move |request: Request<Body>| {
        let client = client.clone();
        async move { Ok(client.execute(request.try_into()?).await?.into()) }
    })
}

/// Creates a client of reqwest. Each request waits until `limiter` admits it, and until the end of
/// each pause that the service announced.
pub fn client<S: Store + 'static>(
    limiter: Limiter<S>,
) -> impl Service<
    Request<Body>,
    Response = Response<Body>,
    Error = ClientError<reqwest::Error>,
    Future: Send,
> + Clone
+ Send {
    let layer =
        ThrottleLayer::new(limiter).max_wait(Duration::from_secs(10)).retry(3, copy_if_safe);
    layer.layer(reqwest_service())
}

/// Creates a client of hyper-util, which already implements [`Service`].
pub fn hyper_client<S: Store + 'static>(
    limiter: Limiter<S>,
) -> impl Service<
    Request<Full<Bytes>>,
    Response = Response<Incoming>,
    Error = ClientError<HyperError>,
    Future: Send,
> + Clone
+ Send {
    let client = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
    ThrottleLayer::new(limiter).retry(3, copy_if_safe).layer(client)
}
