//! The protocol of Envoy: `envoy.service.ratelimit.v3.RateLimitService` over gRPC, the health of the service, and
//! reflection.

mod message;
mod receiving;

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::http;
use envoy_types::pb::envoy::service::ratelimit::v3::RateLimitResponse;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_service_server::SERVICE_NAME;
use futures_util::stream;
use metrics::counter;
use tokio::sync::{Semaphore, watch};
use tokio::time::sleep;
use tonic::body::Body;
use tonic::server::{Grpc, NamedService, UnaryService};
use tonic::transport::Server;
use tonic::{Request, Response, Status};

use crate::health::{self, HealthSettings};
use crate::listener::{Beginning, Bounded, Buffered, Listener};
use crate::reflection;
use crate::request::RateLimitRequest;
use crate::service::Service;
pub use message::MAX_ENTRIES;
use message::RequestCodec;
pub use receiving::MAX_RECEIVED_BYTES;
use receiving::Received;
pub(crate) use receiving::Receiving;

/// The maximum size of a request in bytes.
pub const MAX_MESSAGE_BYTES: usize = 4 << 20;

/// The maximum size of a message of the other services in bytes: the name of a service, or of a message.
const MAX_OTHER_MESSAGE_BYTES: usize = 64 << 10;

/// The maximum number of requests in flight on one connection. Envoy waits with others.
pub const MAX_STREAMS: u32 = 1_000;

/// The method of the service.
const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// The preface of HTTP/2, and the head of the frame that follows it.
const BEGINNING_BYTES: usize = 24 + 9;

/// How a connection ends that lasts for long, so that clients find servers that are new.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConnectionAge {
    /// After this time, a client is told to open another one (`GRPC_MAX_CONNECTION_AGE`).
    pub max: Duration,
    /// For this time after that, its requests are still served (`GRPC_MAX_CONNECTION_AGE_GRACE`).
    pub grace: Duration,
}

impl Default for ConnectionAge {
    fn default() -> Self {
        Self { max: Duration::from_secs(24 * 3_600), grace: Duration::from_secs(3_600) }
    }
}

impl ConnectionAge {
    /// An age, and the time after it.
    #[must_use]
    pub fn new(max: Duration, grace: Duration) -> Self {
        Self { max, grace }
    }
}

/// The bounds of connections, and when the service is healthy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct GrpcSettings {
    /// How a connection ends that lasts for long.
    pub age: ConnectionAge,
    /// The maximum number of connections at the same time, those in a handshake included. Others are closed.
    pub max_connections: usize,
    /// How long a client may take to begin with HTTP/2.
    pub begin_timeout: Duration,
    /// How long a request may take, its message included. Others get the status `CANCELLED`.
    pub request_timeout: Duration,
    /// When the health is `NOT_SERVING`.
    pub health: HealthSettings,
    /// For how long requests are still served that are under way when the server ends, after
    /// [`HealthSettings::drain`]. A client can keep a stream open for ever, such as one of reflection.
    pub end_timeout: Duration,
}

impl Default for GrpcSettings {
    fn default() -> Self {
        Self {
            age: ConnectionAge::default(),
            max_connections: 10_000,
            begin_timeout: Duration::from_secs(30),
            request_timeout: Duration::from_secs(30),
            health: HealthSettings::default(),
            end_timeout: Duration::from_secs(10),
        }
    }
}

/// Serves the limits, health and reflection until `shutdown` is ready; then the health is `NOT_SERVING`, and after
/// [`HealthSettings::drain`] connections end once their requests are answered, at the latest after
/// [`GrpcSettings::end_timeout`].
///
/// # Errors
///
/// If the listener fails.
pub async fn serve(
    listener: impl Into<Listener>,
    service: Arc<Service>,
    settings: GrpcSettings,
    shutdown: impl Future<Output = ()>,
) -> Result<(), tonic::transport::Error> {
    let (reporter, health) = tonic_health::server::health_reporter();
    let is_ready = health::is_ready_at_start(&service, settings.health);
    health::set(&reporter, is_ready).await;
    let report =
        health::report(reporter, Arc::clone(&service), settings.health, is_ready, shutdown);
    let (drain, drained) = watch::channel(false);
    let until_drained = async move {
        report.await;
        drain.send_replace(true);
    };
    let health = health.max_decoding_message_size(MAX_OTHER_MESSAGE_BYTES);
    Server::builder()
        .max_concurrent_streams(MAX_STREAMS)
        // With a grace of its own, tonic would not tell the client, and cut its requests off when that is over.
        .max_connection_age(settings.age.max)
        .timeout(settings.request_timeout)
        // A connection whose peer is gone without a word ends.
        .http2_keepalive_interval(Some(Duration::from_secs(60)))
        .add_service(health)
        .add_service(RateLimits { service })
        .add_optional_service(
            reflection::service().map(|it| it.max_decoding_message_size(MAX_OTHER_MESSAGE_BYTES)),
        )
        .add_optional_service(
            reflection::old_service()
                .map(|it| it.max_decoding_message_size(MAX_OTHER_MESSAGE_BYTES)),
        )
        .serve_with_incoming_shutdown(accepted(listener.into(), settings, drained), until_drained)
        .await
}

