//! Tests limits from a management server in the process of the tests, which controls the server
//! step by step.

mod connections;
mod load;
mod program;
mod properties;
mod protocol;
mod snapshots;
#[cfg(unix)]
mod tls;
mod tree;

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use envoy_types::pb::envoy::service::discovery::v3::aggregated_discovery_service_server::{
    AggregatedDiscoveryService, AggregatedDiscoveryServiceServer,
};
use envoy_types::pb::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
};
use envoy_types::pb::google::protobuf::Any;
use futures_util::stream;
use prost::Message;
use tidegate_core::{ManualClock, Timestamp};
use tidegate_memory::MemoryStore;
use tidegate_server::envoy::decide::{Behaviour, Decider};
use tidegate_server::envoy::service::Service;
use tidegate_server::limits::xds::messages::{
    RateLimitConfig, RateLimitDescriptor, RateLimitPolicy, TYPE_URL,
};
use tidegate_server::limits::xds::{Event, XdsSettings, follow};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tonic::metadata::MetadataMap;
use tonic::transport::Server;
use tonic::{Request, Response, Status, Streaming};

use crate::scene::{START, descriptor, limit, request};

const PATIENCE: Duration = Duration::from_secs(60);

async fn within<T>(future: impl Future<Output = T>) -> T {
    timeout(PATIENCE, future).await.unwrap()
}

type Sent = Result<DiscoveryResponse, Status>;
type Responses = Pin<Box<dyn futures_util::Stream<Item = Sent> + Send>>;

struct Management {
    address: SocketAddr,
    streams: mpsc::UnboundedReceiver<Peer>,
    task: JoinHandle<()>,
}

/// The management server's end of a stream from a client.
struct Peer {
    requests: Streaming<DiscoveryRequest>,
    responses: mpsc::UnboundedSender<Sent>,
    metadata: MetadataMap,
}

struct Streams(mpsc::UnboundedSender<Peer>);

#[tonic::async_trait]
impl AggregatedDiscoveryService for Streams {
    type StreamAggregatedResourcesStream = Responses;
    type DeltaAggregatedResourcesStream =
        Pin<Box<dyn futures_util::Stream<Item = Result<DeltaDiscoveryResponse, Status>> + Send>>;

    async fn stream_aggregated_resources(
        &self,
        request: Request<Streaming<DiscoveryRequest>>,
    ) -> Result<Response<Responses>, Status> {
        let metadata = request.metadata().clone();
        let (responses, receiver) = mpsc::unbounded_channel();
        let _ = self.0.send(Peer { requests: request.into_inner(), responses, metadata });
        let next = |mut receiver: mpsc::UnboundedReceiver<Sent>| async {
            receiver.recv().await.map(|response| (response, receiver))
        };
        Ok(Response::new(Box::pin(stream::unfold(receiver, next))))
    }

    async fn delta_aggregated_resources(
        &self,
        _: Request<Streaming<DeltaDiscoveryRequest>>,
    ) -> Result<Response<Self::DeltaAggregatedResourcesStream>, Status> {
        Err(Status::unimplemented("the state of the world only"))
    }
}

fn service() -> (AggregatedDiscoveryServiceServer<Streams>, mpsc::UnboundedReceiver<Peer>) {
    let (sender, streams) = mpsc::unbounded_channel();
    (AggregatedDiscoveryServiceServer::new(Streams(sender)), streams)
}

impl Management {
    async fn start() -> Self {
        Self::on(TcpListener::bind("127.0.0.1:0").await.unwrap())
    }

    fn on(listener: TcpListener) -> Self {
        let address = listener.local_addr().unwrap();
        let (service, streams) = service();
        let incoming = stream::unfold(listener, |listener| async {
            let accepted = listener.accept().await.map(|(stream, _)| stream);
            Some((accepted, listener))
        });
        let task = tokio::spawn(async move {
            let _ = Server::builder().add_service(service).serve_with_incoming(incoming).await;
        });
        Self { address, streams, task }
    }

    fn settings(&self) -> XdsSettings {
        settings(self.address)
    }

    /// Waits for the next stream of a client. Returns the stream and its first request, which is a
    /// subscription.
    async fn stream(&mut self) -> (Peer, DiscoveryRequest) {
        let mut peer = within(self.streams.recv()).await.unwrap();
        let request = peer.request().await;
        assert_eq!(request.error_detail, None, "a subscription");
        (peer, request)
    }
}

impl Drop for Management {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Peer {
    async fn request(&mut self) -> DiscoveryRequest {
        within(self.requests.message()).await.unwrap().unwrap()
    }

    fn send(&self, version: &str, nonce: &str, resources: &[RateLimitConfig]) {
        self.send_response(response(version, nonce, resources.iter().map(packed).collect()));
    }

