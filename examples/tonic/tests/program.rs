//! Starts the program as a separate process, and tests its limits in memory and on Redis.

use std::process::Stdio;
use std::time::Instant;

use tidegate_test_servers::Redis;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tonic::Code;
use tonic::transport::Channel;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

/// Starts the program on a free port. The program ends when the returned `Child` is dropped.
async fn start(settings: &[(&str, &str)]) -> (Child, HealthClient<Channel>) {
    let mut program = Command::new(env!("CARGO_BIN_EXE_tidegate-example-tonic"));
    program.env_remove("REDIS_URL").env("LISTEN", "127.0.0.1:0").envs(settings.iter().copied());
    let mut child = program.stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).await.unwrap();
    let channel = Channel::from_shared(line.trim().to_owned()).unwrap();
    (child, HealthClient::new(channel.connect().await.unwrap()))
}

/// Opens 10 streams. The limit is 1 stream per second with a burst of 2. Returns the number of
/// admitted streams, and the maximum number that one shared limit admits in this time.
async fn admitted(clients: &mut [HealthClient<Channel>]) -> (u64, u64) {
    let start = Instant::now();
    let mut admitted = 0;
    for turn in 0..10 {
        let client = &mut clients[turn % 2];
        match client.watch(HealthCheckRequest { service: "shop".to_owned() }).await {
            Ok(_) => admitted += 1,
            Err(status) => assert_eq!(status.code(), Code::ResourceExhausted),
        }
    }
    (admitted, 2 + start.elapsed().as_secs() + 1)
}

#[tokio::test]
async fn in_memory_each_process_counts_by_itself() {
    let (_first, first) = start(&[]).await;
    let (_second, second) = start(&[]).await;
    assert!(admitted(&mut [first, second]).await.0 >= 4);
}

#[tokio::test]
async fn on_redis_two_processes_share_the_limits() {
    let redis = Redis::start().await.unwrap();
    let url = redis.url();
    let (_first, first) = start(&[("REDIS_URL", &url)]).await;
    let (_second, second) = start(&[("REDIS_URL", &url)]).await;
    let (admitted, most) = admitted(&mut [first, second]).await;
    assert!((2..=most).contains(&admitted), "{admitted} of {most}");
}