type GrpcStream<F> = Buffered<Beginning<Bounded<F>>>;

/// The connections, as long as there are places for them.
fn accepted(
    listener: Listener,
    settings: GrpcSettings,
    drained: watch::Receiver<bool>,
) -> impl futures_util::Stream<Item = io::Result<GrpcStream<impl Future<Output = ()>>>> {
    let places = Arc::new(Semaphore::new(settings.max_connections.min(Semaphore::MAX_PERMITS)));
    let refused = counter!("tidegate_server_grpc_refused_connections_total");
    stream::unfold((listener, places, refused), move |(listener, places, refused)| {
        let end = end(settings, drained.clone());
        async move {
            let (stream, place) = loop {
                let (stream, _) = listener.next().await;
                match Arc::clone(&places).try_acquire_owned() {
                    Ok(place) => break (stream, place),
                    Err(_) => refused.increment(1),
                }
            };
            let stream = Bounded::new(stream.with_place(place), end);
            let stream = Beginning::new(stream, BEGINNING_BYTES, settings.begin_timeout);
            Some((Ok(Buffered::new(stream)), (listener, places, refused)))
        }
    })
}

/// Waits until a connection must have ended. Its time begins when this is first polled.
async fn end(settings: GrpcSettings, mut drained: watch::Receiver<bool>) {
    let at_end = async {
        // If there is no sender, nothing is served any more.
        let _ = drained.wait_for(|drained| *drained).await;
        sleep(settings.end_timeout).await;
    };
    tokio::select! {
        () = sleep(settings.age.max.saturating_add(settings.age.grace)) => {}
        () = at_end => {}
    }
}

type BoxFuture<T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send>>;

/// The service as it is generated from the protocol, but for its codec and the bound of what is being received.
#[derive(Clone)]
struct RateLimits {
    service: Arc<Service>,
}

impl NamedService for RateLimits {
    const NAME: &'static str = SERVICE_NAME;
}

impl tower_service::Service<http::Request<Body>> for RateLimits {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<http::Response<Body>, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let service = Arc::clone(&self.service);
        Box::pin(async move {
            if request.uri().path() != SHOULD_RATE_LIMIT {
                return Ok(Status::unimplemented("").into_http());
            }
            let receiving = request.extensions().get::<Receiving>().cloned().unwrap_or_default();
            let peer = receiving.peer();
            let request = request.map(|body| Received::new(body, receiving));
            let is_read = AtomicBool::new(false);
            let decide = Decide { service: &service, is_read: &is_read };
            let grpc = Grpc::new(RequestCodec);
            let mut grpc = grpc.max_decoding_message_size(MAX_MESSAGE_BYTES);
            let response = grpc.unary(decide, request).await;
            if !is_read.into_inner() {
                let status = Status::from_header_map(response.headers());
                service.unreadable(peer, status.as_ref().map_or("no reason", Status::message));
            }
            Ok(response)
        })
    }
}

/// The method, which is called if the message of a request can be read.
struct Decide<'s> {
    service: &'s Service,
    is_read: &'s AtomicBool,
}

impl<'s> UnaryService<RateLimitRequest> for Decide<'s> {
    type Response = RateLimitResponse;
    type Future =
        Pin<Box<dyn Future<Output = Result<Response<RateLimitResponse>, Status>> + Send + 's>>;

    fn call(&mut self, request: Request<RateLimitRequest>) -> Self::Future {
        self.is_read.store(true, Ordering::Relaxed);
        let service = self.service;
        Box::pin(async move {
            let response = service.should_rate_limit(request.get_ref()).await;
            // The code of all errors of envoyproxy/ratelimit.
            response.map(Response::new).map_err(|error| Status::unknown(error.to_string()))
        })
    }
}
