//! Tests how gRPC connections end at their maximum age, and when the server shuts down.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::{HeaderMap, Request, StatusCode};
use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use h2::{Error, Reason, RecvStream, SendStream};
use prost::Message;
use tidegate_memory::{MemoryStore, StoreExt};
use tidegate_server::envoy::decide::{Behaviour, Decider};
use tidegate_server::envoy::grpc::{ConnectionAge, GrpcSettings, serve};
use tidegate_server::envoy::request::{Entry, RateLimitDescriptor, RateLimitRequest};
use tidegate_server::envoy::service::Service;
use tidegate_testkit::faults::{Fault, Faults};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;

use crate::scene::{Scene, decider};

/// The maximum time for an action on a busy machine.
const SOON: Duration = Duration::from_secs(60);
/// A time that is longer than any test.
const NEVER: Duration = Duration::from_secs(3_600);
const SHORT: Duration = Duration::from_millis(50);

/// A health request without the name of a service, which means the whole server.
const WHOLE_SERVER: &[u8] = &[0, 0, 0, 0, 0];
const SERVICE: &[u8] = b"\0\0\0\0\x0b\x0a\x09ratelimit";
const SERVING: &[u8] = &[0, 0, 0, 0, 2, 8, 1];
const NOT_SERVING: &[u8] = &[0, 0, 0, 0, 2, 8, 2];

struct Server {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

impl Server {
    async fn start(age: ConnectionAge, end_timeout: Duration) -> Self {
        Self::with(Scene::new("domain: d\ndescriptors: []").decider, age, end_timeout).await
    }

    async fn with(decider: Decider, age: ConnectionAge, end_timeout: Duration) -> Self {
        let service = Service::new(decider);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let stopped = async {
            let _ = stopped.await;
        };
        let mut settings = GrpcSettings::default();
        settings.age = age;
        settings.end_timeout = end_timeout;
        let task = tokio::spawn(serve(listener, Arc::new(service), settings, stopped));
        Self { address, stop: Some(stop), task }
    }

    fn stop(&mut self) {
        self.stop.take().unwrap().send(()).unwrap();
    }

    async fn end(self) {
        timeout(SOON, self.task).await.unwrap().unwrap();
    }
}

struct Client {
    requests: SendRequest<Bytes>,
    connection: JoinHandle<Result<(), Error>>,
}

/// A request whose header was sent. Its message was not sent yet.
struct Begun {
    response: ResponseFuture,
    message: SendStream<Bytes>,
}

impl Client {
    async fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        let (requests, connection) = h2::client::handshake(stream).await.unwrap();
        Self { requests, connection: tokio::spawn(connection) }
    }

    async fn begin(&mut self, method: &str) -> Begun {
        self.begin_at(&format!("grpc.health.v1.Health/{method}")).await
    }

