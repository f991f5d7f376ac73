//! Tests the health of the service, by which clients select servers.

use std::sync::Arc;
use std::time::Duration;

use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
use tidegate_core::{Answer, Call, Decision, Error, ErrorKind, Store, Timestamp};
use tidegate_memory::MemoryStore;
use tidegate_server::envoy::decide::{Behaviour, Decider};
use tidegate_server::envoy::grpc::{GrpcSettings, serve};
use tidegate_server::envoy::health::{HealthSettings, NAME};
use tidegate_server::envoy::service::{NotReady, Service};
use tidegate_server::store::{StoreSettings, open};
use tidegate_test_servers::Redis;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tonic::Streaming;
use tonic::transport::Channel;
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

use crate::json::call;
use crate::scene::{Scene, decider, descriptor, is_ok, message, request};

const CONFIG: &str = "domain: d\ndescriptors: [{key: a, policy: fixed-window 9/365d}]";
const SERVING: i32 = 1;
const NOT_SERVING: i32 = 2;

struct Server {
    url: String,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Server {
    async fn start(service: impl Into<Arc<Service>>, settings: HealthSettings) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (stop, stopped) = oneshot::channel();
        let stopped = async {
            let _ = stopped.await;
        };
        let mut grpc = GrpcSettings::default();
        grpc.health = settings;
        let task = tokio::spawn(serve(listener, service.into(), grpc, stopped));
        Self { url, stop, task }
    }

    async fn channel(&self) -> Channel {
        Channel::from_shared(self.url.clone()).unwrap().connect().await.unwrap()
    }

    async fn watch(&self) -> Streaming<HealthCheckResponse> {
        let request = HealthCheckRequest { service: NAME.to_owned() };
        HealthClient::new(self.channel().await).watch(request).await.unwrap().into_inner()
    }
}

/// A store that fails immediately.
#[derive(Debug)]
struct Down;

impl Down {
    fn error() -> Error {
        Error::new(ErrorKind::Unavailable, "gone")
    }
}

impl Store for Down {
    fn decide<'a>(&'a self, _: Call<'a>) -> Answer<'a, Result<Decision, Error>> {
        Answer::ready(Err(Self::error()))
    }

    fn now(&self) -> Answer<'_, Result<Timestamp, Error>> {
        Answer::ready(Err(Self::error()))
    }
}

async fn next(watch: &mut Streaming<HealthCheckResponse>) -> i32 {
    let next = tokio::time::timeout(Duration::from_secs(60), watch.message());
    next.await.unwrap().unwrap().unwrap().status
}

async fn until(watch: &mut Streaming<HealthCheckResponse>, status: i32) {
    let reached = async { while next(watch).await != status {} };
    tokio::time::timeout(Duration::from_secs(120), reached).await.unwrap();
}

fn needs_store() -> HealthSettings {
    let mut settings = HealthSettings::default();
    settings.needs_store = true;
    settings
}

fn on(url: &str) -> Decider {
    decider(open(url, &StoreSettings::default()).unwrap(), CONFIG, Behaviour::default())
}

#[tokio::test]
async fn health_follows_each_store() {
    for is_per_second in [false, true] {
        let redis = Redis::start().await.unwrap();
        let decider = if is_per_second {
            let per_second = open(&redis.url(), &StoreSettings::default()).unwrap();
            on("memory").with_per_second_store(per_second)
        } else {
            on(&redis.url())
        };
        let server = Server::start(Service::new(decider), needs_store()).await;
        let mut watch = server.watch().await;
        // On a busy machine, the server may at first report that the store does not answer.
        until(&mut watch, SERVING).await;
        redis.pause().await.unwrap();
        until(&mut watch, NOT_SERVING).await;
        redis.resume().await.unwrap();
        until(&mut watch, SERVING).await;
    }
}

#[tokio::test]
async fn health_is_not_serving_from_the_start_without_the_store() {
    let redis = Redis::start().await.unwrap();
    let url = redis.url();
    redis.kill().await.unwrap();
    for (settings, expected) in [(needs_store(), NOT_SERVING), (HealthSettings::default(), SERVING)]
    {
        let server = Server::start(Service::new(on(&url)), settings).await;
        assert_eq!(next(&mut server.watch().await).await, expected);
    }
}

