//! Starts the program as a separate process, and tests its limits in memory and on Redis.

mod client;

use std::process::Stdio;
use std::time::Instant;

use client::Client;
use tidegate_test_servers::Redis;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

/// Starts the program on a free port. The program ends when the returned `Child` is dropped.
async fn start(settings: &[(&str, &str)]) -> (Child, Client) {
    let mut program = Command::new(env!("CARGO_BIN_EXE_tidegate-example-axum"));
    program.env_remove("REDIS_URL").env("LISTEN", "127.0.0.1:0").envs(settings.iter().copied());
    let mut child = program.stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).await.unwrap();
    let address = line.trim().strip_prefix("http://").unwrap().parse().unwrap();
    (child, Client(address))
}

/// Sends 40 requests of a user whose limit is 1 request per second with a burst of 10. Returns the
/// number of admitted requests, and the maximum number that one shared limit admits in this time.
async fn admitted(clients: &[Client]) -> (u64, u64) {
    let start = Instant::now();
    let mut admitted = 0;
    for turn in 0..40 {
        let client = clients[turn % clients.len()];
        let response = client.get("/items", &[("Authorization", "Bearer bob")]).await;
        match response.status {
            200 => admitted += u64::from(response.body.contains("anchor")),
            status => assert_eq!(status, 429),
        }
    }
    (admitted, 10 + start.elapsed().as_secs() + 1)
}

#[tokio::test]
async fn in_memory_each_process_counts_by_itself() {
    let (_first, first) = start(&[]).await;
    let (_second, second) = start(&[]).await;
    for client in [first, second] {
        let (admitted, most) = admitted(&[client]).await;
        assert!((10..=most).contains(&admitted), "{admitted} of {most}");
    }
}

#[tokio::test]
async fn on_redis_two_processes_share_the_limits() {
    let redis = Redis::start().await.unwrap();
    let url = redis.url();
    let (_first, first) = start(&[("REDIS_URL", &url)]).await;
    let (_second, second) = start(&[("REDIS_URL", &url)]).await;
    let (admitted, most) = admitted(&[first, second]).await;
    assert!((10..=most).contains(&admitted), "{admitted} of {most}");
}

#[tokio::test]
async fn a_network_that_is_not_one_is_an_error_and_no_run() {
    let mut program = Command::new(env!("CARGO_BIN_EXE_tidegate-example-axum"));
    program.env_remove("REDIS_URL").env("TRUSTED_PROXIES", "10.0.0.0/33").kill_on_drop(true);
    let output = program.output().await.unwrap();
    assert!(!output.status.success());
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("TRUSTED_PROXIES: trusted proxy 1 is `10.0.0.0/33`"), "{error}");
}
