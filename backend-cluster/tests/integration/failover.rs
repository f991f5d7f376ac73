//! Tests of failovers. They measure the time until calls succeed again, and count the lost charges.
//!
//! Replication is asynchronous: if a primary dies, the cluster loses the admissions that its
//! replica had not received.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a helper of a test that fails panics, as the test does"
)]

use std::time::{Duration, Instant};

use crate::scene::{
    Event, Load, SOON, acquire, builder, is_caused_by_change, policy, store, tenant_at, tenants_at,
    used, wide,
};
use tidegate_cluster::{ClusterStore, ErrorKind, Policy};
use tidegate_test_servers::{Cluster, Redis, eventually};

/// The password of the nodes. Replicas need it to connect to their primaries.
const PASSWORD: &str = "secret";

async fn with_replicas() -> Cluster {
    let node = Redis::builder().password(PASSWORD);
    Cluster::builder().node(node).replicas(1).start().await.unwrap()
}

/// Makes `count` calls that must all be admitted.
async fn admit(store: &ClusterStore, policy: &Policy, tenant: &str, count: usize) {
    for _ in 0..count {
        assert!(acquire(store, policy, tenant).await.unwrap().is_allowed());
    }
}

/// Waits until the replica of a node has received all writes that the node has executed.
async fn replicate(cluster: &Cluster, node: usize, tenant: &str) {
    let mut client = cluster.node(node).client().await.unwrap();
    client.call(&["SET", &format!("{{{tenant}}}marker"), ""]).await.unwrap();
    assert_eq!(client.call(&["WAIT", "1", "9000"]).await.unwrap().text(), "1");
}

/// Disconnects a replica from its primary: the replica gets a wrong password for the primary.
async fn cut_off(replica: &Redis) {
    replica.command(&["CONFIG", "SET", "masterauth", "wrong"]).await.unwrap();
    replica.command(&["CLIENT", "KILL", "TYPE", "master"]).await.unwrap();
    let is_cut = async || {
        let status = replica.info("master_link_status").await.ok()?;
        (status == "down").then_some(())
    };
    eventually(SOON, "the replica to be cut off", is_cut).await.unwrap();
}

