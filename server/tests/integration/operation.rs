//! Tests situations that an operator meets: errors in the environment, signals and outages.

use std::collections::HashMap;
use std::fs;
use std::net::SocketAddr;
use std::process::{Output, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use tidegate_test_servers::{Data, Redis};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::TcpStream;
use tokio::process::{Child, ChildStderr, ChildStdout, Command};
use tokio::time::timeout;

use crate::http::client::Client;
use crate::json::call;
use crate::program::{program, serving, settings};

const LIMIT: &str = "domain: d\ndescriptors: [{key: a, policy: fixed-window 1000/365d}]";
const ASK: &str = r#"{"domain": "d", "descriptors": [{"entries": [{"key": "a"}]}]}"#;
const LONG: Duration = Duration::from_secs(60);

fn directory() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("a.yaml"), LIMIT).unwrap();
    directory
}

/// Returns the command of the program, with the limits in `directory` and free ports.
fn at(directory: &TempDir) -> Command {
    let mut program = program();
    program.arg("--config").arg(directory.path());
    program.env("GRPC_HOST", "127.0.0.1").env("GRPC_PORT", "0").env("PORT", "0");
    program
}

/// Runs the program until it fails. Returns the exit code and standard error.
async fn failure(mut program: Command) -> (Option<i32>, String) {
    let Output { status, stderr, .. } = timeout(LONG, program.output()).await.unwrap().unwrap();
    (status.code(), String::from_utf8(stderr).unwrap())
}

#[tokio::test]
async fn a_value_that_is_not_possible_is_an_error_that_names_its_variable() {
    let directory = directory();
    let maximum = "it must be a whole number from 1 to ";
    for (variable, value, why) in [
        // If the server read `flase` as true, all limits would be shadows and refuse nothing.
        ("SHADOW_MODE", "flase", "it must be true or false"),
        ("REDIS_TLS", "2", "it must be true or false"),
        ("XDS_CLIENT_BACKOFF_JITTER", "maybe", "it must be true or false"),
        ("GRPC_PORT", "99999", "it must be a port from 0 to 65535"),
        ("REDIS_TIMEOUT", "1.5s", "it must be a span of time from 1us to 71 years, such as 250ms"),
        ("NEAR_LIMIT_RATIO", "2", "it must be a number from 0 to 1"),
        ("TIDEGATE_DRAIN", "5", "it must be 0s, or a span of time"),
        ("TIDEGATE_ON_STORE_ERROR", "alow", "it must be error, allow, deny, or share"),
        ("LOG_LEVEL", "loud", "it must be one of panic, fatal, error, warn, warning, info"),
    ] {
        let mut program = at(&directory);
        program.env(variable, value);
        let (code, stderr) = failure(program).await;
        assert_eq!(code, Some(2), "{variable}: {stderr}");
        let expected = format!("tidegate-server: {variable} is `{value}`; {why}");
        assert!(stderr.starts_with(&expected), "{variable}: {stderr}");
    }
    for (setting, value, why) in [
        // With a maximum of 0 connections, the server would serve nothing. So 0 is an error, and
        // does not mean that there is no maximum.
        ("grpc.max_connections", "0", maximum),
        ("resp.max_connections", "\"many\"", maximum),
        ("http.max_connections", "-1", maximum),
        ("http.max_head_bytes", "511", "it must be a whole number from 512 to "),
        ("http.max_body_bytes", "\"1M\"", maximum),
        ("http.max_headers", "0", "it must be a whole number from 1 to 65535"),
    ] {
        let mut program = at(&directory);
        let (section, name) = setting.split_once('.').unwrap();
        settings(&mut program, &format!("[{section}]\n{name} = {value}"));
        let (code, stderr) = failure(program).await;
        assert_eq!(code, Some(2), "{setting}: {stderr}");
        let column = name.len() + 4;
        let value = value.trim_matches('"');
        let expected = format!(".toml:2:{column}: {setting} is `{value}`; {why}");
        assert!(stderr.contains(&expected), "{setting}: {stderr}");
    }
    // The subcommand `check` also reports an invalid variable that it reads. An error about
    // `--grpc` names this argument, although `GRPC_HOST` and `GRPC_PORT` are set too.
    let mut check = program();
    check.arg("check").arg(directory.path()).env("MERGE_DOMAIN_CONFIG", "x");
    let (code, stderr) = failure(check).await;
    assert_eq!(code, Some(2));
    assert!(stderr.contains("MERGE_DOMAIN_CONFIG is `x`; it must be true or false"), "{stderr}");
    let mut program = at(&directory);
    program.args(["--grpc", "127.0.0.1:99999"]);
    let (code, stderr) = failure(program).await;
    assert_eq!(code, Some(2));
    let expected = "tidegate-server: --grpc is `127.0.0.1:99999`; it must be HOST:PORT";
    assert!(stderr.starts_with(expected), "{stderr}");
}

