//! Tests Envoy's rate-limit protocol with a gRPC client over a socket.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use envoy_types::pb::envoy::service::ratelimit::v3::RateLimitRequest;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::Code as RateLimitCode;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
use metrics_exporter_prometheus::PrometheusBuilder;
use tidegate_server::envoy::grpc::{GrpcSettings, serve};
use tidegate_server::envoy::health;
use tidegate_server::envoy::service::Service;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tonic::Code;
use tonic::transport::Channel;
use tonic_health::ServingStatus;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use crate::checks::grpc as frames;
use crate::scene::{Scene, block_on, descriptor, is_ok, message, request, reset};

const CONFIG: &str = "domain: d\ndescriptors:\n- {key: a, policy: gcra 1/7s burst 2}\n";

pub(crate) struct Server {
    pub(crate) channel: Channel,
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

pub(crate) async fn server() -> Server {
    server_with(GrpcSettings::default()).await
}

async fn server_with(settings: GrpcSettings) -> Server {
    let service = Arc::new(Service::new(Scene::new(CONFIG).decider));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let url = format!("http://{address}");
    let (stop, stopped) = oneshot::channel();
    let stopped = async {
        let _ = stopped.await;
    };
    let task = tokio::spawn(serve(listener, service, settings, stopped));
    let channel = Channel::from_shared(url).unwrap().connect().await.unwrap();
    Server { channel, address, stop: Some(stop), task }
}

impl Server {
    fn limits(&self) -> RateLimitServiceClient<Channel> {
        RateLimitServiceClient::new(self.channel.clone())
    }
}

fn asked() -> RateLimitRequest {
    message(&request("d", vec![descriptor(&[("a", "x")])]))
}

#[tokio::test]
async fn a_request_is_decided() {
    let server = server().await;
    let mut client = server.limits();
    for _ in 0..2 {
        assert!(is_ok(&client.should_rate_limit(asked()).await.unwrap().into_inner()));
    }
    let response = client.should_rate_limit(asked()).await.unwrap().into_inner();
    assert_eq!(response.overall_code(), RateLimitCode::OverLimit);
    // Envoy copies the time until the reset into `Retry-After`.
    assert_eq!(reset(&response.statuses[0]), 7);
}

#[tokio::test]
async fn g12_errors_have_the_code_and_the_text_of_envoyproxy_ratelimit() {
    let server = server().await;
    let mut client = server.limits();
    let status = client.should_rate_limit(message(&request("", vec![]))).await.unwrap_err();
    let expected = (Code::Unknown, "rate limit domain must not be empty");
    assert_eq!((status.code(), status.message()), expected);
}

#[tokio::test]
async fn a_message_that_is_too_large_is_an_error_and_the_connection_stays() {
    let server = server().await;
    let mut client = server.limits();
    let huge = "x".repeat(5 << 20);
    let status = client.should_rate_limit(message(&request(&huge, vec![]))).await.unwrap_err();
    assert_eq!(status.code(), Code::OutOfRange);
    let large = "x".repeat(2 << 20);
    let asked_large = message(&request("d", vec![descriptor(&[("a", &large)])]));
    let status = client.should_rate_limit(asked_large).await.unwrap_err();
    assert!(status.message().contains("at most 1048576 are possible"), "{status}");
    assert!(client.should_rate_limit(asked()).await.is_ok());
}

/// Sends bytes. Returns the bytes that the server sends until it closes the connection.
async fn rest_of(address: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    let mut answer = Vec::new();
    let read = stream.read_to_end(&mut answer);
    let _ = tokio::time::timeout(Duration::from_secs(60), read).await.unwrap();
    answer
}

#[tokio::test]
async fn a_connection_that_does_not_begin_in_time_ends() {
    let mut settings = GrpcSettings::default();
    settings.begin_timeout = Duration::from_millis(50);
    let server = server_with(settings).await;
    let whole = frames::call(frames::REQUEST);
    for bytes in [0, 1, 23, 24, 32] {
        rest_of(server.address, &whole[..bytes]).await;
    }
    // A connection on which HTTP/2 has begun stays open after the timeout.
    tokio::time::sleep(Duration::from_millis(60)).await;
    assert!(server.limits().should_rate_limit(asked()).await.is_ok());
}

#[test]
fn a_connection_beyond_the_maximum_is_closed_and_counted() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    metrics::with_local_recorder(&recorder, || {
        block_on(async {
            let mut settings = GrpcSettings::default();
            settings.max_connections = 1;
            let server = server_with(settings).await;
            assert!(server.limits().should_rate_limit(asked()).await.is_ok());
            for _ in 0..2 {
                assert!(rest_of(server.address, b"").await.is_empty());
            }
            assert!(server.limits().should_rate_limit(asked()).await.is_ok());
        });
    });
    let text = handle.render();
    assert!(text.contains("tidegate_server_grpc_refused_connections_total 2\n"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_connection_whose_client_is_gone_without_a_word_ends() {
    let mut settings = GrpcSettings::default();
    // The paused clock may advance before the first bytes of the client arrive, so this timeout is
    // very long.
    settings.begin_timeout = Duration::from_secs(86_400);
    let service = Arc::new(Service::new(Scene::new(CONFIG).decider));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(serve(listener, service, settings, std::future::pending()));
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(&frames::call(frames::REQUEST)).await.unwrap();
    let (start, mut answer) = (tokio::time::Instant::now(), Vec::new());
    let _ = stream.read_to_end(&mut answer).await;
    assert!(frames::frames(&answer).iter().any(|frame| frame.kind == frames::PING));
    assert!(start.elapsed() < Duration::from_secs(3_600), "{:?}", start.elapsed());
}

#[tokio::test]
async fn a_request_whose_message_does_not_come_in_time_is_cancelled() {
    let mut settings = GrpcSettings::default();
    settings.request_timeout = Duration::from_millis(50);
    let server = server_with(settings).await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let whole = frames::call(frames::REQUEST);
    stream.write_all(&whole[..whole.len() - 1]).await.unwrap();
    let mut answer = Vec::new();
    let cancelled = async {
        while !frames::frames(&answer).iter().any(|frame| frame.kind == frames::HEADERS) {
            assert!(stream.read_buf(&mut answer).await.unwrap() > 0, "{}", answer.escape_ascii());
        }
    };
    tokio::time::timeout(Duration::from_secs(60), cancelled).await.unwrap();
    assert!(server.limits().should_rate_limit(asked()).await.is_ok());
}

#[tokio::test]
async fn many_requests_of_one_connection_are_decided_at_the_same_time() {
    let server = server().await;
    let calls: Vec<_> = (0..200)
        .map(|_| {
            let mut client = server.limits();
            tokio::spawn(async move { client.should_rate_limit(asked()).await.unwrap() })
        })
        .collect();
    let mut passed = 0;
    for call in calls {
        passed += usize::from(is_ok(&call.await.unwrap().into_inner()));
    }
    assert_eq!(passed, 2);
}

#[tokio::test]
async fn health_says_serving_until_the_server_shuts_down() {
    let mut server = server().await;
    let mut health = HealthClient::new(server.channel.clone());
    let name = || HealthCheckRequest { service: health::NAME.to_owned() };
    let status = health.check(name()).await.unwrap().into_inner().status;
    assert_eq!(status, i32::from(ServingStatus::Serving as u8));
    let mut watch = health.watch(name()).await.unwrap().into_inner();
    assert_eq!(watch.message().await.unwrap().unwrap().status, 1);

    server.stop.take().unwrap().send(()).unwrap();
    let told = tokio::time::timeout(Duration::from_secs(10), watch.message()).await.unwrap();
    assert_eq!(told.unwrap().unwrap().status, 2);
    // The server ends after its last request, which watches the health.
    drop((watch, health));
    drop(server.channel);
    tokio::time::timeout(Duration::from_secs(10), server.task).await.unwrap().unwrap();
}
