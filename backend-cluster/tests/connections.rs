//! Tests that the store replaces lost connections to the nodes in a bounded time, even if the
//! callers do not wait long for their answers. No call is charged twice because of a lost
//! connection.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a helper of a test that fails panics, as the test does"
)]

#[path = "../../backend-redis/tests/ledger/mod.rs"]
mod ledger;

use std::sync::Arc;
use std::time::{Duration, Instant};

use ledger::{Ledger, Load, decided};
use tidegate_cluster::core::layers::CircuitState;
use tidegate_cluster::{Breaker, ClusterStore, Limiter, Store, StoreExt};
use tidegate_test_servers::{Cluster, Data, End, Mode, Proxy, Redis, eventually};
use tokio::runtime::Runtime;

const RESPONSE: Duration = Duration::from_millis(500);

/// The time that the store needs at most, after the response timeout, to replace a silent
/// connection.
const MORE: Duration = Duration::from_millis(200);

/// The additional delay that is allowed because the machine is possibly busy.
const BUSY: Duration = Duration::from_secs(1);

/// The number of working connections that the store is allowed to replace. On a busy machine, a
/// working connection can seem silent.
const STALLS: u64 = 3;

const FIFTY: Duration = Duration::from_millis(50);

const SOON: Duration = Duration::from_secs(20);

/// Starts a cluster of one node and a proxy in front of it. The node announces the address of the
/// proxy.
async fn node_and_proxy() -> (Redis, Proxy) {
    // The test does not set a port, so `start` tries other ports if the port of the node or of its
    // cluster bus is taken.
    let node = Redis::builder().config("cluster-enabled", "yes").start().await.unwrap();
    let proxy = Proxy::start(node.port()).await.unwrap();
    let (ip, port) = ("cluster-announce-ip", "cluster-announce-port");
    node.command(&["CONFIG", "SET", ip, "127.0.0.1"]).await.unwrap();
    node.command(&["CONFIG", "SET", port, &proxy.port().to_string()]).await.unwrap();
    node.command(&["CONFIG", "REWRITE"]).await.unwrap();
    node.command(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]).await.unwrap();
    let is_up = async || {
        let info = node.command(&["CLUSTER", "INFO"]).await.ok()?.text();
        info.contains("cluster_state:ok").then_some(())
    };
    eventually(SOON, "the cluster to be up", is_up).await.unwrap();
    (node, proxy)
}

fn store_through(proxy: &Proxy) -> ClusterStore {
    ClusterStore::new([proxy.url()]).unwrap()
}

/// Checks that the store replaces a silent connection to a node within `bound`, if new connections
/// work.
async fn check_replaced_within<S: Store + 'static>(
    bound: Duration,
    compose: impl FnOnce(ClusterStore) -> S,
) {
    let (node, proxy) = node_and_proxy().await;
    let ledger = Ledger::with_store(ClusterStore::new([node.url()]).unwrap());
    let store = Arc::new(compose(store_through(&proxy)));
    decided(&ledger, &store).await;
    let before = proxy.counts().connections;
    proxy.cut(End::Hang);
    let silent = Instant::now();
    let load = Load::start(&ledger, &store, 8, None);
    let took = load.first_decision(silent).await;
    println!("decided again after {took:?}, {bound:?} are allowed");
    assert!(took < bound + BUSY, "{took:?} instead of {bound:?}");
    tokio::time::sleep(RESPONSE + MORE).await;
    load.stop().await;
    decided(&ledger, &store).await;
    let made = proxy.counts().connections - before;
    assert!((1..=1 + STALLS).contains(&made), "{made} instead of 1");
    ledger.check().await;
}

#[tokio::test]
async fn b57_a_silent_connection_is_replaced() {
    check_replaced_within(RESPONSE + MORE, |store| store).await;
}

#[tokio::test]
async fn b57_a_silent_connection_is_replaced_under_a_timeout() {
    check_replaced_within(RESPONSE + MORE, |store| store.timeout(FIFTY)).await;
}