#[tokio::test]
async fn what_the_server_cannot_do_is_refused() {
    let directory = directory();
    for (variable, value, why) in [
        ("GRPC_UDS", "/run/a.sock", "GRPC_UDS is `/run/a.sock`; gRPC listens on GRPC_HOST and"),
        (
            "BACKEND_TYPE",
            "memcache",
            "BACKEND_TYPE is `memcache`; it must be redis, or TIDEGATE_STORE",
        ),
        ("REDIS_PERSECOND", "true", "REDIS_PERSECOND needs REDIS_PERSECOND_URL, which is not set"),
        (
            "REDIS_URL",
            "S3CRET@redis:6379",
            "REDIS_SOCKET_TYPE must be tcp, and its default is unix",
        ),
        (
            "PROMETHEUS_PATH",
            "metrics",
            "PROMETHEUS_PATH is `metrics`; it must be a path that begins with `/`",
        ),
        ("HOST", "[::zz]", "cannot listen on [::zz]:0 (PORT)"),
    ] {
        let mut program = at(&directory);
        program.env("USE_PROMETHEUS", "true").env("PROMETHEUS_ADDR", "127.0.0.1:0");
        program.env(variable, value);
        let (code, stderr) = failure(program).await;
        assert_eq!(
            code,
            Some(if variable == "PROMETHEUS_PATH" { 2 } else { 1 }),
            "{variable}: {stderr}"
        );
        assert!(stderr.contains(why) && !stderr.contains("S3CRET"), "{variable}: {stderr}");
    }
}

#[tokio::test]
async fn a_variable_that_is_empty_is_not_set() {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("a.yaml"), LIMIT).unwrap();
    let mut program = program();
    for variable in [
        "BACKEND_TYPE",
        "GRPC_MAX_CONNECTION_AGE",
        "GRPC_UDS",
        "HOST",
        "NEAR_LIMIT_RATIO",
        "PROMETHEUS_ADDR",
        "REDIS_TIMEOUT",
        "REDIS_TYPE",
        "SHADOW_MODE",
        "TIDEGATE_DRAIN",
        "TIDEGATE_HTTP_PASSWORD",
        "TIDEGATE_ON_STORE_ERROR",
        "TIDEGATE_SETTINGS",
        "TIDEGATE_STORE",
    ] {
        program.env(variable, "");
    }
    // If `RUNTIME_APPDIRECTORY` is empty, the files of limits are directly in `RUNTIME_ROOT`.
    program.env("RUNTIME_ROOT", root.path()).env("RUNTIME_APPDIRECTORY", "");
    let (_child, address) = serving(program).await;
    assert!(address.ip().is_loopback());
    assert_eq!(call(address, "POST", "/json", ASK).await.0, 200);
}

#[tokio::test]
async fn an_address_may_stand_in_brackets_and_times_are_histograms() {
    let directory = directory();
    let mut program = at(&directory);
    program.env("HOST", "[127.0.0.1]");
    let (_child, address) = serving(program).await;
    assert_eq!(call(address, "POST", "/json", ASK).await.0, 200);
    let metrics = call(address, "GET", "/metrics", "").await.1;
    for (name, labels) in [
        ("tidegate_store_seconds", "operation=\"acquire\""),
        ("ratelimit_service_response_time_seconds", "grpc_method=\"ShouldRateLimit\""),
    ] {
        let last = format!("{name}_bucket{{{labels},le=\"+Inf\"}} 1\n");
        assert!(metrics.contains(&last), "{last}{metrics}");
    }
}

