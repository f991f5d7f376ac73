//! The gRPC services of Envoy's rate-limit protocol: `envoy.service.ratelimit.v3.RateLimitService`,
//! health checks and reflection.

mod connection;
mod memory;
mod message;
mod reflection;

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::http;
use bytes::Bytes;
use envoy_types::pb::envoy::service::ratelimit::v3::RateLimitResponse;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use metrics::{counter, gauge};
use tonic::body::Body;
use tonic::server::{Grpc, UnaryService};
use tonic::service::Routes;
use tonic::{Request, Response, Status};
use tower_service::Service as _;

use crate::envoy::health::{self, HealthSettings};
use crate::envoy::request::RateLimitRequest;
use crate::envoy::service::Service;
use crate::net::listener::{Connections, Listener, Stream};
use memory::{Client, Memory, Received, Usage};
pub use message::MAX_ENTRIES;
use message::RequestCodec;

/// The maximum size of a request in bytes.
pub const MAX_MESSAGE_BYTES: usize = 4 << 20;

/// The maximum size in bytes of a message to the health and reflection services. Such a message
/// contains the name of a service or of a message.
const MAX_OTHER_MESSAGE_BYTES: usize = 64 << 10;

/// The path of the method that decides requests.
const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// The maximum age of a connection. At this age, the client opens another connection, and can reach
/// a server that was added later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConnectionAge {
    /// The time after which the server asks the client to open another connection.
    pub max: Duration,
    /// The additional time for which the server answers requests on the old connection.
    pub grace: Duration,
}

impl Default for ConnectionAge {
    fn default() -> Self {
        Self { max: Duration::from_secs(24 * 3_600), grace: Duration::from_secs(3_600) }
    }
}

impl ConnectionAge {
    /// Creates the maximum age `max` with the additional time `grace`.
    #[must_use]
    pub fn new(max: Duration, grace: Duration) -> Self {
        Self { max, grace }
    }
}

/// The bounds of connections and requests, and the conditions for health.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct GrpcSettings {
    /// The maximum age of a connection.
    pub age: ConnectionAge,
    /// The maximum number of concurrent connections, including connections in a handshake. Further
    /// connections are closed.
    pub max_connections: usize,
    /// The maximum number of requests in flight on one connection. Envoy opens another connection
    /// for further requests.
    pub max_streams: u32,
    /// The maximum memory in bytes of the requests in flight on all connections. It includes header
    /// fields, messages, decisions and unsent responses. One connection can use at most a sixth of
    /// the maximum. One half is reserved for connections that use at most 64 KiB each. A request
    /// that would exceed these bounds fails with the status `RESOURCE_EXHAUSTED`.
    ///
    /// The largest message has 4 MiB, and takes 8 MiB until it is answered. To accept such
    /// messages, the maximum must be at least 49 MiB.
    pub max_bytes: usize,
    /// The time within which a client must send the first bytes of HTTP/2.
    pub begin_timeout: Duration,
    /// The time within which a request must be received and answered. After this time, it fails
    /// with the status `CANCELLED`. A client that reads nothing for this time is disconnected.
    pub request_timeout: Duration,
    /// The conditions under which the health is `NOT_SERVING`.
    pub health: HealthSettings,
    /// The maximum time for which requests in flight are served at shutdown, counted from the end
    /// of [`HealthSettings::drain`]. The bound is needed because a client can keep a stream, such
    /// as a reflection stream, open forever.
    pub end_timeout: Duration,
}

impl Default for GrpcSettings {
    fn default() -> Self {
        Self {
            age: ConnectionAge::default(),
            max_connections: 10_000,
            max_streams: 100,
            max_bytes: 64 << 20,
            begin_timeout: Duration::from_secs(30),
            request_timeout: Duration::from_secs(30),
            health: HealthSettings::default(),
            end_timeout: Duration::from_secs(10),
        }
    }
}

