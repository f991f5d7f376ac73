//! Tests the page of the program, and the subcommand `top`.

use std::fs;
use std::net::SocketAddr;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::http::client::{Client, PATIENCE};
use crate::program::{program, settings};

const LIMIT: &str = "domain: d\ndescriptors: [{key: a, policy: fixed-window 1/365d}]";
const ASK: &str = r#"{"domain": "d", "descriptors": [{"entries": [{"key": "a"}]}]}"#;

pub(crate) struct Server {
    pub(crate) child: Child,
    pub(crate) json: SocketAddr,
    resp: Option<SocketAddr>,
    pub(crate) page: SocketAddr,
    scheme: String,
    _directory: tempfile::TempDir,
}

async fn start(change: impl FnOnce(&mut Command)) -> Server {
    start_with(LIMIT, change).await
}

pub(crate) async fn start_with(limits: &str, change: impl FnOnce(&mut Command)) -> Server {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("a.yaml"), limits).unwrap();
    let mut program = program();
    program.arg("--config").arg(directory.path());
    program.env("GRPC_HOST", "127.0.0.1").env("GRPC_PORT", "0").env("PORT", "0");
    change(&mut program);
    let is_placed = program.as_std().get_args().any(|argument| argument == "--page");
    if !is_placed {
        program.args(["--page", "127.0.0.1:0"]);
    }
    let mut child = program.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut line = async || timeout(PATIENCE, lines.next_line()).await.unwrap().unwrap().unwrap();
    let json = line().await.rsplit_once("http://").unwrap().1.parse().unwrap();
    let mut resp = None;
    let (scheme, page) = loop {
        let line = line().await;
        match line.strip_prefix("page on ") {
            Some(url) => {
                break url.split_once("://").map(|(a, b)| (a.to_owned(), b.parse())).unwrap();
            }
            None => resp = line.strip_prefix("RESP on ").map(|address| address.parse().unwrap()),
        }
    };
    Server { child, json, resp, page: page.unwrap(), scheme, _directory: directory }
}

pub(crate) async fn get(address: SocketAddr, path: &str) -> (u16, String) {
    let request = format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
    let mut client = Client::connect(address).await;
    client.send(request).await;
    let answer = client.answer().await.unwrap();
    (answer.status, answer.body)
}

#[tokio::test]
async fn the_program_shows_what_it_does_in_the_page_and_in_top() {
    let server = start(|program| {
        program.args(["--resp", "127.0.0.1:0"]);
    })
    .await;
    let mut resp = Client::connect(server.resp.unwrap()).await;
    resp.send("CL.THROTTLE k 0 1 60\r\n").await;
    timeout(PATIENCE, resp.0.read_u8()).await.unwrap().unwrap();
    let mut client = Client::connect(server.json).await;
    for status in [200, 429, 429] {
        assert_eq!(client.call("POST", "/json", "", ASK).await.status, status);
    }
    let call = r#"{"policy": "p: fixed-window 1/365d warn 1%", "subject": "alice"}"#;
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
                let limit = limits.iter().find(|row| row["limit"] == limit);
                let history =
                    limit.map_or(&[][..], |row| row["refused_history"].as_array().unwrap());
                history.iter().any(|rate| rate.as_f64().unwrap() > 0.0)
            };
            let is_asked = activity["stores"][0]["answers"] == true;
            if refused("d.a") && refused("p: fixed-window 1/365d warn 1%") && is_asked {
                break body;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    let body = timeout(PATIENCE, is_recorded).await.unwrap();
    assert!(!body.contains("alice"), "{body}");
    let activity: serde_json::Value = serde_json::from_str(&body).unwrap();
    let [warning] = &activity["warnings"].as_array().unwrap()[..] else { panic!("{body}") };
    assert_eq!(warning["limit"], "p: fixed-window 1/365d warn 1%");
    assert_eq!(
        (&warning["remaining"], &warning["subject"]),
        (&serde_json::json!(0), &serde_json::Value::Null)
    );
    for call in activity["slow_calls"].as_array().unwrap() {
        let limit = call["limit"].as_str().unwrap();
        let protocol = match limit {
            "d.a" => "envoy",
            _ if limit.starts_with("p: ") => "v1",
            _ => "resp",
        };
        assert_eq!(call["protocol"], protocol, "{call}");
    }
    let (status, body) = get(server.page, "/activity?sort=x").await;
    let expected = "sort is `x`; it must be limit, admitted, refused, shadow or minute\n";
    assert_eq!((status, &*body), (400, expected));
    let one = get(server.page, "/activity?name=D.A&rows=1").await.1;
    let one: serde_json::Value = serde_json::from_str(&one).unwrap();
    let limits = one["limits"].as_array().unwrap();
    assert!(limits.iter().all(|limit| limit["limit"] == "d.a") && limits.len() == 1, "{one}");
    assert_eq!(get(server.json, "/activity").await.0, 404);
    assert_eq!(get(server.page, "/metrics").await.0, 404);

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
        let url = format!("http://{}", server.page);
        let output = top(&[&url, "--name", "P: FIXED", "--sort", "limit", "--rows", "9"], "").await;
        let text = String::from_utf8(output.stdout).unwrap();
        let limits = text.split("SUBJECTS").next().unwrap();
        assert!(limits.contains("p: fixed-window") && !limits.contains("d.a"), "{text}");
        for wrong in [["--sort", "x"], ["--rows", "501"], ["--rows", "0"]] {
            assert_eq!(top(&[&*url, wrong[0], wrong[1]], "").await.status.code(), Some(2));
        }
    }
}