/// Returns the kind and the labels of each metric in `docs/metrics.md`, and `true` if it is a
/// metric of the server and not of the libraries.
fn documented_metrics() -> HashMap<&'static str, (&'static str, Vec<&'static str>, bool)> {
    let mut is_of_server = false;
    let rows = include_str!("../../../docs/metrics.md").lines().filter_map(|line| {
        is_of_server |= line == "## Metrics of tidegate-server";
        let mut cells = line.strip_prefix("| `")?.split(" | ");
        let (name, kind, labels) = (cells.next()?, cells.next()?, cells.next()?);
        let labels = labels.split(", ").map(|label| label.trim_matches(['`', ' ']));
        let labels = labels.filter(|label| !label.is_empty()).collect();
        ["counter", "gauge", "histogram"]
            .contains(&kind)
            .then_some((name.trim_end_matches('`'), (kind, labels, is_of_server)))
    });
    rows.collect()
}

#[tokio::test]
async fn the_metrics_are_those_of_the_table_and_the_process_and_the_build_are_among_them() {
    let directory = directory();
    let mut program = at(&directory);
    program.args(["--resp", "127.0.0.1:0", "--page", "127.0.0.1:0"]);
    let (child, address) = serving(program).await;
    assert_eq!(call(address, "POST", "/json", ASK).await.0, 200);
    let documented = documented_metrics();
    let required = documented.iter().filter_map(|(name, (.., is_of_server))| {
        // The tests of these settings check that their metrics exist.
        let needs_setting =
            ["tidegate_server_tls_", "tidegate_server_xds_", "tidegate_server_limit_set_"];
        let is_optional = needs_setting.iter().any(|prefix| name.starts_with(prefix));
        let is_elsewhere = name.starts_with("process_") && !cfg!(target_os = "linux");
        (*is_of_server && !is_optional && !is_elsewhere).then(|| format!("# TYPE {name} "))
    });
    let mut missing: Vec<String> = required.collect();
    let mut metrics = String::new();
    // The JSON port answers before the other ports are ready and have their metrics.
    let complete = timeout(LONG, async {
        while !missing.is_empty() {
            metrics = call(address, "GET", "/metrics", "").await.1;
            missing.retain(|start| !metrics.contains(start));
        }
    });
    assert!(complete.await.is_ok(), "the server has no {missing:?}: {metrics}");

    let types = metrics.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let kinds: HashMap<&str, &str> = types.collect();
    for (name, kind) in &kinds {
        let row =
            documented.get(name).unwrap_or_else(|| panic!("{name} is not in docs/metrics.md"));
        assert_eq!(row.0, *kind, "{name}");
        for line in metrics.lines().filter(|line| line.starts_with(&format!("{name}{{"))) {
            let labels = line.split_once('{').unwrap().1.split_once('}').unwrap().0;
            for label in labels.split("\",").map(|label| label.split_once('=').unwrap().0) {
                assert!(row.1.contains(&label), "{line}: {label} is not in docs/metrics.md");
            }
        }
    }
    let value = |series: &str| -> f64 {
        let parse = |line: &str| line.strip_prefix(series)?.trim().parse().ok();
        metrics.lines().find_map(parse).unwrap_or_else(|| panic!("{series}{metrics}"))
    };
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(value(&format!("tidegate_build_info{{version=\"{version}\"}}")), 1.0);
    assert_eq!(value("tidegate_server_config_last_load_success"), 1.0);
    if cfg!(target_os = "linux") {
        assert!(value("process_resident_memory_bytes") > 1e6);
        assert!(value("process_open_fds") < value("process_max_fds"));
        assert!(value("process_start_time_seconds") > 1e9);
    }
    drop(child);
}