    async fn begin_at(&mut self, path: &str) -> Begun {
        let request = Request::post(format!("http://localhost/{path}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(())
            .unwrap();
        let mut requests = self.requests.clone().ready().await.unwrap();
        let (response, message) = requests.send_request(request, false).unwrap();
        Begun { response, message }
    }

    /// Waits until the server has sent GOAWAY, after which it accepts no requests on the
    /// connection.
    async fn goaway(&self) {
        let told = async {
            loop {
                match self.requests.clone().ready().await {
                    Ok(_) => tokio::time::sleep(Duration::from_millis(1)).await,
                    Err(error) => return error,
                }
            }
        };
        let error = timeout(SOON, told).await.unwrap();
        assert!(error.is_go_away() && error.is_remote(), "{error}");
        assert_eq!(error.reason(), Some(Reason::NO_ERROR));
    }

    async fn end(self) -> Result<(), Error> {
        timeout(SOON, self.connection).await.unwrap().unwrap()
    }
}

impl Begun {
    async fn answered(mut self, message: &'static [u8]) -> RecvStream {
        self.message.send_data(Bytes::from_static(message), true).unwrap();
        let response = timeout(SOON, self.response).await.unwrap().unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        response.into_body()
    }

    /// Sends the message of the request. Returns the only message of its response, which must end
    /// without an error.
    async fn answer(self) -> Bytes {
        let mut body = self.answered(WHOLE_SERVER).await;
        let message = next(&mut body).await.unwrap();
        assert_eq!(next(&mut body).await, None);
        assert_eq!(trailers(&mut body).await["grpc-status"], "0");
        message
    }
}

async fn next(body: &mut RecvStream) -> Option<Bytes> {
    let next = timeout(SOON, body.data()).await.unwrap();
    next.map(|data| data.unwrap())
}

async fn trailers(body: &mut RecvStream) -> HeaderMap {
    timeout(SOON, body.trailers()).await.unwrap().unwrap().unwrap()
}

#[tokio::test]
async fn an_old_connection_takes_no_more_requests_and_answers_those_that_it_has() {
    let server = Server::start(ConnectionAge::new(SHORT, NEVER), NEVER).await;
    let start = Instant::now();
    let mut client = Client::connect(server.address).await;
    let begun = client.begin("Check").await;
    client.goaway().await;
    assert!(start.elapsed() >= SHORT);
    assert_eq!(begun.answer().await, SERVING);
    client.end().await.unwrap();

    let mut client = Client::connect(server.address).await;
    assert_eq!(client.begin("Check").await.answer().await, SERVING);
}

#[tokio::test]
async fn a_connection_without_requests_ends_at_its_age() {
    let server = Server::start(ConnectionAge::new(SHORT, NEVER), NEVER).await;
    let client = Client::connect(server.address).await;
    client.end().await.unwrap();
}

#[tokio::test]
async fn a_request_that_lasts_longer_than_the_grace_is_cut_off() {
    let age = 10 * SHORT;
    let server = Server::start(ConnectionAge::new(age, SHORT), NEVER).await;
    let start = Instant::now();
    let mut client = Client::connect(server.address).await;
    let Begun { response, message: _kept } = client.begin("Check").await;
    timeout(SOON, response).await.unwrap().unwrap_err();
    assert!(start.elapsed() >= age + SHORT);
    // The server sends GOAWAY and then closes the connection, so the client may see an orderly end
    // or an error.
    let _ = client.end().await;
}

#[tokio::test]
async fn a_connection_on_which_nothing_is_said_ends_at_its_age_and_grace() {
    let server = Server::start(ConnectionAge::new(SHORT, SHORT), NEVER).await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    // The client reads the first frames of the server, and then the end of the connection.
    let mut said = vec![];
    let _ = timeout(SOON, stream.read_to_end(&mut said)).await.unwrap();
}

#[tokio::test]
async fn a_stream_that_watches_the_health_ends_with_the_server() {
    let mut server = Server::start(ConnectionAge::default(), NEVER).await;
    let mut client = Client::connect(server.address).await;
    let mut streams = vec![];
    for name in [WHOLE_SERVER, SERVICE] {
        let mut watch = client.begin("Watch").await.answered(name).await;
        assert_eq!(next(&mut watch).await.unwrap(), SERVING);
        streams.push(watch);
    }
    server.stop();
    for watch in &mut streams {
        assert_eq!(next(watch).await.unwrap(), NOT_SERVING);
        assert_eq!(next(watch).await, None);
        assert_eq!(trailers(watch).await["grpc-status"], "0");
    }
    client.end().await.unwrap();
    server.end().await;
}

#[tokio::test]
async fn a_server_that_ends_answers_the_requests_that_it_has() {
    let mut server = Server::start(ConnectionAge::default(), NEVER).await;
    let mut client = Client::connect(server.address).await;
    let begun = client.begin("Check").await;
    // The answer to the second request shows that the server has received the first one.
    assert_eq!(client.begin("Check").await.answer().await, SERVING);
    server.stop();
    client.goaway().await;
    assert!(!server.task.is_finished());
    drop(begun.answered(WHOLE_SERVER).await);
    client.end().await.unwrap();
    server.end().await;
}

#[tokio::test]
async fn a_server_ends_though_a_request_never_does() {
    let mut server = Server::start(ConnectionAge::default(), SHORT).await;
    let mut client = Client::connect(server.address).await;
    let Begun { response, message: _kept } = client.begin("Check").await;
    // The request stays open during this wait, because the timeout `SHORT` starts with the
    // shutdown.
    tokio::time::sleep(2 * SHORT).await;
    assert_eq!(client.begin("Check").await.answer().await, SERVING);
    server.stop();
    server.end().await;
    timeout(SOON, response).await.unwrap().unwrap_err();
    // The server sends GOAWAY and then closes the connection, so the client may see an orderly end
    // or an error.
    let _ = client.end().await;
}

const SHOULD_RATE_LIMIT: &str = "envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// Returns a gRPC message of 3 MiB in two parts: all bytes except the last one, and the last byte.
/// Almost all bytes are the name of a domain.
fn large() -> (Bytes, Bytes) {
    let len = 3 << 20;
    let mut message = vec![0x0a];
    prost::encode_length_delimiter(len - 5, &mut message).unwrap();
    message.resize(len, b'x');
    let head = [&[0][..], &u32::try_from(len).unwrap().to_be_bytes()].concat();
    let mut message = Bytes::from([head, message].concat());
    let end = message.split_off(message.len() - 1);
    (message, end)
}

/// Returns the gRPC status of a response that contains no message.
async fn status(response: ResponseFuture) -> String {
    let response = timeout(SOON, response).await.unwrap().unwrap();
    response.headers()["grpc-status"].to_str().unwrap().to_owned()
}

#[tokio::test]
async fn messages_that_are_not_complete_take_no_more_than_a_connection_may() {
    const RESOURCE_EXHAUSTED: &str = "8";
    // The status of the answer to a complete request, which the service refuses because it has no
    // descriptors.
    const REFUSED: &str = "2";
    let server = Server::start(ConnectionAge::default(), NEVER).await;
    let mut client = Client::connect(server.address).await;
    let (begin, end) = large();
    // One connection can use at most a sixth of the memory for requests.
    let possible = GrpcSettings::default().max_bytes / 6 / begin.len();
    let (mut responses, mut messages) = (JoinSet::new(), vec![]);
    for index in 0..possible + 3 {
        let Begun { response, mut message } = client.begin_at(SHOULD_RATE_LIMIT).await;
        message.send_data(begin.clone(), false).unwrap();
        responses.spawn(async move { (index, status(response).await) });
        messages.push(Some(message));
    }
    for _ in 0..3 {
        let (index, status) = responses.join_next().await.unwrap().unwrap();
        assert_eq!(status, RESOURCE_EXHAUSTED);
        messages[index] = None;
    }
    // The server answers another request while the large messages are incomplete. After their last
    // bytes, it decides their requests too.
    assert_eq!(client.begin("Check").await.answer().await, SERVING);
    for message in messages.iter_mut().flatten() {
        message.send_data(end.clone(), true).unwrap();
    }
    let statuses: Vec<String> =
        responses.join_all().await.into_iter().map(|(_, status)| status).collect();
    assert!(statuses.iter().any(|status| status == REFUSED), "{statuses:?}");

    // The server has released the memory of the large messages, so it accepts twice as many later
    // messages.
    for _ in 0..2 * possible {
        let Begun { response, mut message } = client.begin_at(SHOULD_RATE_LIMIT).await;
        message.send_data(begin.clone(), false).unwrap();
        message.send_data(end.clone(), true).unwrap();
        assert_eq!(status(response).await, REFUSED);
    }
    // The health service accepts only short messages. Status 11 means that a message is too long.
    let Begun { response, mut message } = client.begin("Check").await;
    message.send_data(begin, false).unwrap();
    assert_eq!(status(response).await, "11");
}

#[tokio::test]
async fn requests_that_the_store_does_not_answer_take_no_more_than_a_connection_may() {
    let store = MemoryStore::new().layer(Faults::new(vec![Fault::Delayed; 100]));
    let limits = "domain: d\ndescriptors: [{key: a, policy: gcra 1/s}]";
    let decider = decider(Arc::new(store), limits, Behaviour::default());
    let server = Server::with(decider, ConnectionAge::default(), NEVER).await;
    let mut client = Client::connect(server.address).await;
    let value = Bytes::from(vec![b'x'; 900_000]);
    let descriptor = RateLimitDescriptor {
        entries: vec![Entry { key: "a".into(), value }],
        ..Default::default()
    };
    let (domain, descriptors) = ("d".into(), vec![descriptor; 3]);
    let message = RateLimitRequest { domain, descriptors, hits_addend: 0 }.encode_to_vec();
    let head = [&[0][..], &u32::try_from(message.len()).unwrap().to_be_bytes()].concat();
    let message = Bytes::from([head, message].concat());
    // A message and its decision together take twice the length of the message.
    let possible = GrpcSettings::default().max_bytes / 6 / (2 * message.len());
    let mut responses = JoinSet::new();
    for _ in 0..possible + 3 {
        let Begun { response, message: mut sent } = client.begin_at(SHOULD_RATE_LIMIT).await;
        sent.send_data(message.clone(), true).unwrap();
        responses.spawn(status(response));
    }
    for _ in 0..3 {
        const RESOURCE_EXHAUSTED: &str = "8";
        let status = timeout(SOON, responses.join_next()).await.unwrap().unwrap().unwrap();
        assert_eq!(status, RESOURCE_EXHAUSTED);
    }
    // The waiting requests use only the memory of their own connection, so the server still answers
    // on another connection.
    let mut client = Client::connect(server.address).await;
    assert_eq!(client.begin("Check").await.answer().await, SERVING);
    assert_eq!(responses.len(), possible);
}

#[tokio::test]
async fn a_method_that_is_not_known_is_said_to_be_so() {
    let server = Server::start(ConnectionAge::default(), NEVER).await;
    let mut client = Client::connect(server.address).await;
    let path = SHOULD_RATE_LIMIT.replace("Should", "Must");
    let Begun { response, message: _kept } = client.begin_at(&path).await;
    assert_eq!(status(response).await, "12");
}

#[tokio::test]
async fn a_client_is_told_how_many_requests_are_possible_at_the_same_time() {
    let server = Server::start(ConnectionAge::default(), NEVER).await;
    let mut client = Client::connect(server.address).await;
    assert_eq!(client.begin("Check").await.answer().await, SERVING);
    assert_eq!(client.requests.current_max_send_streams(), 100);
}
