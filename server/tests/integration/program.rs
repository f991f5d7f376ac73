//! Tests the program: its command line, its environment and its end.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

use tidegate_test_servers::{Sentinel, eventually};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::http::client::Client;
use crate::json::call;

pub(crate) fn program() -> Command {
    let mut program = Command::new(env!("CARGO_BIN_EXE_tidegate-server"));
    program.env_clear().kill_on_drop(true).stdout(Stdio::piped()).stderr(Stdio::piped());
    program
}

/// Writes a settings file with `text`, and adds its path to the arguments.
pub(crate) fn settings(program: &mut Command, text: &str) {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let path = folder.join(format!("settings-{:x}.toml", hasher.finish()));
    // The file is replaced atomically, because another test may write it at the same time.
    let mut file = tempfile::NamedTempFile::new_in(folder).unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file.persist(&path).unwrap();
    program.arg("--settings").arg(path);
}

async fn run(arguments: &[&str]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = program().args(arguments).output().await.unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

/// Starts the program. Returns the process and the address of the JSON port.
pub(crate) async fn serving(mut program: Command) -> (Child, SocketAddr) {
    program.env("GRPC_HOST", "127.0.0.1").env("GRPC_PORT", "0").env("PORT", "0");
    let mut child = program.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let line = timeout(Duration::from_secs(60), lines.next_line()).await.unwrap().unwrap();
    let Some(line) = line else {
        let output = child.wait_with_output().await.unwrap();
        panic!("{}", String::from_utf8_lossy(&output.stderr));
    };
    let address = line.rsplit_once("http://").unwrap().1.parse().unwrap();
    (child, address)
}

const LIMIT: &str = "domain: d\ndescriptors: [{key: a, policy: fixed-window 1/365d}]";
const ASK: &str = r#"{"domain": "d", "descriptors": [{"entries": [{"key": "a"}]}]}"#;

#[tokio::test]
async fn check_reads_a_directory_as_the_server_would() {
    let directory = tempfile::tempdir().unwrap();
    let (path, file) = (directory.path().to_str().unwrap(), directory.path().join("a.yaml"));
    fs::write(&file, "domain: d\ndescriptors: [{key: a, unit: day, policy: gcra 1/s}]").unwrap();
    let (code, stdout, stderr) = run(&["check", path]).await;
    assert_eq!((code, &*stdout), (Some(0), "1 limits in 1 domains\n"));
    let place = format!("{}:2:24", file.display());
    assert_eq!(stderr, format!("warning: {place}: the key 'unit' has no effect here\n"));

    fs::write(directory.path().join("b.yaml"), LIMIT).unwrap();
    let (code, _, stderr) = run(&["check", path]).await;
    assert_eq!(code, Some(1));
    assert!(stderr.ends_with("b.yaml:1:9: duplicate domain 'd' in config file\n"), "{stderr}");
    let (code, _, stderr) = run(&["check", "--merge-domains", path]).await;
    assert_eq!(code, Some(1));
    assert!(stderr.contains("duplicate descriptor composite key 'd.a'"), "{stderr}");
    assert_eq!(run(&["check", "/nowhere"]).await.0, Some(1));
    // The subcommand `check` ignores variables that only the server reads, such as `SHADOW_MODE`
    // and `PORT`.
    let mut program = program();
    let check = program.args(["check", path]).env("SHADOW_MODE", "true").env("PORT", "80");
    let output = check.env("MERGE_DOMAIN_CONFIG", "1").output().await.unwrap();
    assert_eq!(String::from_utf8(output.stderr).unwrap(), stderr);
    assert_eq!(run(&["chek"]).await.0, Some(2));
}

#[tokio::test]
async fn the_health_can_depend_on_a_domain() {
    for (needs_domain, without) in [("true", 500), ("false", 200)] {
        let directory = tempfile::tempdir().unwrap();
        let mut program = program();
        program.args(["--config", directory.path().to_str().unwrap()]);
        program.env("HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED", needs_domain);
        let (_child, address) = serving(program).await;
        let file = directory.path().join("a.yaml");
        for (text, expected) in [("", without), (LIMIT, 200), ("", without)] {
            match text {
                "" => drop(fs::remove_file(&file)),
                text => fs::write(&file, text).unwrap(),
            }
            let health = async || {
                let (status, ..) = call(address, "GET", "/healthcheck", "").await;
                (status == expected).then_some(())
            };
            eventually(Duration::from_secs(30), "the health", health).await.unwrap();
        }
    }
}

#[tokio::test]
async fn what_cannot_be_served_is_said_at_the_start() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("a.yaml"), LIMIT).unwrap();
    for (variable, value, why) in [
        ("CONFIG_TYPE", "XDS", "CONFIG_TYPE is `XDS`; it must be one of file, grpc_xds_sotw"),
        ("TIDEGATE_STORE", "http://:S3CRET@a", "it is not the URL of a store"),
        ("TIDEGATE_STORE", "memory:", "it is not `memory`: the URL `memory:` cannot be used"),
        ("REDIS_URL", "a:b", "a:b"),
        ("PROMETHEUS_ADDR", "9090", "PROMETHEUS_ADDR is `9090`; it must be HOST:PORT"),
        ("HOST", "256.0.0.1", "cannot listen on 256.0.0.1:0 (PORT)"),
        ("RUNTIME_ROOT", "/nowhere", "/nowhere/config: the directory cannot be read"),
    ] {
        let mut program = program();
        if variable != "RUNTIME_ROOT" {
            program.arg("--config").arg(directory.path());
        }
        program.env("GRPC_HOST", "127.0.0.1").env("GRPC_PORT", "0").env("PORT", "0");
        program.env("REDIS_SOCKET_TYPE", "tcp").env("USE_PROMETHEUS", "true");
        program.env("PROMETHEUS_ADDR", "127.0.0.1:0").env(variable, value);
        let output = timeout(Duration::from_secs(60), program.output()).await.unwrap().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        let code = if why.contains("; it must be ") { 2 } else { 1 };
        assert_eq!(output.status.code(), Some(code), "{variable}: {stderr}");
        assert!(stderr.contains(why) && !stderr.contains("S3CRET"), "{variable}: {stderr}");
    }
}

