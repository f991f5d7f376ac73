//! Tests that a lost connection is replaced within a bound, regardless of the behavior of the
//! callers. A lost connection must not cause a call to be charged twice.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a helper of a test that fails panics, as the test does"
)]

mod certificates;
mod ledger;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use certificates::Certificates;
use ledger::{Ledger, Load, decided, drop_after};
use tidegate_memory::MemoryStore;
use tidegate_redis::core::layers::CircuitState;
use tidegate_redis::{
    Breaker, DenyCache, ErrorKind, RedisStore, RedisStoreBuilder, Share, Store, StoreExt,
};
use tidegate_test_servers::{Data, End, Mode, Proxy, Redis, Sentinel, eventually};
use tokio::runtime::Runtime;

const RESPONSE: Duration = Duration::from_millis(500);

/// The time for which the circuit of a breaker stays open.
const OPEN: Duration = Duration::from_secs(1);

/// The maximum time of a recovery, in addition to the response timeout or the time of an open
/// circuit.
const MORE: Duration = Duration::from_millis(200);

/// The delay that a busy machine is allowed to add.
const BUSY: Duration = Duration::from_secs(1);

/// The number of working connections that the store is allowed to replace, because a busy machine
/// makes a connection seem silent.
const STALLS: u64 = 3;

const FIFTY: Duration = Duration::from_millis(50);

async fn redis_and_proxy() -> (Redis, Proxy) {
    let redis = Redis::start().await.unwrap();
    let proxy = Proxy::start(redis.port()).await.unwrap();
    (redis, proxy)
}

fn builder(proxy: &Proxy) -> RedisStoreBuilder {
    RedisStore::builder().url(proxy.url())
}

/// Builds a store with long timeouts, because the machine is possibly busy and the test does not
/// depend on timeouts.
fn patient(builder: RedisStoreBuilder) -> RedisStore {
    let patience = Duration::from_secs(20);
    builder.connect_timeout(patience).response_timeout(patience).build().unwrap()
}

/// Checks that a connection that becomes silent is replaced within the bound, if new connections
/// work.
async fn check_replaced_within<S: Store + Send + Sync + 'static>(
    bound: Duration,
    compose: impl FnOnce(RedisStoreBuilder) -> S,
) {
    let (redis, proxy) = redis_and_proxy().await;
    let ledger = Ledger::new(&redis.url());
    let store = Arc::new(compose(builder(&proxy)));
    decided(&ledger, &store).await;
    proxy.cut(End::Hang);
    let silent = Instant::now();
    let load = Load::start(&ledger, &store, 8, None);
    let took = load.first_decision(silent).await;
    println!("decided again after {took:?}, {bound:?} are allowed");
    assert!(took < bound + BUSY, "{took:?} instead of {bound:?}");
    tokio::time::sleep(RESPONSE + MORE).await;
    load.stop().await;
    decided(&ledger, &store).await;
    let connections = proxy.counts().connections;
    assert!((2..=2 + STALLS).contains(&connections), "{connections} instead of 2");
    ledger.check().await;
}

#[tokio::test]
async fn b57_a_silent_connection_is_replaced() {
    check_replaced_within(RESPONSE + MORE, |builder| builder.build().unwrap()).await;
}

#[tokio::test]
async fn b57_a_silent_connection_is_replaced_sooner_if_answers_are_expected_sooner() {
    let compose = |builder: RedisStoreBuilder| builder.response_timeout(FIFTY).build().unwrap();
    check_replaced_within(FIFTY + MORE, compose).await;
}

#[tokio::test]
async fn b57_a_silent_connection_is_replaced_under_a_timeout() {
    check_replaced_within(RESPONSE + MORE, |builder| builder.build().unwrap().timeout(FIFTY)).await;
}

#[tokio::test]
async fn b57_a_silent_connection_is_replaced_under_a_timeout_and_a_breaker() {
    check_replaced_within(OPEN + MORE, |builder| {
        builder.build().unwrap().timeout(FIFTY).breaker(Breaker::new())
    })
    .await;
}