/// Kills a primary, and returns when its replica has been promoted. The duration depends only on
/// the cluster, and not on the store.
async fn replace(cluster: &Cluster, primary: usize, tenant: &str) {
    cluster.node(primary).kill().await.unwrap();
    let slot = Cluster::slot_of(tenant.as_bytes());
    assert_ne!(cluster.primary_after(primary, slot).await.unwrap(), primary);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_killed_under_load_is_replaced_and_calls_succeed_within_a_second_of_that() {
    let cluster = with_replicas().await;
    let store = store(&cluster);
    let mut subjects = vec![];
    for node in 0..3 {
        subjects
            .extend(tenants_at(&cluster, node, 5).await.into_iter().map(|tenant| (wide(), tenant)));
    }
    let load = Load::start(&store, subjects.clone(), 16).await;
    load.wait_for_calls(1_000).await;
    let killed = Instant::now();
    replace(&cluster, 0, &subjects[0].1).await;
    let replaced = Instant::now();
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    let events = load.stop().await;

    let errors: Vec<_> = events.iter().filter_map(Event::error).collect();
    assert!(errors.iter().all(|(kind, _)| is_caused_by_change(*kind)), "{errors:?}");
    let late = events.iter().filter(|event| event.started > replaced + Duration::from_secs(1));
    let failed: Vec<_> = late.filter_map(Event::error).collect();
    assert_eq!(failed, [], "more than a second after the replacement");
    let elsewhere = events.iter().filter(|event| event.subject >= 5);
    let failed: Vec<_> = elsewhere.filter_map(Event::error).collect();
    assert_eq!(failed, [], "the two other nodes are not affected");

    let mut lost = 0;
    for (subject, (policy, tenant)) in subjects.iter().enumerate() {
        let own = || events.iter().filter(|event| event.subject == subject);
        let admitted = u64::try_from(own().filter(|event| event.is_allowed()).count()).unwrap();
        let unknown = own().filter_map(Event::error);
        let unknown = unknown.filter(|(kind, _)| !kind.is_definitely_not_charged()).count();
        let used = used(&store, policy, tenant).await;
        assert!(
            used <= admitted + u64::try_from(unknown).unwrap(),
            "at most the calls that may be charged"
        );
        if subject >= 5 {
            assert_eq!(used, admitted);
        }
        lost += admitted.saturating_sub(used);
    }
    // The cluster loses only writes that the primary had not sent to its replica yet. These are at
    // most one call of each of the 16 callers.
    assert!(lost <= 16, "{lost} admissions are lost");
    let served = events.iter().filter(|event| event.subject < 5 && event.is_allowed());
    let served =
        served.map(Event::answered).filter(|&at| at > killed + Duration::from_millis(100)).min();
    println!(
        "replaced after {:?}, served again after {:?}; {} errors, {lost} admissions lost",
        replaced - killed,
        served.unwrap() - killed,
        errors.len()
    );
}

/// Checks the documented bound: only the charges that the replica had not received are lost.
#[tokio::test]
async fn a_failover_loses_exactly_the_charges_that_no_replica_had() {
    let cluster = with_replicas().await;
    let store = store(&cluster);
    let tenant = tenant_at(&cluster, 1).await;
    let limit = policy("p: fixed-window 100/10d anchored");
    admit(&store, &limit, &tenant, 60).await;
    replicate(&cluster, 1, &tenant).await;
    cut_off(cluster.node(4)).await;
    admit(&store, &limit, &tenant, 25).await;
    replace(&cluster, 1, &tenant).await;

    let again = async || acquire(&store, &limit, &tenant).await.ok();
    let first = eventually(Duration::from_secs(1), "the store", again).await.unwrap();
    assert_eq!(first.verdicts()[0].remaining(), 100 - 61, "all 60 are kept, and none of the 25");
    // In total, the cluster admits 60 + 25 + 1 + 39 calls. This is 25 more than the limit of 100,
    // because the cluster has lost 25 charges.
    admit(&store, &limit, &tenant, 39).await;
    assert!(acquire(&store, &limit, &tenant).await.unwrap().is_denied());
}

#[tokio::test]
async fn waiting_for_a_replica_admits_nothing_that_a_failover_would_lose() {
    let cluster = with_replicas().await;
    let patience = Duration::from_millis(100);
    let store = builder(&cluster).wait_for_replicas(1, patience).build().unwrap();
    let tenant = tenant_at(&cluster, 1).await;
    let limit = policy("p: fixed-window 100/10d anchored");
    admit(&store, &limit, &tenant, 60).await;
    cut_off(cluster.node(4)).await;
    for _ in 0..5 {
        let start = Instant::now();
        let error = acquire(&store, &limit, &tenant).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(start.elapsed() >= patience, "{:?}", start.elapsed());
    }
    replace(&cluster, 1, &tenant).await;
    let without = crate::scene::store(&cluster);
    let again = async || acquire(&without, &limit, &tenant).await.ok();
    let first = eventually(Duration::from_secs(1), "the store", again).await.unwrap();
    assert_eq!(first.verdicts()[0].remaining(), 100 - 61, "all admitted calls are kept");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_that_an_operator_asks_for_loses_nothing_under_load() {
    let cluster = with_replicas().await;
    let store = builder(&cluster).response_timeout(Duration::from_secs(5)).build().unwrap();
    let mut subjects = vec![];
    for node in 0..3 {
        subjects
            .extend(tenants_at(&cluster, node, 2).await.into_iter().map(|tenant| (wide(), tenant)));
    }
    let load = Load::start(&store, subjects.clone(), 16).await;
    load.wait_for_calls(500).await;
    assert_eq!(cluster.fail_over(0).await.unwrap(), 3);
    load.wait_for_calls(2_000).await;
    let events = load.stop().await;
    for (subject, (policy, tenant)) in subjects.iter().enumerate() {
        let own = || events.iter().filter(|event| event.subject == subject);
        let errors: Vec<_> = own().filter_map(Event::error).collect();
        assert!(errors.iter().all(|(kind, _)| is_caused_by_change(*kind)), "{errors:?}");
        let admitted = u64::try_from(own().filter(|event| event.is_allowed()).count()).unwrap();
        let unknown = errors.iter().filter(|(kind, _)| !kind.is_definitely_not_charged()).count();
        let used = used(&store, policy, tenant).await;
        let max = admitted + u64::try_from(unknown).unwrap();
        assert!((admitted..=max).contains(&used), "{used} is not within {admitted} to {max}");
    }
    let errors: Vec<_> = events.iter().filter_map(Event::error).collect();
    println!("{} calls, {} errors: {errors:?}", events.len(), errors.len());
}

/// The store makes no call during the failover. After it, the old primary is a replica and rejects
/// writes. The store still sends its first call to the old primary, and must then find the new
/// primary within a second.
#[tokio::test]
async fn a_store_that_slept_through_a_failover_finds_the_new_primary_at_its_first_call() {
    let cluster = with_replicas().await;
    let store = store(&cluster);
    let tenant = tenant_at(&cluster, 2).await;
    admit(&store, &wide(), &tenant, 3).await;
    assert_eq!(cluster.fail_over(2).await.unwrap(), 5);
    let next = async || acquire(&store, &wide(), &tenant).await.ok();
    let decision = eventually(Duration::from_secs(1), "the new primary", next).await.unwrap();
    assert_eq!(decision.verdicts()[0].remaining(), 1_000_000 - 4);
}
