//! Tests in which a server is stopped, killed, paused and restarted. After a server is dropped, no
//! process and no file of the server remains.
#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "helper functions of tests fail by panicking, like tests")]

use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::time::Duration;

use tidegate_test_servers::{Data, Redis, Reply, eventually};

const SOON: Duration = Duration::from_secs(10);

fn is_alive(pid: u32) -> bool {
    let status = std::process::Command::new("sh")
        .args(["-c", "kill -0 \"$0\" 2>/dev/null", &pid.to_string()])
        .status();
    status.unwrap().success()
}

fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}

async fn get(redis: &Redis, key: &str) -> Reply {
    redis.command(&["GET", key]).await.unwrap()
}

#[tokio::test]
async fn a_dropped_server_leaves_nothing_behind() {
    let redis = Redis::start().await.unwrap();
    let (pid, port, socket) = (redis.pid().unwrap(), redis.port(), redis.socket_path());
    assert!(is_alive(pid) && !is_free(port) && socket.exists());
    drop(redis);
    assert!(!is_alive(pid));
    assert!(is_free(port));
    assert!(!socket.parent().unwrap().exists());
}

#[tokio::test]
async fn a_paused_server_is_dropped_too() {
    let redis = Redis::start().await.unwrap();
    redis.pause().await.unwrap();
    let pid = redis.pid().unwrap();
    drop(redis);
    assert!(!is_alive(pid));
}

#[test]
fn a_server_outlives_the_thread_and_the_runtime_that_started_it() {
    let block_on = |future| {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
    };
    let thread = std::thread::spawn(move || block_on(Redis::start()).unwrap());
    let redis = thread.join().unwrap();
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(async { assert_eq!(get(&redis, "absent").await, Reply::Nil) });
}

#[tokio::test]
async fn a_panic_keeps_the_log_and_ends_the_server() {
    let redis = Redis::start().await.unwrap();
    let (pid, dir) = (redis.pid().unwrap(), redis.socket_path().parent().unwrap().to_owned());
    let failed = tokio::spawn(async move {
        assert_eq!(get(&redis, "key").await.text(), "expected", "a test that fails");
    });
    assert!(failed.await.unwrap_err().is_panic());
    assert!(!is_alive(pid));
    let log = std::fs::read_to_string(dir.join("server.log")).unwrap();
    assert!(log.contains("Ready to accept connections"), "{log}");
    std::fs::remove_dir_all(dir).unwrap();
}

#[tokio::test]
async fn a_stopped_server_restarts_on_its_port() {
    let redis = Redis::start().await.unwrap();
    let (pid, port) = (redis.pid().unwrap(), redis.port());
    redis.stop().await.unwrap();
    assert!(!is_alive(pid) && is_free(port) && redis.pid().is_none());
    assert!(redis.log().contains("ready to exit"), "{}", redis.log());
    assert!(redis.command(&["PING"]).await.is_err());
    redis.stop().await.unwrap();

    redis.restart(Data::Lost).await.unwrap();
    assert_eq!(redis.port(), port);
    assert_ne!(redis.pid(), Some(pid));
    assert_eq!(redis.command(&["PING"]).await.unwrap().text(), "PONG");
}

#[tokio::test]
async fn a_killed_server_does_not_shut_down_cleanly() {
    let redis = Redis::start().await.unwrap();
    let pid = redis.pid().unwrap();
    redis.kill().await.unwrap();
    assert!(!is_alive(pid) && is_free(redis.port()));
    assert!(!redis.log().contains("ready to exit"), "{}", redis.log());
}

#[tokio::test]
async fn a_server_that_ends_by_itself_is_noticed() {
    let redis = Redis::start().await.unwrap();
    // The server closes the connection without a reply.
    assert!(redis.command(&["SHUTDOWN", "NOSAVE"]).await.is_err());
    eventually(SOON, "the server to end", async || redis.pid().is_none().then_some(()))
        .await
        .unwrap();
}

