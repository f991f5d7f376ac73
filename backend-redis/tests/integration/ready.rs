//! The check at the start of a program: what it finds, and that it leaves nothing behind.
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
use tidegate_testkit::servers::{Redis, free_port};

/// The commands that the documentation asks for.
const RULES: &str = "~tidegate:* +evalsha +eval +time +get +mget +set +psetex +getrange +setrange \
                     +exists +pttl +pexpire +unlink +llen +lindex +lset +ltrim +rpush";

fn at(url: &str) -> RedisStoreBuilder {
    let patience = Duration::from_secs(10);
    RedisStore::builder().url(url).connect_timeout(patience).response_timeout(patience)
}

async fn error_of(builder: RedisStoreBuilder) -> (ErrorKind, String) {
    let error = builder.build().unwrap().ready().await.unwrap_err();
    (error.kind(), format!("{error:#}"))
}

#[tokio::test]
async fn a_server_that_serves_is_ready_and_keeps_nothing_of_it() {
    let redis = Redis::builder().user("limiter", "secret", RULES).start().await.unwrap();
    at(&redis.url()).build().unwrap().ready().await.unwrap();
    at(&redis.url()).script_free().build().unwrap().ready().await.unwrap();
    // With the least of permissions, which is not to ask for the version.
    at(&redis.url()).user("limiter", "secret").build().unwrap().ready().await.unwrap();
    assert_eq!(redis.command(&["DBSIZE"]).await.unwrap().text(), "0");
    let scripts = redis.info("number_of_cached_scripts").await.unwrap();
    assert_eq!(scripts, "7", "all scripts are there");
}

#[tokio::test]
async fn what_a_call_would_meet_is_found() {
    let redis = Redis::start().await.unwrap();
    let port = free_port().unwrap();
    let (kind, text) = error_of(at(&format!("redis://127.0.0.1:{port}"))).await;
    assert_eq!(kind, ErrorKind::Unavailable);
    assert!(text.contains(&format!("127.0.0.1:{port}")), "{text}");
    let (kind, _) = error_of(at(&redis.url()).user("limiter", "guess")).await;
    assert_eq!(kind, ErrorKind::Misconfigured);
    // Only a log that is kept as a list needs this.
    let missing = format!("{RULES} -rpush");
    let without = Redis::builder().user("limiter", "secret", &missing).start().await.unwrap();
    let (kind, text) = error_of(at(&without.url()).user("limiter", "secret")).await;
    assert_eq!(kind, ErrorKind::Misconfigured, "{text}");
    let replica = Redis::start().await.unwrap();
    replica.replica_of(&redis).await.unwrap();
    assert_eq!(error_of(at(&replica.url())).await.0, ErrorKind::ReadOnly);
    redis.command(&["CONFIG", "SET", "maxmemory", "1"]).await.unwrap();
    assert_eq!(error_of(at(&redis.url())).await.0, ErrorKind::OutOfMemory);
}

/// A server that says that it is of this version, whatever it is asked.
fn server_of_version(version: &'static str) -> String {
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
async fn a_server_that_is_too_old_is_told_with_its_version() {
    let (kind, text) = error_of(at(&server_of_version("5.0.14"))).await;
    assert_eq!(kind, ErrorKind::UnsupportedServer, "{text}");
    assert!(text.contains("is version 5.0; it must be at least 6.0"), "{text}");
    // This one is new enough, and answers nothing else.
    assert_ne!(error_of(at(&server_of_version("6.0.1"))).await.0, ErrorKind::UnsupportedServer);
}

#[tokio::test]
async fn stores_around_a_store_pass_the_question_on() {
    let redis = Redis::start().await.unwrap();
    let around = |store: RedisStore| {
        let store = store.timeout(Duration::from_nanos(1)).breaker(Breaker::new().failures(1));
        store.deny_cache(DenyCache::new()).or_fail_open().observed()
    };
    let store = around(at(&redis.url()).build().unwrap());
    store.ready().await.unwrap();
    redis.kill().await.unwrap();
    let error = store.ready().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "it is not hidden by failing open");
}

#[test]
fn outside_of_a_runtime_a_call_is_an_error_that_says_what_is_missing() {
    let store = RedisStore::new("redis://127.0.0.1:1").unwrap();
    let policy = policy("p: fixed-window 5/1h");
    let charges = [Charge::new(&policy, "s")];
    let call = Call::acquire(&charges);
    let calls = [call, call];
    let check = |error: tidegate_redis::Error| {
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(error.to_string().contains("within a Tokio runtime"), "{error}");
    };
    check(now(store.decide(call)).unwrap_err());
    check(now(store.now()).unwrap_err());
    check(now(store.ready()).unwrap_err());
    for answer in now(store.decide_many(&calls)) {
        check(answer.unwrap_err());
    }
    let script_free = RedisStore::builder().script_free().build().unwrap();
    check(now(script_free.decide(call)).unwrap_err());
    // A failure policy does not hide it.
    check(now(store.clone().or_fail_open().decide(call)).unwrap_err());
    let error = now(store.clone().timeout(Duration::from_secs(1)).decide(call)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    // A connection that a runtime has made changes nothing.
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (redis, connected) = runtime.block_on(async {
        let redis = Redis::start().await.unwrap();
        let store = RedisStore::new(&redis.url()).unwrap();
        assert!(store.decide(call).await.unwrap().is_allowed());
        (redis, store)
    });
    check(now(connected.decide(call)).unwrap_err());
    runtime.block_on(async move { drop(redis) });
}

/// The output of a future that has no need to wait.
fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("it waits"),
    }
}

#[tokio::test]
async fn a_server_that_says_nothing_is_not_waited_for_longer_than_a_call() {
    let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let url = format!("redis://{}", silent.local_addr().unwrap());
    let start = Instant::now();
    let soon = Duration::from_millis(200);
    assert_eq!(error_of(at(&url).connect_timeout(soon)).await.0, ErrorKind::Unavailable);
    assert!(start.elapsed() < Duration::from_secs(3));
}