#[tokio::test]
#[cfg(unix)]
async fn connections_fit_the_limit_of_open_files_and_only_a_setting_that_does_not_is_a_warning() {
    let directory = directory();
    let limited = |files: u32| {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("ulimit -n {files}; exec \"$0\" --config \"$@\"")]);
        shell.env_clear().arg(env!("CARGO_BIN_EXE_tidegate-server")).arg(directory.path());
        shell.stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        shell
    };
    let said = async |mut child: Child| {
        child.kill().await.unwrap();
        let mut stderr = String::new();
        child.stderr.take().unwrap().read_to_string(&mut stderr).await.unwrap();
        stderr
    };
    // The program may open 620 files, and reserves 400. gRPC and HTTP each get half of the others,
    // so each may have 110 connections.
    let (child, address) = serving(limited(620)).await;
    let mut clients = Vec::new();
    for _ in 0..110 {
        let mut client = Client::connect(address).await;
        assert_eq!(client.call("POST", "/json", "", ASK).await.status, 200);
        clients.push(client);
    }
    let refused = Client::connect(address).await.answer().await;
    assert_eq!(refused.map(|answer| answer.status), Some(503));
    let stderr = said(child).await;
    assert!(!stderr.contains("WARN"), "{stderr}");

    let mut program = limited(620);
    settings(&mut program, "[http]\nmax_connections = 5000");
    let (child, _) = serving(program).await;
    let stderr = said(child).await;
    let warning = " WARN the limit of open files is 620; it must be at least 5500 for the maximum numbers of \
        connections: raise it (ulimit -n, LimitNOFILE), or lower http.max_connections (5000)\n";
    assert!(stderr.contains(warning), "{stderr}");
}

#[tokio::test]
#[cfg(unix)]
async fn three_signals_end_it() {
    let directory = directory();
    for signal in ["-TERM", "-INT", "-HUP"] {
        let (mut child, address) = serving(at(&directory)).await;
        // The answer shows that the program has started and waits for signals.
        assert_eq!(call(address, "POST", "/json", ASK).await.0, 200);
        let id = child.id().unwrap().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().await.unwrap().success());
        let status = timeout(LONG, child.wait()).await.unwrap().unwrap();
        assert_eq!(status.code(), Some(0), "{signal}");
    }
}

#[tokio::test]
#[cfg(unix)]
async fn a_signal_ends_it_while_it_waits_for_the_store() {
    let (directory, redis) = (directory(), Redis::start().await.unwrap());
    redis.pause().await.unwrap();
    let mut program = at(&directory);
    program.env("TIDEGATE_STORE", redis.url()).env("REDIS_TIMEOUT", "1h");
    let mut child = program.spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    line(&mut lines, "the store is redis://").await;
    let id = child.id().unwrap().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().await.unwrap().success());
    let output = timeout(LONG, child.wait_with_output()).await.unwrap().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(output.stdout.is_empty(), "it listens before it ends");
}

/// Reads lines until one contains `text`, and returns this line.
async fn line(lines: &mut Lines<BufReader<ChildStderr>>, text: &str) -> String {
    let find = async {
        loop {
            let line = lines.next_line().await.unwrap().unwrap();
            if line.contains(text) {
                break line;
            }
        }
    };
    timeout(LONG, find).await.unwrap()
}