#[tokio::test]
async fn b57_a_silent_connection_is_replaced_under_all_layers() {
    check_replaced_within(OPEN + MORE, |builder| {
        let store = builder.build().unwrap().timeout(FIFTY).breaker(Breaker::new());
        let store = store.deny_cache(DenyCache::new());
        store.or_fall_back_to(MemoryStore::new(), Share::new(1, 3).unwrap()).observed()
    })
    .await;
}

#[tokio::test]
async fn a_server_slower_than_its_callers_keeps_its_connection() {
    let (redis, proxy) = redis_and_proxy().await;
    let ledger = Ledger::new(&redis.url());
    let store = Arc::new(builder(&proxy).build().unwrap().timeout(FIFTY));
    decided(&ledger, &store).await;
    let slow = Mode::Delay { requests: Duration::ZERO, answers: Duration::from_millis(150) };
    proxy.set(slow).await.unwrap();
    let load = Load::start(&ledger, &store, 8, None);
    tokio::time::sleep(6 * RESPONSE).await;
    load.stop().await;
    proxy.set(Mode::Pass).await.unwrap();
    decided(&ledger, &store).await;
    assert!(proxy.counts().connections <= 1 + STALLS);
    ledger.check().await;
}

#[tokio::test]
async fn b56_a_connection_that_takes_longer_than_its_callers_wait_is_established() {
    const SETUP: Duration = Duration::from_millis(200);
    for (callers, timeout, patience) in
        [(64, OPEN, Duration::from_millis(5)), (64, FIFTY, OPEN), (1, FIFTY, OPEN)]
    {
        let (redis, proxy) = redis_and_proxy().await;
        proxy.set(Mode::DelayFirstAnswer(SETUP)).await.unwrap();
        let ledger = Ledger::new(&redis.url());
        let store = Arc::new(builder(&proxy).build().unwrap().timeout(timeout));
        let start = Instant::now();
        let load = Load::start(&ledger, &store, callers, Some(patience));
        let is_made = async || (proxy.counts().commands > 2).then_some(());
        eventually(Duration::from_secs(10), "the connection", is_made).await.unwrap();
        let took = start.elapsed();
        load.stop().await;
        println!("{callers} callers: made after {took:?}");
        assert!(took < 2 * SETUP + BUSY, "{took:?}");
        decided(&ledger, &store).await;
        assert!(proxy.counts().connections <= 1 + STALLS);
        ledger.check().await;
    }
}

/// Starts a server that accepts connections and never replies. Returns its URL and the number of
/// its connections.
fn mute_server() -> (String, Arc<AtomicU64>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    let connections = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&connections);
    std::thread::spawn(move || {
        let mut open = vec![];
        while let Ok((stream, _)) = listener.accept() {
            count.fetch_add(1, Ordering::SeqCst);
            open.push(stream);
        }
    });
    (url, connections)
}

#[tokio::test]
async fn b56_a_server_that_never_answers_gets_few_connection_attempts() {
    let span = Duration::from_secs(6);
    let attempts = async |connect_timeout, patience| {
        let (url, connections) = mute_server();
        let builder = RedisStore::builder().url(&url).connect_timeout(connect_timeout);
        let ledger = Ledger::new(&url);
        let store = Arc::new(builder.build().unwrap());
        let load = Load::start(&ledger, &store, 64, Some(patience));
        tokio::time::sleep(span).await;
        load.stop().await;
        connections.load(Ordering::SeqCst)
    };
    let (usual, short, refused) = tokio::join!(
        attempts(Duration::from_secs(1), Duration::from_millis(5)),
        attempts(FIFTY, FIFTY),
        attempts(Duration::from_millis(1), Duration::from_secs(1)),
    );
    println!("{usual}, {short} and {refused} attempts in {span:?}");
    for attempts in [usual, short, refused] {
        assert!((3..=20).contains(&attempts), "{attempts} attempts");
    }
}

