//! The protocol of Envoy: `envoy.service.ratelimit.v3.RateLimitService` over gRPC, the health of the service, and
//! reflection.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_service_server::{
    RateLimitService, RateLimitServiceServer,
};
use envoy_types::pb::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use futures_util::stream;
use metrics::counter;
use tokio::sync::Semaphore;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

use crate::health::{self, HealthSettings};
use crate::listener::{Listener, Stream};
use crate::reflection;
use crate::service::Service;

/// The maximum size of a request in bytes.
pub const MAX_MESSAGE_BYTES: usize = 4 << 20;

/// The maximum number of requests in flight on one connection. Envoy waits with others.
pub const MAX_STREAMS: u32 = 1_000;

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
    /// When the health is `NOT_SERVING`.
    pub health: HealthSettings,
}

impl Default for GrpcSettings {
    fn default() -> Self {
        Self {
            age: ConnectionAge::default(),
            max_connections: 10_000,
            health: HealthSettings::default(),
        }
    }
}

/// Serves the limits, health and reflection until `shutdown` is ready; then the health is `NOT_SERVING`, and after
/// [`HealthSettings::drain`] connections end once their requests are answered.
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
    let drained =
        health::report(reporter, Arc::clone(&service), settings.health, is_ready, shutdown);
    let limits = RateLimitServiceServer::new(RateLimits { service })
        .max_decoding_message_size(MAX_MESSAGE_BYTES);
    Server::builder()
        .max_concurrent_streams(MAX_STREAMS)
        .max_connection_age(settings.age.max)
        .max_connection_age_grace(settings.age.grace)
        // A connection whose peer is gone without a word ends.
        .http2_keepalive_interval(Some(Duration::from_secs(60)))
        .add_service(health)
        .add_service(limits)
        .add_optional_service(reflection::service())
        .add_optional_service(reflection::old_service())
        .serve_with_incoming_shutdown(accepted(listener.into(), settings.max_connections), drained)
        .await
}

/// The connections, as long as there are places for them.
fn accepted(
    listener: Listener,
    max_connections: usize,
) -> impl futures_util::Stream<Item = io::Result<Stream>> {
    let places = Arc::new(Semaphore::new(max_connections.min(Semaphore::MAX_PERMITS)));
    let refused = counter!("tidegate_server_grpc_refused_connections_total");
    stream::unfold((listener, places, refused), async |(listener, places, refused)| {
        loop {
            let (stream, _) = listener.next().await;
            match Arc::clone(&places).try_acquire_owned() {
                Ok(place) => {
                    return Some((Ok(stream.with_place(place)), (listener, places, refused)));
                }
                Err(_) => refused.increment(1),
            }
        }
    })
}

struct RateLimits {
    service: Arc<Service>,
}

#[tonic::async_trait]
impl RateLimitService for RateLimits {
    async fn should_rate_limit(
        &self,
        request: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        let response = self.service.should_rate_limit(request.get_ref()).await;
        // The code of all errors of envoyproxy/ratelimit.
        response.map(Response::new).map_err(|error| Status::unknown(error.to_string()))
    }
}
