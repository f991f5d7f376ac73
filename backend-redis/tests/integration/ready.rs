//! Tests the readiness check that a program makes when it starts. The check finds the problems that
//! calls would have, and stores nothing.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a helper of a test that fails panics, as the test does"
)]

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use crate::common::policy;
use tidegate_redis::{
    Breaker, Call, Charge, DenyCache, ErrorKind, RedisStore, RedisStoreBuilder, Store, StoreExt,
};
use tidegate_test_servers::{Redis, free_port};

/// The documented minimum of commands that a user needs.
const RULES: &str = "~tidegate:* +evalsha +eval +time +get +mget +set +psetex +getrange +setrange \
                     +exists +pttl +pexpire +unlink +llen +lindex +lset +ltrim +rpush";

fn builder(url: &str) -> RedisStoreBuilder {
    let patience = Duration::from_secs(10);
    RedisStore::builder().url(url).connect_timeout(patience).response_timeout(patience)
}

async fn ready_error(builder: RedisStoreBuilder) -> (ErrorKind, String) {
    let error = builder.build().unwrap().ready().await.unwrap_err();
    (error.kind(), format!("{error:#}"))
}

#[tokio::test]
async fn a_working_server_is_ready_and_the_check_stores_nothing() {
    let redis = Redis::builder().user("limiter", "secret", RULES).start().await.unwrap();
    builder(&redis.url()).build().unwrap().ready().await.unwrap();
    builder(&redis.url()).script_free().build().unwrap().ready().await.unwrap();
    // A user with the minimum permissions is not allowed to query the version.
    builder(&redis.url()).user("limiter", "secret").build().unwrap().ready().await.unwrap();
    assert_eq!(redis.command(&["DBSIZE"]).await.unwrap().text(), "0");
    let scripts = redis.info("number_of_cached_scripts").await.unwrap();
    assert_eq!(scripts, "7", "all scripts must be loaded");
}

#[tokio::test]
async fn the_check_finds_the_errors_that_calls_would_return() {
    let redis = Redis::start().await.unwrap();
    let port = free_port().unwrap();
    let (kind, text) = ready_error(builder(&format!("redis://127.0.0.1:{port}"))).await;
    assert_eq!(kind, ErrorKind::Unavailable);
    assert!(text.contains(&format!("127.0.0.1:{port}")), "{text}");
    let (kind, _) = ready_error(builder(&redis.url()).user("limiter", "guess")).await;
    assert_eq!(kind, ErrorKind::Misconfigured);
    // Only a log that is stored as a list needs `RPUSH`.
    let missing = format!("{RULES} -rpush");
    let without = Redis::builder().user("limiter", "secret", &missing).start().await.unwrap();
    let (kind, text) = ready_error(builder(&without.url()).user("limiter", "secret")).await;
    assert_eq!(kind, ErrorKind::Misconfigured, "{text}");
    let replica = Redis::start().await.unwrap();
    replica.replica_of(&redis).await.unwrap();
    assert_eq!(ready_error(builder(&replica.url())).await.0, ErrorKind::ReadOnly);
    redis.command(&["CONFIG", "SET", "maxmemory", "1"]).await.unwrap();
    assert_eq!(ready_error(builder(&redis.url())).await.0, ErrorKind::OutOfMemory);
}

/// Starts a server that replies to any command with the version `version`. Returns the URL of the
/// server.
fn server_with_version(version: &'static str) -> String {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    thread_per_connection(listener, version);
    url
}

fn thread_per_connection(listener: TcpListener, version: &'static str) {
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(b"+OK\r\n+OK\r\n");
            let _ = stream.read(&mut [0; 4096]);
            let info = format!("# Server\r\nredis_version:{version}\r\n");
            let _ = stream.write_all(format!("${}\r\n{info}\r\n", info.len()).as_bytes());
        }
    });
}

#[tokio::test]
async fn a_server_that_is_too_old_is_an_error_with_its_version() {
    let (kind, text) = ready_error(builder(&server_with_version("5.0.14"))).await;
    assert_eq!(kind, ErrorKind::UnsupportedServer, "{text}");
    assert!(text.contains("is version 5.0; it must be at least 6.0"), "{text}");
    // The check accepts this version of the server, and then fails because the server replies to no
    // script call.
    assert_ne!(
        ready_error(builder(&server_with_version("6.0.1"))).await.0,
        ErrorKind::UnsupportedServer
    );
}

#[tokio::test]
async fn layers_forward_the_check_to_their_store() {
    let redis = Redis::start().await.unwrap();
    let around = |store: RedisStore| {
        let store = store.timeout(Duration::from_nanos(1)).breaker(Breaker::new().failures(1));
        store.deny_cache(DenyCache::new()).or_fail_open().observed()
    };
    let store = around(builder(&redis.url()).build().unwrap());
    store.ready().await.unwrap();
    redis.kill().await.unwrap();
    let error = store.ready().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "failing open does not hide the error");
}

#[test]
fn a_call_outside_of_a_runtime_is_an_error_that_names_the_runtime() {
    let store = RedisStore::new("redis://127.0.0.1:1").unwrap();
    let policy = policy("p: fixed-window 5/1h");
    let charges = [Charge::new(&policy, "s")];
    let call = Call::acquire(&charges);
    let calls = [call, call];
    let check = |error: tidegate_redis::Error| {
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(error.to_string().contains("within a Tokio runtime"), "{error}");
    };
    check(ready_output(store.decide(call)).unwrap_err());
    check(ready_output(store.now()).unwrap_err());
    check(ready_output(store.ready()).unwrap_err());
    for answer in ready_output(store.decide_many(&calls)) {
        check(answer.unwrap_err());
    }
    let script_free = RedisStore::builder().script_free().build().unwrap();
    check(ready_output(script_free.decide(call)).unwrap_err());
    // A store that fails open must also return the error about the runtime.
    check(ready_output(store.clone().or_fail_open().decide(call)).unwrap_err());
    let error =
        ready_output(store.clone().timeout(Duration::from_secs(1)).decide(call)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    // The call also fails if its store has an open connection on another runtime.
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (redis, connected) = runtime.block_on(async {
        let redis = Redis::start().await.unwrap();
        let store = RedisStore::new(&redis.url()).unwrap();
        assert!(store.decide(call).await.unwrap().is_allowed());
        (redis, store)
    });
    check(ready_output(connected.decide(call)).unwrap_err());
    runtime.block_on(async move { drop(redis) });
}

/// Returns the output of a future that is ready immediately.
fn ready_output<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("the future is pending"),
    }
}

#[tokio::test]
async fn the_check_of_a_silent_server_ends_after_the_timeout_of_a_call() {
    let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let url = format!("redis://{}", silent.local_addr().unwrap());
    let start = Instant::now();
    let soon = Duration::from_millis(200);
    assert_eq!(ready_error(builder(&url).connect_timeout(soon)).await.0, ErrorKind::Unavailable);
    assert!(start.elapsed() < Duration::from_secs(3));
}