/// Checks that a paused Sentinel delays neither the first connection nor a failover.
async fn check_paused_sentinel_delays_nothing(index: usize) {
    let group = Sentinel::start().await.unwrap();
    let builder = RedisStore::builder().sentinel(group.sentinel_urls(), group.master_name());
    // The timeout is so long that an attempt to connect that began before the promotion is still
    // running after the promotion.
    let builder = builder.connect_timeout(Duration::from_secs(20));
    let primary = group.primary().await.unwrap();
    group.sentinels()[index].pause().await.unwrap();
    let ledger = Ledger::new(&primary.url());
    let store = Arc::new(builder.build().unwrap());
    let start = Instant::now();
    ledger.call(&*store).await;
    assert_eq!(ledger.failures_since(start), []);
    assert!(start.elapsed() < Duration::from_secs(1) + BUSY);
    println!("connected after {:?}", start.elapsed());
    // The test now pauses the primary too. This simulates the failure of a machine that runs the
    // primary and the Sentinel.
    let old = primary.port();
    primary.pause().await.unwrap();
    let load = Load::start(&ledger, &store, 8, None);
    let new = group.primary_after(old).await.unwrap();
    let promoted = Instant::now();
    let took = load.first_decision(promoted).await;
    println!("decided again {took:?} after the promotion");
    assert!(took < Duration::from_secs(1) + BUSY, "{took:?}");
    tokio::time::sleep(MORE).await;
    load.stop().await;
    let new = group.nodes().iter().find(|node| node.port() == new).unwrap();
    ledger.check_at(&new.url(), promoted).await;
}

#[tokio::test]
async fn b58_the_first_sentinel_may_be_paused() {
    check_paused_sentinel_delays_nothing(0).await;
}

#[tokio::test]
async fn b58_the_second_sentinel_may_be_paused() {
    check_paused_sentinel_delays_nothing(1).await;
}

#[tokio::test]
async fn b58_the_third_sentinel_may_be_paused() {
    check_paused_sentinel_delays_nothing(2).await;
}

/// Starts a fake Sentinel that always reports the server at the port `named` as the primary.
/// Returns the URL of the fake Sentinel.
fn stale_sentinel(named: u16) -> String {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    let named = named.to_string();
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(b"+OK\r\n+OK\r\n");
            let _ = stream.read(&mut [0; 4096]);
            let address = format!("*2\r\n$9\r\n127.0.0.1\r\n${}\r\n{named}\r\n", named.len());
            let _ = stream.write_all(address.as_bytes());
        }
    });
    url
}

#[tokio::test]
async fn a_replica_that_a_stale_sentinel_names_is_not_used() {
    let group = Sentinel::start().await.unwrap();
    let primary = group.primary().await.unwrap();
    let replica = group.nodes().iter().find(|node| node.port() != primary.port()).unwrap();
    let stale = stale_sentinel(replica.port());
    let urls = [stale].into_iter().chain(group.sentinel_urls());
    let store = RedisStore::builder().sentinel(urls, group.master_name()).build().unwrap();
    let ledger = Ledger::new(&primary.url());
    ledger.call(&store).await;
    assert_eq!(ledger.failures_since(ledger.start()), []);
    ledger.check().await;
}

#[tokio::test]
async fn a_user_without_permission_to_query_the_role_trusts_the_sentinel() {
    let rules = "~tidegate:* +evalsha +eval +time +get +mget +set +psetex +pttl +pexpire";
    let node = Redis::builder().user("limiter", "secret", rules);
    let group = Sentinel::builder().node(node).start().await.unwrap();
    let builder = RedisStore::builder().sentinel(group.sentinel_urls(), group.master_name());
    let store = builder.user("limiter", "secret").build().unwrap();
    let ledger = Ledger::new(&group.primary().await.unwrap().url());
    ledger.call(&store).await;
    assert_eq!(ledger.failures_since(ledger.start()), []);
    ledger.check().await;
}

