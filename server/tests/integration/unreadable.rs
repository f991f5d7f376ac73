//! Tests JSON with texts that are not UTF-8. The server refuses, counts and logs such requests.

use std::fs;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use metrics_exporter_prometheus::PrometheusBuilder;
use tidegate_memory::MemoryStore;
use tidegate_server::calls::Calls;
use tidegate_server::calls::v1;
use tidegate_server::envoy::service::Service;
use tidegate_server::net::access::Access;
use tidegate_server::net::http::{HttpSettings, serve};
use tidegate_server::observe::unreadable::Unreadable;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::program::{program, serving};
use crate::scene::{Scene, block_on};

const CONFIG: &str = "domain: d\ndescriptors: [{key: a, policy: fixed-window 1/365d}]";

/// Routes, each with the parts of a body before and after a text.
const BODIES: [(&str, &str, &str); 2] = [
    (
        "/json",
        r#"{"domain": "d", "descriptors": [{"entries": [{"key": "a", "value": ""#,
        r#""}]}]}"#,
    ),
    ("/v1/acquire", r#"{"policy": "fixed-window 1/365d", "subject": ""#, r#""}"#),
];

/// Texts that are not UTF-8 or contain a lone surrogate, each with the reason of its refusal.
const TEXTS: [(&[u8], &str); 6] = [
    (b"dave\xff", "is not UTF-8, which JSON requires"),
    (b"\xed\xa0\x80", "is not UTF-8, which JSON requires"),
    (b"\xc3", "is not UTF-8, which JSON requires"),
    (br"\ud800", "a surrogate, \\ud800 to \\udfff, must be one of a pair"),
    (br"\udfff", "a surrogate, \\ud800 to \\udfff, must be one of a pair"),
    (br"\ud800\u0041", "a surrogate, \\ud800 to \\udfff, must be one of a pair"),
];

async fn post(address: SocketAddr, path: &str, body: &[u8]) -> (u16, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(&[head.as_bytes(), body].concat()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

#[test]
fn b95_json_that_is_not_utf8_is_refused_and_counted() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    metrics::with_local_recorder(&recorder, || {
        block_on(async {
            let service = Arc::new(Service::new(Scene::new(CONFIG).decider));
            let calls = Arc::new(Calls::new(Arc::new(MemoryStore::new())));
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let routes = tidegate_server::envoy::json::routes(Arc::clone(&service), None);
            let routes = routes.merge(v1::routes(Arc::clone(&calls), Access::Open));
            tokio::spawn(serve(listener, routes, HttpSettings::default(), std::future::pending()));
            let reported = Mutex::new(Vec::new());
            let report = |unreadable: Unreadable| reported.lock().unwrap().push(unreadable.reason);
            let follow = async {
                tokio::join!(
                    service.follow_unreadable_json(report),
                    calls.follow_unreadable(report)
                )
            };
            let send = async {
                for (path, before, after) in BODIES {
                    for (text, why) in TEXTS {
                        let body = [before.as_bytes(), text, after.as_bytes()].concat();
                        let (status, answer) = post(address, path, &body).await;
                        assert_eq!(status, 400, "{path}: {answer}");
                        assert!(answer.replace("\\\\", "\\").contains(why), "{path}: {answer}");
                    }
                    // The server decides valid JSON. Both texts are the same subject, so the second
                    // request is refused.
                    for (text, status) in [("dave\u{ff}", 200), (r"dave\u00ff", 429)] {
                        let body = format!("{before}{text}{after}");
                        assert_eq!(post(address, path, body.as_bytes()).await.0, status, "{path}");
                    }
                }
            };
            tokio::select! {
                _ = follow => {}
                () = send => {}
            }
            // The server has reported only the first unreadable request of each of the two
            // protocols.
            let reported = reported.into_inner().unwrap();
            assert_eq!(reported.len(), 2);
            let is_first = |reason: &String| reason.contains("is not UTF-8");
            assert!(reported.iter().all(is_first), "{reported:?}");
        });
    });
    let text = handle.render();
    for line in [
        "tidegate_server_http_unreadable_requests_total 12\n",
        "ratelimit_service_should_rate_limit_error{err_type=\"service_error\"} 6\n",
        "tidegate_server_commands_total{protocol=\"json\",command=\"acquire\",outcome=\"failed\"} 6\n",
        "tidegate_server_commands_total{protocol=\"json\",command=\"acquire\",outcome=\"done\"} 1\n",
    ] {
        assert!(text.contains(line), "{line}{text}");
    }
}

#[tokio::test]
async fn the_program_logs_what_it_cannot_read_without_its_bytes() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("a.yaml"), CONFIG).unwrap();
    let mut program = program();
    program.env("TIDEGATE_STORE", "memory").arg("--config").arg(directory.path());
    let (mut child, address) = serving(program).await;
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    for (path, before, after) in BODIES {
        let body = [before.as_bytes(), b"dave\xff", after.as_bytes()].concat();
        assert_eq!(post(address, path, &body).await.0, 400);
        let protocol = if path == "/json" { "/json" } else { "/v1" };
        let expected = format!(
            " ERROR 1 requests of {protocol} were not decided because they cannot be read; the last one: the \
             byte at {} is not UTF-8, which JSON requires",
            before.len() + 4
        );
        let logged = async {
            loop {
                let line = lines.next_line().await.unwrap().unwrap();
                if line.contains("cannot be read") {
                    return line;
                }
            }
        };
        let line = timeout(Duration::from_secs(60), logged).await.unwrap();
        assert!(line.ends_with(&expected), "{line}");
    }
}