#[tokio::test]
async fn a_restart_keeps_or_loses_the_data_as_requested() {
    let redis = Redis::start().await.unwrap();
    redis.command(&["SET", "key", "value"]).await.unwrap();
    redis.restart(Data::Kept).await.unwrap();
    assert_eq!(get(&redis, "key").await.text(), "value");
    redis.pause().await.unwrap();
    redis.restart(Data::Kept).await.unwrap();
    assert_eq!(get(&redis, "key").await.text(), "value");
    redis.restart(Data::Lost).await.unwrap();
    assert_eq!(get(&redis, "key").await, Reply::Nil);
}

#[tokio::test]
async fn a_crash_keeps_the_data_on_the_disk() {
    let settings = [("appendonly", "yes"), ("appendfsync", "always")];
    let builder = settings
        .iter()
        .fold(Redis::builder(), |builder, (name, value)| builder.config(name, value));
    let redis = builder.start().await.unwrap();
    redis.command(&["SET", "key", "value"]).await.unwrap();
    redis.kill().await.unwrap();
    redis.restart(Data::Kept).await.unwrap();
    assert_eq!(get(&redis, "key").await.text(), "value");
    redis.restart(Data::Lost).await.unwrap();
    assert_eq!(get(&redis, "key").await, Reply::Nil);
}

#[tokio::test]
async fn a_paused_server_answers_after_it_is_resumed() {
    let redis = Redis::start().await.unwrap();
    let mut client = redis.client().await.unwrap();
    redis.pause().await.unwrap();
    let mut call = Box::pin(client.call(&["INCR", "key"]));
    let early = tokio::time::timeout(Duration::from_millis(200), &mut call).await;
    assert!(early.is_err(), "a paused server has answered: {early:?}");
    redis.resume().await.unwrap();
    assert_eq!(call.await.unwrap(), Reply::Integer(1));
}

#[tokio::test]
async fn a_paused_server_can_be_stopped() {
    let redis = Redis::start().await.unwrap();
    redis.pause().await.unwrap();
    redis.stop().await.unwrap();
    assert!(redis.log().contains("ready to exit"), "{}", redis.log());
}

#[tokio::test]
async fn a_server_that_has_ended_cannot_be_paused() {
    let redis = Redis::start().await.unwrap();
    redis.kill().await.unwrap();
    for error in [redis.pause().await.unwrap_err(), redis.resume().await.unwrap_err()] {
        assert_eq!(error.to_string(), "the server does not run");
    }
}

#[tokio::test]
async fn a_restart_waits_for_its_port() {
    let redis = Redis::start().await.unwrap();
    redis.kill().await.unwrap();
    let intruder = TcpListener::bind((Ipv4Addr::LOCALHOST, redis.port())).unwrap();
    let restart = redis.restart(Data::Lost);
    let release_port = async {
        let refused = || redis.log().contains("Address already in use").then_some(());
        eventually(SOON, "the server to find its port in use", async || refused()).await.unwrap();
        drop(intruder);
    };
    let (restarted, ()) = tokio::join!(restart, release_port);
    restarted.unwrap();
    assert_eq!(redis.command(&["PING"]).await.unwrap().text(), "PONG");
}

/// Runs a server until the standard input ends, in a separate process that the next test starts.
#[tokio::test]
#[ignore = "run by a_server_ends_with_the_process_that_started_it"]
async fn hold_a_server() {
    let redis = Redis::start().await.unwrap();
    println!("\nserver {} {}", redis.pid().unwrap(), redis.socket_path().display());
    std::io::read_to_string(std::io::stdin()).unwrap();
}

/// Checks that the servers of a killed test process end, although a killed process runs no
/// destructors.
#[tokio::test]
async fn a_server_ends_with_the_process_that_started_it() {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "lifecycle::hold_a_server", "--ignored", "--nocapture"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let line = lines.find_map(|line| line.strip_prefix("server ").map(str::to_owned)).unwrap();
    let (pid, socket) = line.split_once(' ').unwrap();
    let (pid, dir) = (pid.parse().unwrap(), Path::new(socket).parent().unwrap());
    assert!(is_alive(pid) && dir.exists());

    child.kill().unwrap();
    child.wait().unwrap();
    let is_gone = async || (!is_alive(pid) && !dir.exists()).then_some(());
    eventually(SOON, "the server to end and its directory to be removed", is_gone).await.unwrap();
}