/// Serves rate limits, health checks and reflection until `shutdown` completes. Then the health
/// becomes `NOT_SERVING`. After [`HealthSettings::drain`], each connection ends when its requests
/// are answered, and at the latest after [`GrpcSettings::end_timeout`].
pub async fn serve(
    listener: impl Into<Listener>,
    service: Arc<Service>,
    settings: GrpcSettings,
    shutdown: impl Future<Output = ()>,
) {
    let (reporter, health) = tonic_health::server::health_reporter();
    let is_ready = health::is_ready_at_start(&service, settings.health);
    health::set(&reporter, is_ready).await;
    let until_drained =
        health::report(reporter, Arc::clone(&service), settings.health, is_ready, shutdown);
    let health = health.max_decoding_message_size(MAX_OTHER_MESSAGE_BYTES);
    let mut others = Routes::new(health);
    if let Some(reflection) = reflection::service() {
        others = others.add_service(reflection.max_decoding_message_size(MAX_OTHER_MESSAGE_BYTES));
    }
    if let Some(reflection) = reflection::old_service() {
        others = others.add_service(reflection.max_decoding_message_size(MAX_OTHER_MESSAGE_BYTES));
    }
    let services = Arc::new(Services { rate_limits: service, others: others.prepare() });
    let connections = Connections {
        max: settings.max_connections,
        open: gauge!("tidegate_server_grpc_connections"),
        refused: counter!("tidegate_server_grpc_refused_connections_total"),
        refusal: Bytes::new(),
    };
    let memory = Arc::new(Memory::new(settings.max_bytes));
    let serve = |stream: Stream, stopped| {
        let client = Client::new(stream.peer_addr(), &memory);
        connection::serve(stream, Arc::clone(&services), settings, client, stopped)
    };
    connections.serve(listener.into(), serve, until_drained).await;
}

/// The services of a port.
struct Services {
    rate_limits: Arc<Service>,
    /// Health checks and reflection.
    others: Routes,
}

impl Services {
    async fn answer(
        &self,
        request: http::Request<Incoming>,
        client: Client,
    ) -> http::Response<Body> {
        // Most requests are for this method. The router of the other services would take a tenth of
        // their time.
        if request.uri().path() == SHOULD_RATE_LIMIT {
            return self.should_rate_limit(request, client).await;
        }
        match self.others.clone().call(request).await {
            Ok(response) => response,
        }
    }

    async fn should_rate_limit(
        &self,
        request: http::Request<Incoming>,
        client: Client,
    ) -> http::Response<Body> {
        let (service, peer) = (&*self.rate_limits, client.peer());
        let usage = match Usage::new(client, request.headers()) {
            Ok(usage) => usage,
            Err(status) => {
                service.unreadable(peer, status.message());
                return status.into_http();
            }
        };
        let request = request.map(|body| Received::new(body, Arc::clone(&usage)));
        let is_read = AtomicBool::new(false);
        let decide = Decide { service, is_read: &is_read };
        let grpc = Grpc::new(RequestCodec(Arc::clone(&usage)));
        let mut grpc = grpc.max_decoding_message_size(MAX_MESSAGE_BYTES);
        let response = grpc.unary(decide, request).await;
        if !is_read.into_inner() {
            let status = Status::from_header_map(response.headers());
            service.unreadable(peer, status.as_ref().map_or("no reason", Status::message));
        }
        response.map(|body| {
            Body::new(body.map_frame(move |frame| {
                // The request is in flight until HTTP/2 has taken all of the response.
                let _in_flight = &usage;
                frame
            }))
        })
    }
}

/// The handler of the method `ShouldRateLimit`. tonic calls it only if the message of the request
/// can be decoded.
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
            // envoyproxy/ratelimit uses the status code `UNKNOWN` for all errors.
            response.map(Response::new).map_err(|error| Status::unknown(error.to_string()))
        })
    }
}