#[tokio::test]
async fn metrics_have_a_port_of_their_own_where_it_is_set() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("a.yaml"), LIMIT).unwrap();
    let mut program = program();
    program.arg("--config").arg(directory.path());
    program.env("GRPC_HOST", "127.0.0.1").env("GRPC_PORT", "0").env("PORT", "0");
    program.env("USE_PROMETHEUS", "true").env("PROMETHEUS_ADDR", "127.0.0.1:0");
    program.env("PROMETHEUS_PATH", "/{stats}");
    let mut child = program.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut line = async || {
        let line = timeout(Duration::from_secs(60), lines.next_line()).await;
        line.unwrap().unwrap().unwrap()
    };
    let (first, second) = (line().await, line().await);
    let json = first.rsplit_once("http://").unwrap().1.parse().unwrap();
    let metrics = second.strip_prefix("metrics on http://").unwrap().parse().unwrap();

    assert_eq!(call(json, "POST", "/json", ASK).await.0, 200);
    for (address, path) in [(metrics, "/{stats}"), (json, "/metrics")] {
        let (status, body) = call(address, "GET", path, "").await;
        assert_eq!(status, 200);
        assert!(body.contains("ratelimit_service_rate_limit_total_hits"), "{body}");
    }
    for path in ["/", "/metrics", "/json", "/config", "/{stats}/", "/{stats}x"] {
        assert_eq!(call(metrics, "GET", path, "").await.0, 404, "{path}");
    }
}

#[tokio::test]
#[cfg(unix)]
async fn it_serves_reloads_and_ends_when_it_is_told_to() {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("ratelimit/config");
    fs::create_dir_all(&directory).unwrap();
    fs::write(directory.join("a.yaml"), LIMIT).unwrap();
    let mut program = program();
    // As in envoyproxy/ratelimit, these two variables select the directory of the limits.
    program.env("RUNTIME_ROOT", root.path()).env("RUNTIME_SUBDIRECTORY", "ratelimit");
    let (mut child, address) = serving(program).await;

    assert_eq!(call(address, "GET", "/healthcheck", "").await.0, 200);
    assert_eq!(call(address, "POST", "/json", ASK).await.0, 200);
    assert_eq!(call(address, "POST", "/json", ASK).await.0, 429);
    let metrics = call(address, "GET", "/metrics", "").await.1;
    assert!(
        metrics.contains("ratelimit_service_rate_limit_over_limit{domain=\"d\",key1=\"a\"} 1"),
        "{metrics}"
    );
    assert!(metrics.contains("tidegate_"), "the store's own: {metrics}");

    fs::write(directory.join("a.yaml"), LIMIT.replace("1/365d", "2/365d")).unwrap();
    let reloaded = async {
        while call(address, "POST", "/json", ASK).await.0 == 429 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(Duration::from_secs(60), reloaded).await.unwrap();

    let id = child.id().unwrap().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().await.unwrap().success());
    let status = timeout(Duration::from_secs(60), child.wait()).await.unwrap().unwrap();
    assert_eq!(status.code(), Some(0));
}

