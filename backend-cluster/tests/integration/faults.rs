//! Tests of faults of one node. The faults must not affect calls to the other nodes.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a helper of a test that fails panics, as the test does"
)]

use std::net::{Ipv4Addr, TcpListener};
use std::time::{Duration, Instant};

use crate::common::steady_cluster;
use crate::scene::{
    Event, Load, SOON, acquire, builder, command_count, is_caused_by_change, store, tenant_at,
    tenants_at, used, wide,
};
use tidegate_cluster::{Call, Charge, ClusterStore, ErrorKind, Store};
use tidegate_test_servers::{Cluster, Data, Redis, eventually};

/// The connect timeout and the response timeout of the store.
const TIMEOUT: Duration = Duration::from_secs(2);

#[tokio::test]
async fn b22_an_unknown_script_is_sent_again_while_another_node_is_dead() {
    let cluster = Cluster::start().await.unwrap();
    let store = store(&cluster);
    let tenants =
        [tenant_at(&cluster, 0).await, tenant_at(&cluster, 1).await, tenant_at(&cluster, 2).await];
    for tenant in &tenants {
        assert!(acquire(&store, &wide(), tenant).await.unwrap().is_allowed());
    }
    cluster.node(0).kill().await.unwrap();
    for round in 2..=10 {
        cluster.node(1).command(&["SCRIPT", "FLUSH"]).await.unwrap();
        let others = command_count(cluster.node(2), "eval").await;
        let decision = acquire(&store, &wide(), &tenants[1]).await.unwrap();
        assert_eq!(decision.verdicts()[0].remaining(), 1_000_000 - round);
        assert_eq!(
            command_count(cluster.node(2), "eval").await,
            others,
            "the script is not sent to the other node"
        );
    }
    assert_eq!(command_count(cluster.node(1), "script|load").await, 0);
    let error = acquire(&store, &wide(), &tenants[0]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
}

/// Makes calls to all three nodes, and causes a fault of the first node. 4 callers use the first
/// node, and 16 callers use the two healthy nodes. Returns the calls that the 16 callers have made
/// since the beginning of the fault.
async fn calls_to_other_nodes(cluster: &Cluster, fault: impl AsyncFnOnce()) -> Vec<Event> {
    // The timeouts are long enough for a busy machine. They are not longer, because the test waits
    // for twice the timeout.
    let builder = builder(cluster).connect_timeout(TIMEOUT).response_timeout(TIMEOUT);
    let store = builder.build().unwrap();
    let subjects =
        |tenants: Vec<String>| tenants.into_iter().map(|tenant| (wide(), tenant)).collect();
    let sick = Load::start(&store, subjects(tenants_at(cluster, 0, 2).await), 4).await;
    let well = [tenants_at(cluster, 1, 8).await, tenants_at(cluster, 2, 8).await].concat();
    let well = Load::start(&store, subjects(well), 16).await;
    let from = Instant::now();
    fault().await;
    tokio::time::sleep(2 * TIMEOUT).await;
    let sick = sick.stop().await;
    let failures: Vec<_> = sick.iter().filter_map(Event::error).collect();
    assert!(!failures.is_empty() && failures.iter().all(|(kind, _)| is_caused_by_change(*kind)));
    well.stop().await.into_iter().filter(|event| event.started > from).collect()
}

fn assert_undisturbed(events: &[Event]) {
    let errors: Vec<_> = events.iter().filter_map(Event::error).collect();
    assert_eq!(errors, [], "errors among {} calls", events.len());
    let mut times: Vec<_> = events.iter().map(|event| event.duration).collect();
    times.sort_unstable();
    let within = |percent: usize| times[(times.len() - 1) * percent / 100];
    println!(
        "{} calls: p50 {:?}, p99 {:?}, max {:?}",
        times.len(),
        within(50),
        within(99),
        within(100)
    );
    assert!(within(99) < TIMEOUT / 4, "{:?}", within(99));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_node_does_not_affect_calls_to_other_nodes() {
    let cluster = Cluster::start().await.unwrap();
    let events =
        calls_to_other_nodes(&cluster, async || cluster.node(0).pause().await.unwrap()).await;
    assert_undisturbed(&events);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_node_does_not_affect_calls_to_other_nodes() {
    let cluster = Cluster::start().await.unwrap();
    let events =
        calls_to_other_nodes(&cluster, async || cluster.node(0).kill().await.unwrap()).await;
    assert_undisturbed(&events);
}

/// A lost machine neither accepts nor rejects connections, so each attempt to connect lasts until
/// its timeout.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unreachable_node_does_not_affect_calls_to_other_nodes() {
    let cluster = Cluster::start().await.unwrap();
    let mut listener = None;
    let events = calls_to_other_nodes(&cluster, async || {
        cluster.node(0).kill().await.unwrap();
        // The operating system accepts connections to this port, but no process reads from them or
        // answers.
        listener = Some(TcpListener::bind((Ipv4Addr::LOCALHOST, cluster.node(0).port())).unwrap());
    })
    .await;
    assert_undisturbed(&events);
}

/// One node is paused while slots move. So the store queries the nodes for the slot map, and the
/// paused node does not answer. Calls to the other nodes must still succeed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_node_does_not_affect_calls_to_other_nodes_while_slots_move() {
    let cluster = steady_cluster().await;
    let slot = Cluster::slot_of(tenant_at(&cluster, 1).await.as_bytes());
    let events = calls_to_other_nodes(&cluster, async || {
        cluster.node(0).pause().await.unwrap();
        for to in [2, 1, 2, 1] {
            cluster.move_slot(slot, to).await.unwrap();
        }
    })
    .await;
    assert_undisturbed(&events);
}

/// If the store sent a call again after a timeout, the node would execute the call several times.
#[tokio::test]
async fn b42_a_call_to_a_paused_node_is_executed_at_most_once() {
    let cluster = Cluster::start().await.unwrap();
    let store = store(&cluster);
    let tenant = tenant_at(&cluster, 1).await;
    assert!(acquire(&store, &wide(), &tenant).await.unwrap().is_allowed());
    let before = command_count(cluster.node(1), "evalsha").await;
    cluster.node(1).pause().await.unwrap();
    // The first call to the paused node times out, so the store drops the connection. The second
    // call fails, because the store cannot make a new connection.
    for kind in [ErrorKind::Timeout, ErrorKind::Unavailable] {
        let error = acquire(&store, &wide(), &tenant).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
    }
    cluster.node(1).resume().await.unwrap();
    cluster.wait_until_ok().await.unwrap();
    let executed = command_count(cluster.node(1), "evalsha").await - before;
    assert!(executed <= 2, "2 calls were executed {executed} times");
    assert_eq!(used(&store, &wide(), &tenant).await, 1 + executed);
}

/// Guards against a defect of other clients of Redis Cluster. While a node was paused for one
/// second, such a client sent the same call five times, and the node later executed it five times.
#[tokio::test]
async fn b42_a_batch_to_a_paused_node_is_executed_at_most_once_and_its_other_half_immediately() {
    let cluster = Cluster::start().await.unwrap();
    let store = store(&cluster);
    let (held, free) = (tenant_at(&cluster, 1).await, tenant_at(&cluster, 2).await);
    let wide = wide();
    let charges =
        [[Charge::new(&wide, "s").tenant(&held)], [Charge::new(&wide, "s").tenant(&free)]];
    let calls = charges.each_ref().map(|charges| Call::acquire(charges));
    assert!(store.decide_many(&calls).await.iter().all(Result::is_ok));
    cluster.node(1).pause().await.unwrap();
    let answers = store.decide_many(&calls).await;
    assert_eq!(answers[0].as_ref().unwrap_err().kind(), ErrorKind::Timeout);
    assert_eq!(answers[1].as_ref().unwrap().verdicts()[0].remaining(), 1_000_000 - 2);
    cluster.node(1).resume().await.unwrap();
    cluster.wait_until_ok().await.unwrap();
    let used = used(&store, &wide, &held).await;
    assert!((1..=2).contains(&used), "{used}");
}

/// If one node makes its charge and the other node does not answer, the store must undo the charge.
#[tokio::test]
async fn a_call_across_tenants_charges_nothing_if_one_node_is_dead_or_paused() {
    let cluster = Cluster::start().await.unwrap();
    let store = store(&cluster);
    let tenants = [tenant_at(&cluster, 0).await, tenant_at(&cluster, 1).await];
    let (dead, held) = (tenants[0].as_str(), tenants[1].as_str());
    let well = tenant_at(&cluster, 2).await;
    let wide = wide();
    let across = async |other: &str| {
        let charges =
            [Charge::new(&wide, "s").tenant(&well), Charge::new(&wide, "s").tenant(other)];
        store.decide(Call::acquire(&charges)).await
    };
    for tenant in [dead, held] {
        assert!(across(tenant).await.unwrap().is_allowed());
    }
    assert_eq!(used(&store, &wide, &well).await, 2);
    cluster.node(0).kill().await.unwrap();
    cluster.node(1).pause().await.unwrap();
    for (tenant, kinds) in [
        (dead, &[ErrorKind::Unavailable][..]),
        (held, &[ErrorKind::Timeout, ErrorKind::Unavailable]),
    ] {
        let error = across(tenant).await.unwrap_err();
        assert!(kinds.contains(&error.kind()), "{error}");
        assert_eq!(used(&store, &wide, &well).await, 2, "{error}");
    }
}

#[tokio::test]
async fn a_cluster_that_is_down_says_so_and_serves_again_when_it_is_up() {
    let builder = Cluster::builder().config("cluster-require-full-coverage", "yes");
    let cluster = builder.start().await.unwrap();
    let store = store(&cluster);
    let tenant = tenant_at(&cluster, 2).await;
    assert!(acquire(&store, &wide(), &tenant).await.unwrap().is_allowed());
    cluster.node(0).kill().await.unwrap();
    // The other nodes notice the failed node only after some time, so the test makes calls until a
    // call fails.
    let failure = async || acquire(&store, &wide(), &tenant).await.err();
    let error = eventually(SOON, "CLUSTERDOWN", failure).await.unwrap();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let before = write_count(cluster.node(2)).await;
    assert!(before > 0);
    let error = acquire(&store, &wide(), &tenant).await.unwrap_err();
    assert!(format!("{error:#}").contains("down"), "{error}");
    assert_eq!(write_count(cluster.node(2)).await, before, "nothing was written");

    cluster.node(0).restart(Data::Lost).await.unwrap();
    cluster.wait_until_ok().await.unwrap();
    assert_served_within_a_second(&store, &tenant).await;
}

/// Returns the number of writes that scripts have made on a node.
async fn write_count(node: &Redis) -> u64 {
    command_count(node, "set").await + command_count(node, "psetex").await
}

async fn assert_served_within_a_second(store: &ClusterStore, tenant: &str) {
    let decided = async || acquire(store, &wide(), tenant).await.ok();
    let decision = eventually(Duration::from_secs(1), "the store", decided).await.unwrap();
    assert!(decision.is_allowed());
}

#[tokio::test]
async fn a_restarted_node_is_used_again_within_a_second() {
    let cluster = Cluster::start().await.unwrap();
    let store = store(&cluster);
    let tenant = tenant_at(&cluster, 1).await;
    assert!(acquire(&store, &wide(), &tenant).await.unwrap().is_allowed());
    cluster.node(1).kill().await.unwrap();
    for _ in 0..20 {
        let error = acquire(&store, &wide(), &tenant).await.unwrap_err();
        assert!(is_caused_by_change(error.kind()), "{error}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    cluster.node(1).restart(Data::Lost).await.unwrap();
    cluster.wait_until_ok().await.unwrap();
    assert_served_within_a_second(&store, &tenant).await;
}

#[tokio::test]
async fn b48_a_dead_cluster_delays_no_building_and_fails_calls_soon() {
    let cluster = Cluster::start().await.unwrap();
    for node in cluster.nodes() {
        node.kill().await.unwrap();
    }
    let store = store(&cluster);
    let start = Instant::now();
    for _ in 0..50 {
        let error = acquire(&store, &wide(), "t").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    }
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
    for node in cluster.nodes() {
        node.restart(Data::Lost).await.unwrap();
    }
    cluster.wait_until_ok().await.unwrap();
    assert_served_within_a_second(&store, "t").await;
}

#[tokio::test]
async fn one_seed_that_is_up_is_enough_and_any_node_will_do() {
    let cluster = Cluster::start().await.unwrap();
    let tenant = tenant_at(&cluster, 2).await;
    cluster.node(0).pause().await.unwrap();
    let store = store(&cluster);
    let decision = acquire(&store, &wide(), &tenant).await.unwrap();
    assert!(decision.is_allowed());
    let one = ClusterStore::new([cluster.node(1).url()]).unwrap();
    assert_eq!(used(&one, &wide(), &tenant).await, 1);
}
