//! Tests the program with a debug port, as envoyproxy/ratelimit has, and with a deny cache.

use std::fs;
use std::net::SocketAddr;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::json::call;
use crate::program::program;

const LIMITS: &str = "domain: d\ndescriptors:\n\
    - {key: a, rate_limit: {unit: minute, requests_per_unit: 5}, descriptors: [\n\
        {key: b, value: \"x\\ny\", shadow_mode: true, rate_limit: {unit: day, requests_per_unit: 7}}]}\n\
    - {key: period, rate_limit: {period: 15m, requests_per_unit: 3}}\n\
    - {key: free, rate_limit: {unlimited: true}}\n\
    - {key: login, policy: sliding-log 5/15m block 15m}\n\
    - {key: year, rate_limit: {unit: year, requests_per_unit: 1}}\n";

/// Starts the program with a debug port. Returns the addresses of the JSON port and of the debug
/// port.
async fn start(program: &mut Command) -> (Child, SocketAddr, SocketAddr) {
    program.env("GRPC_HOST", "127.0.0.1").env("GRPC_PORT", "0").env("PORT", "0");
    program.env("DEBUG_PORT", "0").stderr(Stdio::inherit());
    let mut child = program.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut line = async || {
        let line = timeout(Duration::from_secs(60), lines.next_line()).await;
        line.unwrap().unwrap().unwrap()
    };
    let (first, second) = (line().await, line().await);
    let json = first.rsplit_once("http://").unwrap().1.parse().unwrap();
    let debug = second.strip_prefix("debug port on http://").unwrap().parse().unwrap();
    (child, json, debug)
}

#[tokio::test]
async fn the_debug_port_has_the_limits_and_the_metrics() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("a.yaml"), LIMITS).unwrap();
    let mut program = program();
    let (_child, _, debug) = start(program.arg("--config").arg(directory.path())).await;
    assert!(debug.ip().is_loopback());
    let limits = "d.a.b_x y: unit=DAY requests_per_unit=7, shadow_mode: true\n\
                  d.a: unit=MINUTE requests_per_unit=5, shadow_mode: false\n\
                  d.free: unlimited, shadow_mode: false\n\
                  d.login: policy=policy: sliding-log 5/15m block 15m, shadow_mode: false\n\
                  d.period: period=15m requests_per_unit=3, shadow_mode: false\n\
                  d.year: unit=YEAR requests_per_unit=1, shadow_mode: false\n";
    assert_eq!(call(debug, "GET", "/rlconfig", "").await, (200, limits.to_owned()));
    let (status, index) = call(debug, "GET", "/", "").await;
    assert_eq!(status, 200);
    for line in index.lines() {
        let path = line.split(':').next().unwrap();
        assert_eq!(call(debug, "GET", path, "").await.0, 200, "{path}");
    }
    assert!(index.contains("/rlconfig: ") && index.contains("/stats: "), "{index}");
    let (_, stats) = call(debug, "GET", "/stats", "").await;
    assert!(stats.contains("ratelimit_service_config_load_success 1\n"), "{stats}");
    for path in ["/debug/pprof/", "/debug/pprof/profile"] {
        let (status, why) = call(debug, "GET", path, "").await;
        assert!(status == 501 && why.contains("pprof"), "{path}: {why}");
    }
    assert_eq!(call(debug, "GET", "/json", "").await.0, 404);
    assert_eq!(call(debug, "POST", "/rlconfig", "").await.0, 405);
}

#[tokio::test]
async fn a_size_of_the_local_cache_turns_it_on() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("a.yaml"), LIMITS).unwrap();
    for (bytes, cached) in [("0", 0), ("1", 2), ("1000000", 2)] {
        let mut program = program();
        program.env("LOCAL_CACHE_SIZE_IN_BYTES", bytes).arg("--config").arg(directory.path());
        let (_child, json, debug) = start(&mut program).await;
        let ask = r#"{"domain": "d", "descriptors": [{"entries": [{"key": "year"}]}]}"#;
        for status in [200, 429, 429, 429] {
            assert_eq!(call(json, "POST", "/json", ask).await.0, status);
        }
        let (_, stats) = call(debug, "GET", "/stats", "").await;
        for (name, count) in [("over_limit", 3), ("over_limit_with_local_cache", cached)] {
            let line = format!(
                "ratelimit_service_rate_limit_{name}{{domain=\"d\",key1=\"year\"}} {count}\n"
            );
            assert!(stats.contains(&line), "{line}{stats}");
        }
    }
}

#[tokio::test]
#[cfg(unix)]
async fn b97_the_health_check_fails_while_the_program_drains() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("a.yaml"), LIMITS).unwrap();
    let mut program = program();
    program.env("TIDEGATE_DRAIN", "1h").arg("--config").arg(directory.path());
    let (child, json, _) = start(&mut program).await;
    assert_eq!(call(json, "GET", "/healthcheck", "").await, (200, "OK".to_owned()));
    let process = child.id().unwrap().to_string();
    assert!(Command::new("kill").arg(&process).status().await.unwrap().success());
    let draining = async {
        while call(json, "GET", "/healthcheck", "").await.0 != 500 {
            tokio::task::yield_now().await;
        }
    };
    timeout(Duration::from_secs(60), draining).await.unwrap();
    let ask = r#"{"domain": "d", "descriptors": [{"entries": [{"key": "free"}]}]}"#;
    assert_eq!(call(json, "POST", "/json", ask).await.0, 200);
}