async fn resp_address(lines: &mut (impl AsyncBufReadExt + Unpin)) -> SocketAddr {
    let mut line = String::new();
    loop {
        line.clear();
        let read = timeout(Duration::from_secs(60), lines.read_line(&mut line)).await.unwrap();
        assert!(read.unwrap() > 0, "the program has ended");
        if let Some(address) = line.trim_end().strip_prefix("RESP on ") {
            return address.parse().unwrap();
        }
    }
}

#[tokio::test]
async fn resp_is_served_with_the_settings_of_the_environment() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("a.yaml"), LIMIT).unwrap();
    let mut program = program();
    program.arg("--config").arg(directory.path());
    program.env("GRPC_HOST", "127.0.0.1").env("GRPC_PORT", "0").env("PORT", "0");
    program.args(["--resp", "0.0.0.0:0"]).env("TIDEGATE_RESP_PASSWORD", "S3CRET");
    // `usize::MAX` means that the number of connections is not limited.
    let max = usize::MAX;
    let text = format!("[resp]\nuser = 'app'\nmax_connections = {max}\nidle_timeout = '1h'");
    settings(&mut program, &text);
    let mut child = program.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let port = resp_address(&mut lines).await.port();
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let commands = "PING\r\nAUTH S3CRET\r\nAUTH app S3CRET\r\nCL.THROTTLE k 0 1 60\r\nQUIT\r\n";
    stream.write_all(commands.as_bytes()).await.unwrap();
    let mut answer = String::new();
    timeout(Duration::from_secs(60), stream.read_to_string(&mut answer)).await.unwrap().unwrap();
    let replies: Vec<&str> = answer.lines().collect();
    let wrong = "-WRONGPASS invalid username-password pair or user is disabled.";
    let expected = [
        "-NOAUTH Authentication required.",
        wrong,
        "+OK",
        "*5",
        ":0",
        ":1",
        ":0",
        ":-1",
        ":60",
        "+OK",
    ];
    assert_eq!(replies, expected);
}

#[tokio::test]
async fn resp_for_other_machines_needs_a_password_or_to_be_told_that_it_needs_none() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("a.yaml"), LIMIT).unwrap();
    let at = |host: &str, without_password: bool| {
        let mut program = program();
        program.arg("--config").arg(directory.path());
        program.env("GRPC_HOST", "127.0.0.1").env("GRPC_PORT", "0").env("PORT", "0");
        program.arg("--resp").arg(format!("{host}:0"));
        // An empty password counts as not set.
        program.env("TIDEGATE_RESP_PASSWORD", "");
        settings(&mut program, &format!("[resp]\nwithout_password = {without_password}"));
        program
    };
    let output = at("0.0.0.0", false).output();
    let output = timeout(Duration::from_secs(60), output).await.unwrap().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("needs a password (TIDEGATE_RESP_PASSWORD"), "{stderr}");
    for (host, value) in [("127.0.0.1", false), ("0.0.0.0", true)] {
        let mut child = at(host, value).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        assert_eq!(resp_address(&mut lines).await.ip().to_string(), host);
    }
}

