//! Tests the bounds on HTTP requests, and the timeouts of HTTP connections.

mod bytes;
pub(crate) mod client;
mod times;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use metrics_exporter_prometheus::PrometheusBuilder;
use tidegate_memory::MemoryStore;
use tidegate_server::calls::Calls;
use tidegate_server::calls::v1::{OPENAPI, routes};
use tidegate_server::net::access::Access;
use tidegate_server::net::http::{HttpSettings, serve};
use tokio::net::TcpListener;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::scene::block_on;
use client::{Client, PATIENCE, request};

const JSON: &str = "Content-Type: application/json\r\n";
const BODY: &str = r#"{"policy": "fixed-window 1/1d", "subject": "a"}"#;

fn all_routes() -> Router {
    routes(Arc::new(Calls::new(Arc::new(MemoryStore::new()))), Access::Open)
}

struct Server {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

impl Server {
    async fn with(settings: HttpSettings) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(serve(listener, all_routes(), settings, async {
            let _ = stopped.await;
        }));
        Self { address, stop: Some(stop), task }
    }

    async fn client(&self) -> Client {
        Client::connect(self.address).await
    }

    /// Sends bytes on a new connection. Returns the status of the answer, or `None` if there is no
    /// answer.
    async fn status(&self, bytes: impl AsRef<[u8]>) -> Option<u16> {
        let mut client = self.client().await;
        client.send(bytes).await;
        client.answer().await.map(|answer| answer.status)
    }
}

async fn peek(client: &mut Client) -> u16 {
    client.call("POST", "/v1/peek", JSON, BODY).await.status
}

#[tokio::test]
async fn a_connection_is_kept_and_answers_in_order() {
    let server = Server::with(HttpSettings::default()).await;
    let mut client = server.client().await;
    for _ in 0..100 {
        assert_eq!(peek(&mut client).await, 200);
    }
    let mut all = String::new();
    for path in ["/v1/acquire", "/v1/acquire", "/v1/nothing", "/v1/reset", "/v1/acquire"] {
        all += &request("POST", path, JSON, BODY);
    }
    client.send(&all).await;
    for status in [200, 429, 404, 200, 200] {
        assert_eq!(client.answer().await.unwrap().status, status);
    }
}

#[tokio::test]
async fn ten_thousand_connections_beyond_the_maximum_disturb_no_other() {
    let mut settings = HttpSettings::default();
    settings.max_connections = 20;
    settings.idle_timeout = Duration::from_secs(3_600);
    let server = Server::with(settings).await;
    let mut served = Vec::new();
    for _ in 0..20 {
        let mut client = server.client().await;
        assert_eq!(peek(&mut client).await, 200);
        served.push(client);
    }
    for number in 0..10_000 {
        let mut refused = server.client().await;
        // Only every hundredth client reads its refusal.
        if number % 100 == 0 {
            let answer = refused.answer().await.unwrap();
            assert_eq!((answer.status, answer.field("connection")), (503, Some("close")));
            assert_eq!(answer.body, "max number of connections is reached\n");
            assert_eq!(refused.answer().await, None);
            assert_eq!(peek(&mut served[number / 100 % 20]).await, 200);
        }
    }
    drop(served.pop());
    let one_more = async {
        loop {
            let mut client = server.client().await;
            client.send(request("POST", "/v1/peek", JSON, BODY)).await;
            if client.answer().await.is_some_and(|answer| answer.status == 200) {
                break;
            }
        }
    };
    timeout(PATIENCE, one_more).await.unwrap();
}

#[tokio::test]
async fn heads_are_bounded_in_size_and_number_of_fields() {
    let mut settings = HttpSettings::default();
    (settings.max_head_bytes, settings.max_headers) = (2_000, 20);
    for (settings, max_bytes, max_headers) in
        [(HttpSettings::default(), 16 << 10, 100), (settings, 2_000, 20)]
    {
        let server = Server::with(settings).await;
        let head = |bytes: usize| {
            let rest = "GET /openapi.json HTTP/1.1\r\nHost: x\r\nA: \r\n\r\n".len();
            let value = "x".repeat(bytes - rest);
            format!("GET /openapi.json HTTP/1.1\r\nHost: x\r\nA: {value}\r\n\r\n")
        };
        assert_eq!(server.status(head(max_bytes - 10)).await, Some(200));
        assert_eq!(server.status(head(max_bytes + 10)).await, Some(431));
        assert_eq!(server.status(head(10_000_000)).await.unwrap_or(431), 431);
        let fields =
            |number| format!("GET /openapi.json HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(number));
        assert_eq!(server.status(fields(max_headers)).await, Some(200));
        assert_eq!(server.status(fields(max_headers + 1)).await, Some(431));
        let path = format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(100_000));
        assert!(matches!(server.status(path).await, None | Some(414 | 431)));
        assert_eq!(peek(&mut server.client().await).await, 200);
    }
}