#[tokio::test]
async fn b56_a_connection_that_takes_longer_than_its_callers_is_made() {
    const SETUP: Duration = Duration::from_millis(200);
    let (node, proxy) = node_and_proxy().await;
    proxy.set(Mode::DelayFirstAnswer(SETUP)).await.unwrap();
    let ledger = Ledger::with_store(ClusterStore::new([node.url()]).unwrap());
    let store = Arc::new(store_through(&proxy).timeout(FIFTY));
    let load = Load::start(&ledger, &store, 64, None);
    // The store needs only one connection, because the cluster has no other node. The store loads
    // the slot map over this connection before it sends the calls.
    let took = load.first_decision(Instant::now()).await;
    load.stop().await;
    println!("decided after {took:?}");
    assert!(took < 2 * SETUP + BUSY, "{took:?}");
    assert!(proxy.counts().connections <= 1 + STALLS);
    ledger.check().await;
}

/// Checks that no call fails because a connection was closed while it was idle.
async fn check_no_call_fails_after_idle_close(connections: usize, close: impl AsyncFn(&Redis)) {
    let cluster = Cluster::start().await.unwrap();
    let builder = || ClusterStore::builder().urls(cluster.urls());
    // The timeouts are long, so that no call times out on a busy machine.
    let store = builder().connections(connections).connect_timeout(SOON).response_timeout(SOON);
    let store = store.build().unwrap().breaker(Breaker::new());
    let ledger = Ledger::with_store(builder().build().unwrap());
    for round in 0..4 {
        // Ten calls per connection are enough to use all connections to all nodes.
        for _ in 0..10 * connections {
            ledger.call(&store).await;
        }
        if round < 3 {
            for node in cluster.nodes() {
                close(node).await;
            }
            cluster.wait_until_ok().await.unwrap();
        }
    }
    assert_eq!(ledger.failures_since(ledger.start()), []);
    assert_eq!(store.state(), CircuitState::Closed);
    assert_eq!(store.watch().times_opened(), 0);
    ledger.check().await;
}

#[tokio::test]
async fn b62_connections_that_were_killed_while_idle_fail_no_call() {
    for connections in [1, 8] {
        check_no_call_fails_after_idle_close(connections, async |node| {
            node.command(&["CLIENT", "KILL", "TYPE", "normal"]).await.unwrap();
        })
        .await;
    }
}

#[tokio::test]
async fn b62_a_restart_while_idle_fails_no_call() {
    check_no_call_fails_after_idle_close(1, async |node| node.restart(Data::Kept).await.unwrap())
        .await;
}

#[test]
fn b62_the_end_of_a_runtime_fails_no_call_on_the_next() {
    let first = Runtime::new().unwrap();
    let cluster = first.block_on(Cluster::start()).unwrap();
    let store = || ClusterStore::new(cluster.urls()).unwrap();
    let (ledger, store) = (Ledger::with_store(store()), store());
    for _ in 0..3 {
        Runtime::new().unwrap().block_on(async {
            for _ in 0..10 {
                ledger.call(&store).await;
            }
        });
    }
    assert_eq!(ledger.failures_since(ledger.start()), []);
    first.block_on(ledger.check());
}

#[tokio::test]
async fn b42_connections_that_are_killed_under_load_lose_nothing_and_charge_nothing_twice() {
    let cluster = Cluster::start().await.unwrap();
    let store = || ClusterStore::new(cluster.urls()).unwrap();
    let (ledger, store) = (Ledger::with_store(store()), Arc::new(store()));
    let load = Load::start(&ledger, &store, 32, None);
    for round in 0..60 {
        tokio::time::sleep(Duration::from_millis(20)).await;
        let node = cluster.node(round % 3);
        node.command(&["CLIENT", "KILL", "TYPE", "normal"]).await.unwrap();
    }
    load.stop().await;
    ledger.check().await;
}

/// Any node can report the time, so the store must not wait for a node that hangs.
#[tokio::test]
async fn a_paused_node_does_not_delay_the_servers_time() {
    let cluster = Cluster::start().await.unwrap();
    let builder = ClusterStore::builder().urls(cluster.urls());
    let store = builder.connect_timeout(SOON).response_timeout(SOON).build().unwrap();
    let limiter = Limiter::new(store.clone(), ["gcra 5/1s".parse().unwrap()]).unwrap();
    for subject in ["a", "b", "c", "d", "e", "f", "g", "h"] {
        assert!(limiter.acquire(subject).await.unwrap().is_allowed());
    }
    cluster.node(1).pause().await.unwrap();
    for _ in 0..10 {
        let start = Instant::now();
        store.now().await.unwrap();
        assert!(start.elapsed() < SOON / 4, "{:?}", start.elapsed());
    }
}