#[tokio::test]
async fn an_outage_of_the_store_is_written_once_and_so_is_its_end() {
    let (directory, redis) = (directory(), Redis::start().await.unwrap());
    let mut program = at(&directory);
    program.env("TIDEGATE_STORE", redis.url()).env("REDIS_TIMEOUT", "1s");
    let (mut child, address) = serving(program).await;
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(line(&mut lines, "the store is ").await.ends_with(&redis.url()));
    assert_eq!(call(address, "POST", "/json", ASK).await.0, 200);

    redis.kill().await.unwrap();
    let ask = async || {
        loop {
            call(address, "POST", "/json", ASK).await;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let outage = tokio::select! {
        line = line(&mut lines, " ERROR ") => line,
        _ = ask() => unreachable!(),
    };
    let beginning =
        " ERROR the store has failed several times in a row, and is not called for a while: ";
    assert!(outage.contains(beginning) && outage.contains("cannot connect"), "{outage}");
    redis.restart(Data::Lost).await.unwrap();
    let end = tokio::select! {
        line = line(&mut lines, " INFO the store is ") => line,
        _ = ask() => unreachable!(),
    };
    assert!(end.ends_with("  INFO the store is called again"), "{end}");
}

/// Reads the addresses of gRPC and RESP that the program prints.
async fn addresses(lines: &mut Lines<BufReader<ChildStdout>>) -> [SocketAddr; 2] {
    let mut line = async || timeout(LONG, lines.next_line()).await.unwrap().unwrap().unwrap();
    let (grpc, resp) = (line().await, line().await);
    let grpc = grpc.strip_prefix("gRPC on ").unwrap().split_once(',').unwrap().0;
    [grpc.parse().unwrap(), resp.strip_prefix("RESP on ").unwrap().parse().unwrap()]
}

#[tokio::test]
async fn clients_that_are_slow_lose_their_connection_after_the_times_that_are_set() {
    let directory = directory();
    let mut program = at(&directory);
    let text = "[grpc]\nbegin_timeout = '100ms'\n[resp]\nrequest_timeout = '100ms'";
    settings(program.args(["--resp", "127.0.0.1:0"]).stdout(Stdio::piped()), text);
    let mut child = program.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let [grpc, resp] = addresses(&mut lines).await;
    for (address, beginning) in [(grpc, "PRI * HTTP/2"), (resp, "*1\r\n$4\r\nPI")] {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(beginning.as_bytes()).await.unwrap();
        let mut rest = Vec::new();
        // The settings file sets the timeout of both connections to 100 ms. The default of 30 s
        // would be too long for this test.
        let read = timeout(Duration::from_secs(20), stream.read_to_end(&mut rest)).await;
        assert!(read.is_ok(), "{beginning}");
    }
}

#[tokio::test]
#[cfg(target_os = "linux")]
async fn limits_are_followed_while_nothing_can_be_written_to_the_log() {
    let (directory, other) = (directory(), directory());
    let file = directory.path().join("a.yaml");
    let full = || fs::File::create("/dev/full").unwrap();
    let mut program = program();
    program.arg("--config").arg(directory.path()).stderr(full());
    // This program cannot even print its addresses, and must still serve.
    let mut mute = at(&other);
    let mut mute = mute.stdout(full()).stderr(full()).spawn().unwrap();
    let (_child, address) = serving(program).await;
    assert_eq!(call(address, "POST", "/json", ASK).await.0, 200);
    let until = async |path: &str, text: &str| {
        let is_so = async {
            while !call(address, "GET", path, "").await.1.contains(text) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(LONG, is_so).await.unwrap();
    };
    fs::write(&file, "domain: [").unwrap();
    until("/metrics", "\nratelimit_service_config_load_error 1\n").await;
    until("/metrics", "\ntidegate_server_config_last_load_success 0\n").await;
    fs::write(&file, LIMIT.replace("1000", "2000")).unwrap();
    until("/config", "2000").await;
    until("/metrics", "\ntidegate_server_config_last_load_success 1\n").await;
    assert_eq!(mute.try_wait().unwrap(), None);
}

#[tokio::test]
async fn a_subject_of_envoy_is_reset_by_the_call_that_the_guide_shows() {
    let directory = tempfile::tempdir().unwrap();
    let limits = "domain: shop\ndescriptors: [{key: path, value: /login, descriptors: \
        [{key: account, policy: sliding-log 5/15m block 15m}]}]";
    fs::write(directory.path().join("a.yaml"), limits).unwrap();
    let (_child, address) = serving(at(&directory)).await;
    let login = r#"{"domain": "shop", "descriptors": [{"entries":
        [{"key": "path", "value": "/login"}, {"key": "account", "value": "alice"}]}]}"#;
    while call(address, "POST", "/json", login).await.0 == 200 {}
    let guide = include_str!("../../../docs/guide/operation.md");
    let (_, command) = guide.split_once("/json/reset -H").unwrap();
    let body = command.split_once("-d '").and_then(|(_, rest)| rest.split_once('\''));
    let mut client = Client::connect(address).await;
    let fields = "Content-Type: application/json\r\n";
    let answer = client.call("POST", "/json/reset", fields, body.unwrap().0).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert_eq!(call(address, "POST", "/json", login).await.0, 200);
}
