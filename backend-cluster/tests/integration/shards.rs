//! Tests of a tenant with many requests on a real cluster. The limit of the tenant is split over
//! shards on all nodes.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a helper of a test that fails panics, as the test does"
)]

use tidegate_cluster::{Call, Charge, ClusterStore, ManualClock, Policy, Store, Timestamp};
use tidegate_test_servers::Reply;
use tokio::task::JoinSet;

use crate::common::{cluster, fresh_prefix, patient, policy};

const START: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);

/// Returns several stores that share their states, like the stores of several processes.
async fn clients(count: usize, prefix: &str, clock: &ManualClock) -> Vec<ClusterStore> {
    let cluster = cluster().await;
    let builder = || patient(cluster).prefix(prefix).clock(clock.clone());
    (0..count).map(|_| builder().build().unwrap()).collect()
}

/// Makes `requests` concurrent requests, which use the clients in turn. Returns the number of
/// admitted requests.
async fn admitted(clients: &[ClusterStore], policy: &Policy, requests: usize) -> u64 {
    let mut tasks = JoinSet::new();
    for number in 0..requests {
        let (store, policy) = (clients[number % clients.len()].clone(), policy.clone());
        tasks.spawn(async move {
            let subject = format!("user-{number}");
            let subject = if policy.is_per_tenant() { &subject } else { "all" };
            let charge = Charge::new(&policy, subject).tenant("acme");
            store.decide(Call::acquire(&[charge])).await.unwrap().is_allowed()
        });
    }
    let mut admitted = 0;
    while let Some(allowed) = tasks.join_next().await {
        admitted += u64::from(allowed.unwrap());
    }
    admitted
}

/// Returns, for each node, the number of keys that begin with `prefix`.
async fn keys(prefix: &str) -> Vec<usize> {
    let mut counts = vec![];
    for node in cluster().await.nodes() {
        let reply = node.command(&["KEYS", &format!("{prefix}:*")]).await.unwrap();
        let Reply::List(keys) = reply else { panic!("{reply:?}") };
        counts.push(keys.len());
    }
    counts
}

#[tokio::test]
async fn a_limit_in_shards_is_kept_exactly_by_many_clients_at_once() {
    let clock = ManualClock::new(START);
    for (text, limit) in [
        ("hot: sliding-log 100/1m shards 7", 100),
        ("hot: token-bucket 11/1m burst 11 shards 10", 11),
        ("hot: fixed-window 3/1m shards 10", 3),
        ("hot: sliding-counter 50/1m shards 6 by-subject", 50),
    ] {
        let prefix = fresh_prefix();
        let clients = clients(4, &prefix, &clock).await;
        // The number of requests is much higher than the limit, so that the requests exhaust every
        // shard.
        let admitted = admitted(&clients, &policy(text), 40 * limit).await;
        assert_eq!(admitted, u64::try_from(limit).unwrap(), "{text}");
        let shards: usize = keys(&prefix).await.iter().sum();
        assert_eq!(shards, policy(text).shares().len(), "{text}");
    }
}

#[tokio::test]
async fn each_node_has_an_equal_part_of_the_shards() {
    let (clock, prefix) = (ManualClock::new(START), fresh_prefix());
    let clients = clients(1, &prefix, &clock).await;
    admitted(&clients, &policy("hot: sliding-log 600/1m shards 6"), 60).await;
    assert_eq!(keys(&prefix).await, [2, 2, 2]);
}

#[tokio::test]
async fn another_number_of_shards_admits_at_most_the_limit_again() {
    let (clock, prefix) = (ManualClock::new(START), fresh_prefix());
    let clients = clients(3, &prefix, &clock).await;
    let (four, five) = ("hot: sliding-log 20/1m shards 4", "hot: sliding-log 20/1m shards 5");
    assert_eq!(admitted(&clients, &policy(four), 400).await, 20);
    assert_eq!(admitted(&clients, &policy(five), 400).await, 20);
    assert_eq!(admitted(&clients, &policy(four), 400).await, 0);
    assert_eq!(admitted(&clients, &policy(five), 400).await, 0);
}

#[tokio::test]
async fn a_call_combines_a_sharded_and_an_unsharded_limit() {
    let (clock, prefix) = (ManualClock::new(START), fresh_prefix());
    let clients = clients(2, &prefix, &clock).await;
    let (hot, user) = (policy("hot: sliding-log 40/1m shards 4"), policy("user: sliding-log 3/1m"));
    let mut admitted = 0;
    for number in 0..60 {
        let user_name = format!("user-{}", number % 5);
        let charges = [
            Charge::new(&hot, "all").tenant("acme"),
            Charge::new(&user, &user_name).tenant("acme"),
        ];
        let decision = clients[number % 2].decide(Call::acquire(&charges)).await.unwrap();
        admitted += u64::from(decision.is_allowed());
    }
    assert_eq!(admitted, 15, "five users, three each");
    // Requests that the limit of a user refused were not charged to the tenant. So the limit of the
    // tenant still admits 40 - 15 = 25 requests.
    assert_eq!(self::admitted(&clients, &hot, 400).await, 25);
}