    fn send_response(&self, response: DiscoveryResponse) {
        self.responses.send(Ok(response)).unwrap();
    }

    /// Returns the client's answer to a response: the version in force, the nonce, and the error if
    /// the client refused the response.
    async fn answer(&mut self) -> (String, String, Option<String>) {
        let request = self.request().await;
        assert_eq!(request.type_url, TYPE_URL);
        let error = request.error_detail.map(|error| error.message);
        (request.version_info, request.response_nonce, error)
    }

    async fn accepted(&mut self, version: &str, nonce: &str) {
        assert_eq!(self.answer().await, (version.to_owned(), nonce.to_owned(), None));
    }

    async fn refused(&mut self, version: &str, nonce: &str) -> String {
        let (in_force, answered, error) = self.answer().await;
        assert_eq!((&*in_force, &*answered), (version, nonce));
        error.unwrap()
    }
}

/// A rate-limit service that receives its limits from a management server.
struct Client {
    service: Arc<Service>,
    clock: ManualClock,
    events: mpsc::UnboundedReceiver<Event>,
    task: JoinHandle<()>,
}

impl Client {
    fn start(settings: XdsSettings) -> Self {
        let (decider, clock) = decider(Behaviour::default());
        Self::with(settings, Service::new(decider), clock)
    }

    fn with(settings: XdsSettings, service: Service, clock: ManualClock) -> Self {
        let service = Arc::new(service);
        let (sender, events) = mpsc::unbounded_channel();
        let report = move |event| {
            let _ = sender.send(event);
        };
        let loaded = Arc::clone(&service);
        let load = move |resources: Result<&[_], &_>| loaded.load_resources(resources);
        let task = tokio::spawn(follow(settings, load, report));
        Self { service, clock, events, task }
    }

    async fn event(&mut self) -> Event {
        within(self.events.recv()).await.unwrap()
    }

    /// Waits until the client is disconnected. Returns the reason, and the wait before the next
    /// connection.
    async fn disconnected(&mut self) -> (String, Duration) {
        loop {
            if let Event::Disconnected { reason, retry_in } = self.event().await {
                return (reason, retry_in);
            }
        }
    }

    /// Returns the limit of an entry `a` in the domain `d`, or an empty text if there is no limit.
    async fn limit(&self) -> String {
        let request = request("d", vec![descriptor(&[("a", "")])]);
        limit(&self.service.should_rate_limit(&request).await.unwrap().statuses[0])
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn decider(behaviour: Behaviour) -> (Decider, ManualClock) {
    let clock = ManualClock::new(Timestamp::from_micros(START * 1_000_000));
    let store = MemoryStore::builder().clock(clock.clone()).build();
    (Decider::new(Arc::new(store), behaviour), clock)
}

/// Returns settings with a wait of 100 ms after a failed connection.
fn settings(address: SocketAddr) -> XdsSettings {
    let mut settings = XdsSettings::new(address.to_string());
    settings.backoff.initial = Duration::from_millis(100);
    settings.backoff.has_jitter = false;
    settings
}

fn response(version: &str, nonce: &str, resources: Vec<Any>) -> DiscoveryResponse {
    DiscoveryResponse {
        version_info: version.into(),
        nonce: nonce.into(),
        type_url: TYPE_URL.into(),
        resources,
        ..DiscoveryResponse::default()
    }
}

fn packed(resource: &RateLimitConfig) -> Any {
    Any { type_url: TYPE_URL.into(), value: resource.encode_to_vec() }
}

fn config(domain: &str, descriptors: Vec<RateLimitDescriptor>) -> RateLimitConfig {
    RateLimitConfig { name: format!("{domain}-limits"), domain: domain.into(), descriptors }
}

const SECOND: i32 = 1;
const MINUTE: i32 = 2;
const HOUR: i32 = 3;
const DAY: i32 = 4;

fn limited(key: &str, requests_per_unit: u32, unit: i32) -> RateLimitDescriptor {
    let policy = RateLimitPolicy { requests_per_unit, unit, ..RateLimitPolicy::default() };
    RateLimitDescriptor {
        key: key.into(),
        rate_limit: Some(policy),
        ..RateLimitDescriptor::default()
    }
}

/// Returns the domain `d` with a limit of `n` per day on entries `a`, which [`Client::limit`] shows
/// as `n/DAY`.
fn per_day(n: u32) -> RateLimitConfig {
    config("d", vec![limited("a", n, DAY)])
}

/// Returns an invalid resource: the key of its descriptor is empty.
fn bad() -> RateLimitConfig {
    config("d", vec![limited("", 1, DAY)])
}

/// The version that a client sends on a new stream if it received limits on an earlier stream.
const EARLIER: &str = "of-an-earlier-stream";

const BAD: &str = "d-limits: descriptor has empty key";