#[tokio::test]
async fn a_service_is_ready_with_limits_and_a_store_that_answers() {
    let store = || open("memory", &StoreSettings::default()).unwrap();
    let service = Service::new(Decider::new(store(), Behaviour::default()));
    let why = service.ready().await.unwrap_err();
    assert!(matches!(why, NotReady::Config), "{why}");
    assert!(Service::new(on("memory")).ready().await.is_ok());

    let redis = Redis::start().await.unwrap();
    let service = Service::new(on(&redis.url()));
    assert!(service.ready().await.is_ok());
    redis.pause().await.unwrap();
    let why = service.ready().await.unwrap_err();
    assert_eq!(why.to_string(), "the store has not answered within 1s");
    let service = Service::new(decider(Arc::new(Down), CONFIG, Behaviour::default()));
    let why = service.ready().await.unwrap_err();
    assert_eq!(why.to_string(), "unavailable: gone");
}

#[tokio::test]
async fn a_server_that_is_drained_takes_requests_on_new_connections() {
    for needs_store in [false, true] {
        let mut settings = HealthSettings::default();
        settings.needs_store = needs_store;
        settings.drain = Duration::from_secs(3_600);
        let server = Server::start(Service::new(Scene::new(CONFIG).decider), settings).await;
        let mut watch = server.watch().await;
        until(&mut watch, SERVING).await;
        let mut limits = RateLimitServiceClient::new(server.channel().await);
        let asked = || message(&request("d", vec![descriptor(&[("a", "x")])]));
        let url = server.url.clone();
        server.stop.send(()).unwrap();
        assert_eq!(next(&mut watch).await, NOT_SERVING);
        assert!(is_ok(&limits.should_rate_limit(asked()).await.unwrap().into_inner()));
        let mut limits = RateLimitServiceClient::connect(url).await.unwrap();
        assert!(is_ok(&limits.should_rate_limit(asked()).await.unwrap().into_inner()));
        assert!(!server.task.is_finished());
    }
}

#[tokio::test]
async fn b97_all_health_checks_fail_from_the_start_of_a_drain() {
    let service = Arc::new(Service::new(Scene::new(CONFIG).decider));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let routes = tidegate_server::envoy::json::routes(Arc::clone(&service), None);
    let bounds = tidegate_server::net::http::HttpSettings::default();
    tokio::spawn(tidegate_server::net::http::serve(
        listener,
        routes,
        bounds,
        std::future::pending(),
    ));
    let mut settings = HealthSettings::default();
    settings.drain = Duration::from_secs(3_600);
    let server = Server::start(service, settings).await;
    let mut watch = server.watch().await;
    until(&mut watch, SERVING).await;
    assert_eq!(call(address, "GET", "/healthcheck", "").await, (200, "OK".to_owned()));
    server.stop.send(()).unwrap();
    assert_eq!(next(&mut watch).await, NOT_SERVING);
    let draining = (500, "the server is shutting down\n".to_owned());
    assert_eq!(call(address, "GET", "/healthcheck", "").await, draining);
    // Requests are still decided.
    let ask = r#"{"domain": "d", "descriptors": [{"entries": [{"key": "a"}]}]}"#;
    assert_eq!(call(address, "POST", "/json", ask).await.0, 200);
}

#[tokio::test]
async fn a_server_ends_when_it_has_been_drained() {
    let mut settings = HealthSettings::default();
    settings.drain = Duration::from_millis(50);
    let server = Server::start(Service::new(Scene::new(CONFIG).decider), settings).await;
    let start = tokio::time::Instant::now();
    server.stop.send(()).unwrap();
    tokio::time::timeout(Duration::from_secs(60), server.task).await.unwrap().unwrap();
    assert!(start.elapsed() >= Duration::from_millis(50));
}

#[tokio::test]
async fn a_server_without_limits_yet_is_not_serving_unless_it_starts_without() {
    let new = || {
        let decider = Decider::new(Arc::new(MemoryStore::new()), Behaviour::default());
        Service::new(decider)
    };
    let service = Arc::new(new());
    let server = Server::start(Arc::clone(&service), HealthSettings::default()).await;
    let mut watch = server.watch().await;
    assert_eq!(next(&mut watch).await, NOT_SERVING);
    assert!(matches!(service.ready().await, Err(NotReady::Config)));
    service.load_resources(Ok(&[])).unwrap();
    assert_eq!(next(&mut watch).await, SERVING);
    service.ready().await.unwrap();

    let server = Server::start(new().starting_without_limits(true), HealthSettings::default());
    let mut watch = server.await.watch().await;
    assert_eq!(next(&mut watch).await, SERVING);

    // With the setting `needs_store`, a server is also not serving before it has limits.
    let mut settings = HealthSettings::default();
    settings.needs_store = true;
    let service = Arc::new(new());
    let server = Server::start(Arc::clone(&service), settings).await;
    let mut watch = server.watch().await;
    assert_eq!(next(&mut watch).await, NOT_SERVING);
    service.load_resources(Ok(&[])).unwrap();
    assert_eq!(next(&mut watch).await, SERVING);
}