async fn top(arguments: &[&str], password: &str) -> std::process::Output {
    let mut program = program();
    program.arg("top").args(arguments).env("TIDEGATE_PAGE_PASSWORD", password);
    timeout(PATIENCE, program.output()).await.unwrap().unwrap()
}

#[tokio::test]
async fn the_page_of_other_machines_needs_a_password() {
    let mut open = start(|program| {
        program.args(["--page", "0.0.0.0:0"]);
    })
    .await;
    let address = SocketAddr::from(([127, 0, 0, 1], open.page.port()));
    assert_eq!(get(address, "/").await.0, 403);
    let open_to_all = start(|program| {
        settings(program.args(["--page", "0.0.0.0:0"]), "[page]\nwithout_password = true");
    })
    .await;
    let told = SocketAddr::from(([127, 0, 0, 1], open_to_all.page.port()));
    let guarded = start(|program| {
        program.env("TIDEGATE_PAGE_PASSWORD", "s3cret").args(["--page", "0.0.0.0:0"]);
        settings(program, "[page]\nuser = 'ops'");
    })
    .await;
    let closed = SocketAddr::from(([127, 0, 0, 1], guarded.page.port()));
    assert_eq!(get(told, "/").await.0, 200);
    assert_eq!(get(closed, "/").await.0, 401);
    {
        let url = format!("http://{closed}");
        assert!(!top(&[&url], "wrong").await.status.success());
        assert!(!top(&[&url], "s3cret").await.status.success());
        assert!(top(&[&url, "--user", "ops"], "s3cret").await.status.success());
        assert!(!top(&["--once", "http://127.0.0.1:1"], "").await.status.success());
    }
    open.child.start_kill().unwrap();
    let mut stderr = String::new();
    open.child.stderr.take().unwrap().read_to_string(&mut stderr).await.unwrap();
    assert!(stderr.contains("TIDEGATE_PAGE_PASSWORD"), "{stderr}");
    let _ = open.child.wait().await;
}