#[tokio::test]
async fn bodies_are_bounded_however_they_come() {
    let mut settings = HttpSettings::default();
    settings.max_body_bytes = 1_000;
    let server = Server::with(settings).await;
    let padded = |len: usize| format!("{BODY}{}", " ".repeat(len - BODY.len()));
    let whole = |len| request("POST", "/v1/peek", JSON, &padded(len));
    let in_chunks = |len| {
        let chunks = padded(len);
        let chunks = chunks.as_bytes().chunks(100);
        let chunks = chunks
            .map(|chunk| format!("{:x}\r\n{}\r\n", chunk.len(), String::from_utf8_lossy(chunk)));
        let head = format!("POST /v1/peek HTTP/1.1\r\n{JSON}Transfer-Encoding: chunked\r\n\r\n");
        format!("{head}{}0\r\n\r\n", chunks.collect::<String>())
    };
    assert_eq!(server.status(whole(1_000)).await, Some(200));
    assert_eq!(server.status(whole(1_001)).await, Some(413));
    assert_eq!(server.status(in_chunks(1_000)).await, Some(200));
    assert_eq!(server.status(in_chunks(1_001)).await, Some(413));
    // The client sends no byte of the body, so the server must refuse the request by its
    // `Content-Length`.
    let head = format!("POST /v1/peek HTTP/1.1\r\n{JSON}Content-Length: 99999999999\r\n\r\n");
    assert_eq!(server.status(&head).await, Some(413));
    // The server does not read a body that no route reads. It must close the connection, and not
    // handle the body as requests.
    let mut client = server.client().await;
    client
        .send(request(
            "POST",
            "/nothing",
            "",
            &request("GET", "/openapi.json", "", "").repeat(9_000),
        ))
        .await;
    assert_eq!(client.answer().await.map(|answer| answer.status).unwrap_or(404), 404);
    assert_eq!(client.answer().await, None);
}

#[tokio::test]
async fn at_the_end_what_has_come_is_answered() {
    let mut server = Server::with(HttpSettings::default()).await;
    let mut idle = server.client().await;
    assert_eq!(peek(&mut idle).await, 200);
    let mut busy = server.client().await;
    assert_eq!(peek(&mut busy).await, 200);
    let all = request("POST", "/v1/peek", JSON, BODY);
    let (now, later) = all.split_at(all.len() - 5);
    busy.send(format!("{all}{now}")).await;
    assert_eq!(busy.answer().await.unwrap().status, 200);
    // The second request is incomplete when the server stops. If the server answers it, the answer
    // must announce the end of the connection.
    server.stop.take().unwrap().send(()).unwrap();
    assert_eq!(idle.answer().await, None);
    busy.send(later).await;
    if let Some(answer) = busy.answer().await {
        assert_eq!((answer.status, answer.field("connection")), (200, Some("close")));
    }
    timeout(PATIENCE, server.task).await.unwrap().unwrap();
    assert!(tokio::net::TcpStream::connect(server.address).await.is_err());
}

#[tokio::test]
async fn at_the_end_a_request_that_is_being_answered_gets_its_answer() {
    let (begun, goes_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (has_begun, may_go_on) = (Arc::clone(&begun), Arc::clone(&goes_on));
    let slow = || async move {
        has_begun.notify_one();
        may_go_on.notified().await;
        "text"
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel();
    let routes = Router::new().route("/", axum::routing::get(slow));
    let task = tokio::spawn(serve(listener, routes, HttpSettings::default(), async {
        let _ = stopped.await;
    }));
    let mut client = Client::connect(address).await;
    client.send("GET / HTTP/1.1\r\n\r\n").await;
    timeout(PATIENCE, begun.notified()).await.unwrap();
    stop.send(()).unwrap();
    while tokio::net::TcpStream::connect(address).await.is_ok() {
        tokio::task::yield_now().await;
    }
    goes_on.notify_one();
    let answer = client.answer().await.unwrap();
    assert_eq!(
        (answer.status, &*answer.body, answer.field("connection")),
        (200, "text", Some("close"))
    );
    timeout(PATIENCE, task).await.unwrap().unwrap();
}

#[test]
fn connections_and_calls_are_counted() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    metrics::with_local_recorder(&recorder, || {
        block_on(async {
            let mut settings = HttpSettings::default();
            settings.max_connections = 1;
            let server = Server::with(settings).await;
            let mut client = server.client().await;
            for (path, status) in [("/v1/acquire", 200), ("/v1/acquire", 429), ("/v1/peek", 429)] {
                assert_eq!(client.call("POST", path, JSON, BODY).await.status, status);
            }
            assert_eq!(client.call("POST", "/v1/reset", JSON, "{").await.status, 400);
            assert_eq!(client.call("POST", "/v1/reset", "", BODY).await.status, 415);
            assert_eq!(server.client().await.answer().await.unwrap().status, 503);
            let text = handle.render();
            for (command, outcome, count) in [
                ("acquire", "done", 1),
                ("acquire", "refused", 1),
                ("peek", "refused", 1),
                ("reset", "failed", 2),
            ] {
                let line = format!(
                    "tidegate_server_commands_total{{protocol=\"json\",command=\"{command}\",outcome=\"{outcome}\"}} {count}\n"
                );
                assert!(text.contains(&line), "{line}\n{text}");
            }
            assert!(text.contains("tidegate_server_http_connections 1\n"), "{text}");
            assert!(text.contains("tidegate_server_http_refused_connections_total 1\n"), "{text}");
        });
    });
}

#[tokio::test]
async fn spans_and_numbers_beyond_what_can_be_counted_are_no_limit() {
    let mut settings = HttpSettings::default();
    (settings.idle_timeout, settings.request_timeout) = (Duration::MAX, Duration::MAX);
    (settings.max_connections, settings.max_headers) = (usize::MAX, 65_535);
    settings.max_body_bytes = usize::MAX;
    let server = Server::with(settings).await;
    let mut client = server.client().await;
    let all = request("POST", "/v1/peek", JSON, BODY);
    for part in all.as_bytes().chunks(50) {
        client.send(part).await;
        tokio::task::yield_now().await;
    }
    assert_eq!(client.answer().await.unwrap().status, 200);
    assert_eq!(client.call("GET", "/openapi.json", "", "").await.body, OPENAPI);
}