#[tokio::test]
async fn a_sentinel_without_the_group_and_a_server_that_is_not_a_sentinel_are_skipped() {
    let group = Sentinel::start().await.unwrap();
    let (redis, other) = (Redis::start().await.unwrap(), Sentinel::builder().master_name("other"));
    let other = other.start().await.unwrap();
    let urls = [redis.url(), other.sentinel_urls().remove(0)];
    let urls = urls.into_iter().chain([group.sentinel_urls().remove(2)]);
    let store = RedisStore::builder().sentinel(urls, group.master_name()).build().unwrap();
    let ledger = Ledger::new(&group.primary().await.unwrap().url());
    ledger.call(&store).await;
    ledger.check().await;
    assert_eq!(ledger.failures_since(ledger.start()), []);
    let store = RedisStore::builder().sentinel(other.sentinel_urls(), group.master_name());
    let start = Instant::now();
    ledger.call(&store.build().unwrap()).await;
    assert_eq!(ledger.failures_since(start), [ErrorKind::Unavailable]);
    assert!(start.elapsed() < BUSY, "the error needs no timeout");
}

/// Checks that no call fails because connections were closed while they were idle.
async fn check_no_call_fails_after_idle_close(connections: usize, close: impl AsyncFn(&Redis)) {
    let redis = Redis::start().await.unwrap();
    let ledger = Ledger::new(&redis.url());
    let builder = RedisStore::builder().url(redis.url()).connections(connections);
    let store = patient(builder).breaker(Breaker::new());
    for _ in 0..3 {
        for _ in 0..2 * connections {
            ledger.call(&store).await;
        }
        close(&redis).await;
    }
    for _ in 0..2 * connections {
        ledger.call(&store).await;
    }
    assert_eq!(ledger.failures_since(ledger.start()), []);
    assert_eq!(store.state(), CircuitState::Closed);
    assert_eq!(store.watch().times_opened(), 0);
    ledger.check().await;
}

#[tokio::test]
async fn b62_connections_that_were_killed_while_idle_fail_no_call() {
    for connections in [1, 4, 8] {
        check_no_call_fails_after_idle_close(connections, async |redis| {
            redis.command(&["CLIENT", "KILL", "TYPE", "normal"]).await.unwrap();
        })
        .await;
    }
}

/// The runtime is not polled between the end of the connection and the next call, so the store
/// cannot notice the end before the call.
#[tokio::test]
async fn b62_connections_that_were_killed_without_notice_fail_no_call() {
    check_no_call_fails_after_idle_close(4, async |redis| {
        std::thread::scope(|scope| {
            let kill = async || redis.command(&["CLIENT", "KILL", "TYPE", "normal"]).await;
            let kill = scope.spawn(move || Runtime::new().unwrap().block_on(kill()).map(drop));
            kill.join().unwrap().unwrap();
        });
    })
    .await;
}

#[tokio::test]
async fn b62_a_restart_while_idle_fails_no_call() {
    for connections in [1, 8] {
        check_no_call_fails_after_idle_close(connections, async |redis| {
            redis.restart(Data::Kept).await.unwrap();
        })
        .await;
    }
}

#[tokio::test]
async fn b62_connections_that_the_server_closes_as_idle_fail_no_call() {
    let redis = Redis::builder().config("timeout", "1").start().await.unwrap();
    let ledger = Ledger::new(&redis.url());
    let store = patient(RedisStore::builder().url(redis.url()).connections(2));
    for _ in 0..3 {
        ledger.call(&store).await;
        ledger.call(&store).await;
        tokio::time::sleep(Duration::from_millis(2_500)).await;
    }
    assert_eq!(ledger.failures_since(ledger.start()), []);
    ledger.check().await;
}