#[tokio::test]
async fn the_page_shows_both_stores_the_settings_and_subjects_if_it_may() {
    let server = start(|program| {
        // None is there.
        program.env("REDIS_SOCKET_TYPE", "tcp").env("REDIS_URL", "127.0.0.1:1");
        program.env("REDIS_PERSECOND", "true").env("REDIS_PERSECOND_SOCKET_TYPE", "tcp");
        program.env("REDIS_PERSECOND_URL", "127.0.0.1:2");
        program.env("TIDEGATE_ON_STORE_ERROR", "deny");
        settings(program, "[page]\nsubjects = true");
    })
    .await;
    let activity = async {
        loop {
            let (_, body) = get(server.page, "/activity").await;
            let activity: serde_json::Value = serde_json::from_str(&body).unwrap();
            let stores = activity["stores"].as_array().unwrap();
            if stores.iter().all(|store| store["answers"] == false) {
                break activity;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    let activity = timeout(PATIENCE, activity).await.unwrap();
    let roles: Vec<_> =
        activity["stores"].as_array().unwrap().iter().map(|store| &store["role"]).collect();
    assert_eq!(roles, ["store", "limits per second"]);
    assert_eq!(activity["on_store_error"], "deny");
    assert_eq!(activity["refused_subjects"]["are_shown"], true);
}

#[tokio::test]
async fn the_page_has_few_connections_and_ends_with_the_program() {
    let mut server = start(|program| {
        program.env("USE_PROMETHEUS", "true").env("PROMETHEUS_ADDR", "127.0.0.1:0");
    })
    .await;
    let get = "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
    let mut clients = Vec::new();
    for _ in 0..100 {
        let mut client = Client::connect(server.page).await;
        client.send(get).await;
        assert_eq!(client.answer().await.unwrap().status, 200);
        clients.push(client);
    }
    let mut refused = Client::connect(server.page).await;
    assert_eq!(refused.answer().await.map(|answer| answer.status), Some(503));
    #[cfg(unix)]
    {
        let id = server.child.id().unwrap().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().await.unwrap().success());
        let status = timeout(PATIENCE, server.child.wait()).await.unwrap().unwrap();
        assert_eq!(status.code(), Some(0));
    }
}

#[tokio::test]
async fn the_page_is_encrypted_by_settings_of_its_own() {
    use crate::tls::certificates::{Files, Root};

    let root = Root::new();
    let issued = root.issue("localhost");
    let files = Files::issued(&issued, &root.pem());
    let server = start(|program| {
        let path = |file| files.path(file).display().to_string();
        let (certificate, key, roots) = (path("tls.crt"), path("tls.key"), path("ca.crt"));
        let text = format!(
            "[page]\ntls_certificate = '{certificate}'\ntls_key = '{key}'\ntls_client_ca = '{roots}'"
        );
        settings(program, &text);
    })
    .await;
    assert_eq!(server.scheme, "https");
    {
        let (ip, name) = (
            format!("https://{}", server.page),
            format!("https://localhost:{}", server.page.port()),
        );
        let [ca, certificate, key] = ["ca.crt", "tls.crt", "tls.key"]
            .map(|file| files.path(file).to_str().unwrap().to_owned());
        let client = ["--tls-cert", &certificate, "--tls-key", &key];
        let trusted = [&["--tls-ca", &ca][..], &client].concat();
        let run = async |arguments: &[&str]| {
            let output = top(arguments, "").await;
            let text = [output.stdout, output.stderr].concat();
            (output.status.success(), String::from_utf8(text).unwrap())
        };
        let (is_ok, text) = run(&[&[&*name][..], &trusted].concat()).await;
        assert!(is_ok && text.contains("LIMITS"), "{text}");
        // The certificate contains the name `localhost`, and no IP address.
        let (is_ok, text) = run(&[&[&*ip][..], &trusted].concat()).await;
        assert!(!is_ok && text.contains("certificate"), "{text}");
        let san = [&[&*ip, "--tls-san", "localhost"][..], &trusted].concat();
        assert!(run(&san).await.0);
        // No root of the operating system has signed the server's certificate, so `--tls-ca` is
        // necessary. The page also requires a client certificate.
        for (arguments, why) in [
            (&[&[&*name][..], &client].concat()[..], "UnknownIssuer"),
            (&[&*name, "--tls-ca", &ca], ""),
            (&[&*name, "--tls-ca", "/nowhere.pem"], "/nowhere.pem"),
            (&[&*name, "--tls-ca", &key], "there is no certificate in it (PEM)"),
            (&[&*name, "--tls-cert", &certificate], "--tls-key <FILE>"),
            (&[&*name, "--tls-key", &key], "--tls-cert <FILE>"),
            (&["http://127.0.0.1:1", "--tls-ca", &ca], "have no effect without https://"),
        ] {
            let (is_ok, text) = run(arguments).await;
            assert!(!is_ok && text.contains(why), "{arguments:?}: {text}");
        }
    }
    let mut plain = Client::connect(server.page).await;
    plain.send("GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").await;
    let mut answer = Vec::new();
    // The server sends a TLS alert or resets the connection.
    let _ = timeout(PATIENCE, plain.0.read_to_end(&mut answer)).await.unwrap();
    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
}