#[tokio::test]
async fn sentinels_of_both_stores_get_a_login_of_their_own() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("a.yaml"), LIMIT).unwrap();
    let group = Sentinel::start().await.unwrap();
    for sentinel in group.sentinels() {
        for (user, password) in [("first", ">f1rst"), ("second", ">s3cond")] {
            let set = ["ACL", "SETUSER", user, "on", password, "~*", "&*", "+@all"];
            sentinel.command(&set).await.unwrap();
        }
        sentinel.command(&["ACL", "SETUSER", "default", "off"]).await.unwrap();
    }
    let hosts: Vec<String> =
        group.sentinel_urls().iter().map(|url| url.replace("redis://", "")).collect();
    let url = format!("{},{}", group.master_name(), hosts.join(","));
    let not_ready = ["the store is not ready", "the store of limits per second is not ready"];
    for (auths, is_ready) in [
        (["first:f1rst", "second:s3cond"], [true, true]),
        (["first:f1rst", "second:wrong"], [true, false]),
        (["first:wrong", "second:s3cond"], [false, true]),
    ] {
        let mut program = program();
        program.arg("--config").arg(directory.path());
        program.env("REDIS_PERSECOND", "true").env("PORT", "0");
        // The program opens its stores, and then ends with an error, because it cannot listen on
        // this invalid address.
        program.env("GRPC_HOST", "256.0.0.1").env("GRPC_PORT", "0");
        for (store, auth) in ["REDIS", "REDIS_PERSECOND"].into_iter().zip(auths) {
            program.env(format!("{store}_TYPE"), "SENTINEL").env(format!("{store}_URL"), &url);
            program.env(format!("{store}_SOCKET_TYPE"), "tcp");
            program.env(format!("{store}_SENTINEL_AUTH"), auth);
        }
        let output = timeout(Duration::from_secs(60), program.output()).await.unwrap().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(stderr.contains("cannot listen"), "{stderr}");
        assert_eq!(not_ready.map(|text| !stderr.contains(text)), is_ready, "{stderr}");
        assert!(!stderr.contains("f1rst") && !stderr.contains("s3cond"), "{stderr}");
    }
}

async fn post(address: SocketAddr, fields: &str) -> u16 {
    let fields = format!("Content-Type: application/json\r\n{fields}");
    let body = r#"{"policy": "gcra 1/s", "subject": "a"}"#;
    Client::connect(address).await.call("POST", "/v1/peek", &fields, body).await.status
}

/// Connects until the server serves the connection. The server allows one connection, and may still
/// count the previous one.
async fn connected(address: SocketAddr) -> Client {
    let connect = async {
        loop {
            let mut client = Client::connect(address).await;
            client.send("GET /healthcheck HTTP/1.1\r\n\r\n").await;
            if client.answer().await.is_some_and(|answer| answer.status == 200) {
                break client;
            }
        }
    };
    timeout(Duration::from_secs(60), connect).await.unwrap()
}

#[tokio::test]
async fn http_is_served_with_the_settings_of_the_environment() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("a.yaml"), LIMIT).unwrap();
    let serve = |variables: &[(&str, &str)], text: &str| {
        let mut program = program();
        program.arg("--config").arg(directory.path()).envs(variables.iter().copied());
        settings(&mut program, text);
        serving(program)
    };
    let local = |address: SocketAddr| SocketAddr::from(([127, 0, 0, 1], address.port()));
    let (_child, address) = serve(&[], "").await;
    assert_eq!(post(address, "").await, 200);

    let text = "[http]\nuser = 'app'\nmax_connections = 1\nidle_timeout = '1h'\nrequest_timeout = '1m'\n\
                max_head_bytes = 1000\nmax_headers = 9\nmax_body_bytes = 60";
    let variables = [("HOST", "0.0.0.0"), ("TIDEGATE_HTTP_PASSWORD", "S3CRET")];
    let (_child, address) = serve(&variables, text).await;
    let address = local(address);
    assert_eq!(post(address, "").await, 401);
    // The routes for Envoy and for health checks need no login.
    let mut client = connected(address).await;
    let login = "Content-Type: application/json\r\nAuthorization: Basic YXBwOlMzQ1JFVA==\r\n";
    let body = r#"{"policy": "gcra 1/s", "subject": "a"}"#;
    assert_eq!(client.call("POST", "/v1/peek", login, body).await.status, 200);
    let refused = Client::connect(address).await.answer().await;
    assert_eq!(refused.map(|answer| answer.status), Some(503));
    assert_eq!(client.call("POST", "/json", "", &" ".repeat(61)).await.status, 413);
    drop(client);
    for fields in ["A: b\r\n".repeat(8), format!("A: {}\r\n", "x".repeat(1_000))] {
        let mut client = connected(address).await;
        assert_eq!(client.call("GET", "/config", &fields, "").await.status, 431);
    }

    // Without a password, other machines may use the routes for Envoy, but not the routes of `/v1`.
    let (_child, address) = serve(&[("HOST", "0.0.0.0"), ("TIDEGATE_HTTP_PASSWORD", "")], "").await;
    assert_eq!(post(local(address), "").await, 403);
    assert_eq!(call(local(address), "POST", "/json", ASK).await.0, 200);
    let text = "[http]\nwithout_password = true";
    let (_child, address) = serve(&[("HOST", "0.0.0.0")], text).await;
    assert_eq!(post(local(address), "").await, 200);
}