#[tokio::test]
async fn b62_encrypted_connections_that_were_closed_while_idle_fail_no_call() {
    let certificates = Certificates::new();
    let redis = certificates.server().start().await.unwrap();
    let builder = || RedisStore::builder().url(redis.url()).root_certificates(certificates.root());
    let ledger = Ledger::with_store(patient(builder()));
    let store = patient(builder().connections(3));
    for unseen in [false, true, false, true] {
        for _ in 0..6 {
            ledger.call(&store).await;
        }
        let kill = async || redis.command(&["CLIENT", "KILL", "TYPE", "normal"]).await.map(drop);
        if unseen {
            std::thread::scope(|scope| {
                let kill = scope.spawn(|| Runtime::new().unwrap().block_on(kill()));
                kill.join().unwrap().unwrap();
            });
        } else {
            kill().await.unwrap();
        }
        // Redis closes a TLS connection with TLS records. The test waits until these records have
        // arrived, because the store could treat them as the reply to the next call.
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(ledger.failures_since(ledger.start()), []);
    ledger.check().await;
}

#[test]
fn b62_the_end_of_a_runtime_fails_no_call_on_the_next() {
    let first = Runtime::new().unwrap();
    let redis = first.block_on(Redis::start()).unwrap();
    let ledger = Ledger::new(&redis.url());
    let store = patient(RedisStore::builder().url(redis.url()).connections(2));
    for _ in 0..4 {
        Runtime::new().unwrap().block_on(async {
            for _ in 0..4 {
                ledger.call(&store).await;
            }
        });
    }
    assert_eq!(ledger.failures_since(ledger.start()), []);
    first.block_on(ledger.check());
}

/// A runtime that is not polled neither establishes a connection nor transfers the bytes of an open
/// connection.
#[test]
fn a_runtime_that_is_not_polled_delays_one_call_of_another_runtime() {
    let current_thread = || tokio::runtime::Builder::new_current_thread().enable_all().build();
    let (still, other) = (current_thread().unwrap(), current_thread().unwrap());
    let redis = other.block_on(Redis::start()).unwrap();
    let ledger = Ledger::new(&redis.url());
    let store = RedisStore::builder().url(redis.url()).build().unwrap();
    still.block_on(ledger.call(&store));
    other.block_on(async {
        for _ in 0..3 {
            ledger.call(&store).await;
        }
    });
    assert_eq!(ledger.failures_since(ledger.start()), [ErrorKind::Timeout]);
    other.block_on(ledger.check());
}

#[test]
fn a_runtime_that_is_not_polled_while_it_connects_delays_one_call_of_another_runtime() {
    let current_thread = || tokio::runtime::Builder::new_current_thread().enable_all().build();
    let (still, other) = (current_thread().unwrap(), current_thread().unwrap());
    let (redis, proxy) = other.block_on(redis_and_proxy());
    let setup = Mode::DelayFirstAnswer(Duration::from_millis(200));
    other.block_on(proxy.set(setup)).unwrap();
    let ledger = Ledger::new(&redis.url());
    let store = builder(&proxy).build().unwrap();
    still.block_on(drop_after(FIFTY, ledger.call(&store)));
    let calls = async || {
        for _ in 0..3 {
            ledger.call(&store).await;
        }
    };
    other.block_on(calls());
    assert_eq!(ledger.failures_since(ledger.start()), [ErrorKind::Unavailable]);
    // Now the first runtime completes its abandoned attempt to connect. The result must not affect
    // the calls on the other runtime.
    still.block_on(async { tokio::time::sleep(FIFTY).await });
    other.block_on(calls());
    assert_eq!(ledger.failures_since(ledger.start()), [ErrorKind::Unavailable]);
    other.block_on(ledger.check());
}

#[tokio::test]
async fn b42_connections_that_are_killed_under_load_lose_nothing_and_charge_nothing_twice() {
    let redis = Redis::start().await.unwrap();
    let ledger = Ledger::new(&redis.url());
    let builder = RedisStore::builder().url(redis.url()).connections(2);
    let store = Arc::new(builder.build().unwrap());
    let load = Load::start(&ledger, &store, 32, None);
    for _ in 0..60 {
        tokio::time::sleep(Duration::from_millis(20)).await;
        redis.command(&["CLIENT", "KILL", "TYPE", "normal"]).await.unwrap();
    }
    load.stop().await;
    ledger.check().await;
}

#[tokio::test]
async fn b42_a_call_that_may_have_been_sent_is_not_sent_again() {
    let redis = Redis::start().await.unwrap();
    for mode in [
        Mode::LoseAnswer(End::Close),
        Mode::LoseAnswer(End::Reset),
        Mode::HalveAnswer(End::Close),
        Mode::SwallowAnswers,
    ] {
        let proxy = Proxy::start(redis.port()).await.unwrap();
        let ledger = Ledger::new(&redis.url());
        let store = Arc::new(builder(&proxy).response_timeout(FIFTY).build().unwrap());
        decided(&ledger, &store).await;
        let load = Load::start(&ledger, &store, 8, None);
        proxy.set(mode).await.unwrap();
        tokio::time::sleep(Duration::from_millis(300)).await;
        proxy.set(Mode::Pass).await.unwrap();
        tokio::time::sleep(Duration::from_millis(300)).await;
        load.stop().await;
        ledger.check().await;
    }
}

#[tokio::test]
async fn dropped_calls_break_no_connection() {
    let (redis, proxy) = redis_and_proxy().await;
    let ledger = Ledger::new(&redis.url());
    let store = Arc::new(builder(&proxy).build().unwrap());
    decided(&ledger, &store).await;
    let load = Load::start(&ledger, &store, 64, Some(Duration::from_micros(300)));
    tokio::time::sleep(2 * RESPONSE).await;
    load.stop().await;
    ledger.call(&*store).await;
    assert!(proxy.counts().connections <= 1 + STALLS);
    ledger.check().await;
}

/// Starts a server that accepts logins, replies with `head`, and then sends zeros without end.
/// Returns its URL and the number of bytes that it has sent.
fn endless_server(head: &'static [u8]) -> (String, Arc<AtomicU64>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    let sent = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&sent);
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(b"+OK\r\n+OK\r\n");
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(head);
            let zeros = [b'0'; 1 << 16];
            while stream.write_all(&zeros).is_ok() {
                count.fetch_add(1 << 16, Ordering::SeqCst);
            }
        }
    });
    (url, sent)
}

