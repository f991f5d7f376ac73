//! The page of the program, and `top`.

use std::fs;
use std::net::SocketAddr;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::http::client::{Client, PATIENCE};
use crate::program::program;

const LIMIT: &str = "domain: d\ndescriptors: [{key: a, policy: fixed-window 1/365d}]";
const ASK: &str = r#"{"domain": "d", "descriptors": [{"entries": [{"key": "a"}]}]}"#;

struct Server {
    child: Child,
    json: SocketAddr,
    page: SocketAddr,
    _directory: tempfile::TempDir,
}

async fn start(change: impl FnOnce(&mut Command)) -> Server {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("a.yaml"), LIMIT).unwrap();
    let mut program = program();
    program.arg("--config").arg(directory.path());
    program.env("GRPC_HOST", "127.0.0.1").env("GRPC_PORT", "0").env("PORT", "0");
    program.env("TIDEGATE_PAGE_PORT", "0");
    change(&mut program);
    let mut child = program.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut line = async || timeout(PATIENCE, lines.next_line()).await.unwrap().unwrap().unwrap();
    let (first, second) = (line().await, line().await);
    let json = first.rsplit_once("http://").unwrap().1.parse().unwrap();
    let page = second.strip_prefix("page on http://").unwrap().parse().unwrap();
    Server { child, json, page, _directory: directory }
}

async fn get(address: SocketAddr, path: &str) -> (u16, String) {
    let request = format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
    let mut client = Client::connect(address).await;
    client.send(request).await;
    let answer = client.answer().await.unwrap();
    (answer.status, answer.body)
}

#[tokio::test]
async fn the_program_shows_what_it_does_in_the_page_and_in_top() {
    let server = start(|_| {}).await;
    let mut client = Client::connect(server.json).await;
    for status in [200, 429, 429] {
        assert_eq!(client.call("POST", "/json", "", ASK).await.status, status);
    }
    let call = r#"{"policy": "p: fixed-window 1/365d", "subject": "alice"}"#;
    let json = "Content-Type: application/json\r\n";
    for status in [200, 429] {
        assert_eq!(client.call("POST", "/v1/acquire", json, call).await.status, status);
    }
    assert!(get(server.page, "/").await.1.contains("<title>Tidegate</title>"));
    let is_recorded = async {
        loop {
            let (status, body) = get(server.page, "/activity").await;
            assert_eq!(status, 200);
            let activity: serde_json::Value = serde_json::from_str(&body).unwrap();
            let refused = |limit: &str| {
                let limits = activity["limits"].as_array().unwrap();
                let limit = limits.iter().find(|it| it["limit"] == limit);
                let history = limit.map_or(&[][..], |it| it["refused_history"].as_array().unwrap());
                history.iter().any(|it| it.as_f64().unwrap() > 0.0)
            };
            let is_asked = activity["stores"][0]["answers"] == true;
            if refused("d.a") && refused("p: fixed-window 1/365d") && is_asked {
                break body;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    let body = timeout(PATIENCE, is_recorded).await.unwrap();
    assert!(!body.contains("alice"), "{body}");
    // The port of JSON has no page, and that of the page no limits.
    assert_eq!(get(server.json, "/activity").await.0, 404);
    assert_eq!(get(server.page, "/metrics").await.0, 404);

    #[cfg(feature = "top")]
    {
        let output = top(&[&format!("http://{}", server.page)], "").await;
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success());
        for part in [
            "Tidegate",
            "LIMITS",
            "d.a  policy: fixed-window 1/365d",
            "p: fixed-window",
            "memory (store)",
            "(hidden)",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains('\u{1b}'), "{text}");
    }
}

#[cfg(feature = "top")]
async fn top(arguments: &[&str], password: &str) -> std::process::Output {
    let mut program = program();
    program.arg("top").args(arguments).env("TIDEGATE_PAGE_PASSWORD", password);
    timeout(PATIENCE, program.output()).await.unwrap().unwrap()
}

#[tokio::test]
async fn the_page_of_other_machines_needs_a_password() {
    let mut open = start(|it| {
        it.env("TIDEGATE_PAGE_HOST", "0.0.0.0");
    })
    .await;
    let address = SocketAddr::from(([127, 0, 0, 1], open.page.port()));
    assert_eq!(get(address, "/").await.0, 403);
    let told = start(|it| {
        it.env("TIDEGATE_PAGE_HOST", "0.0.0.0").env("TIDEGATE_PAGE_WITHOUT_PASSWORD", "1");
    })
    .await;
    let told = SocketAddr::from(([127, 0, 0, 1], told.page.port()));
    let closed = start(|it| {
        it.env("TIDEGATE_PAGE_PASSWORD", "s3cret").env("TIDEGATE_PAGE_HOST", "0.0.0.0");
    })
    .await;
    let closed = SocketAddr::from(([127, 0, 0, 1], closed.page.port()));
    let _ = told;
    assert_eq!(get(closed, "/").await.0, 401);
    #[cfg(feature = "top")]
    {
        let url = format!("http://{closed}");
        assert!(!top(&[&url], "wrong").await.status.success());
        assert!(!top(&["--once", "http://127.0.0.1:1"], "").await.status.success());
        assert!(!top(&["https://127.0.0.1"], "").await.status.success());
    }
    open.child.start_kill().unwrap();
    let mut stderr = String::new();
    open.child.stderr.take().unwrap().read_to_string(&mut stderr).await.unwrap();
    assert!(stderr.contains("TIDEGATE_PAGE_PASSWORD"), "{stderr}");
    let _ = open.child.wait().await;
}