#[tokio::test]
async fn an_endless_answer_ends_its_connection_and_fills_no_memory() {
    for head in [&b"$100000000000\r\n"[..], b"+"] {
        let (url, sent) = endless_server(head);
        let ledger = Ledger::new(&url);
        let store = RedisStore::builder().url(&url).build().unwrap();
        let start = Instant::now();
        ledger.call(&store).await;
        let failures = ledger.failures_since(start);
        assert!(
            !failures.is_empty() && failures.iter().all(|kind| !kind.is_definitely_not_charged())
        );
        assert!(!failures.contains(&ErrorKind::Timeout), "the store must not wait for the timeout");
        // The server can send some megabytes that the store never reads, because the operating
        // system buffers them.
        let sent = sent.load(Ordering::SeqCst);
        assert!(sent < 16 << 20, "{sent} bytes were sent");
    }
}

#[tokio::test]
async fn no_task_is_left_when_a_store_is_dropped() {
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    let (redis, proxy) = redis_and_proxy().await;
    let (mute, _) = mute_server();
    let ledger = Ledger::new(&redis.url());
    let silent = builder(&proxy).build().unwrap();
    let store = RedisStore::builder().url(redis.url()).connections(4).build().unwrap();
    let connecting = RedisStore::builder().url(mute).connect_timeout(OPEN * 60).build().unwrap();
    for _ in 0..4 {
        ledger.call(&store).await;
    }
    ledger.call(&silent).await;
    proxy.cut(End::Hang);
    for store in [&silent, &connecting] {
        drop_after(FIFTY, ledger.call(store)).await;
    }
    assert!(tasks() > before + 8);
    drop((store, silent, connecting, proxy));
    drop(ledger);
    let none = async || (tasks() <= before).then_some(());
    eventually(Duration::from_secs(5), "the tasks to end", none).await.unwrap();
}

#[tokio::test]
async fn each_connection_is_established_once_under_many_callers() {
    let (redis, proxy) = redis_and_proxy().await;
    let ledger = Ledger::new(&redis.url());
    let store = Arc::new(patient(builder(&proxy).connections(4)));
    let load = Load::start(&ledger, &store, 64, None);
    tokio::time::sleep(RESPONSE).await;
    load.stop().await;
    assert_eq!(proxy.counts().connections, 4);
    ledger.check().await;
    assert_eq!(ledger.failures_since(ledger.start()), []);
}
