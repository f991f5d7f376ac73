//! Helpers for tests in which nodes of a cluster fail or slots move.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a helper of a test that fails panics, as the test does"
)]

mod load;

use std::time::Duration;

use tidegate_cluster::{
    Call, Charge, ClusterStore, ClusterStoreBuilder, Decision, Error, ErrorKind, Operation, Policy,
    Store,
};
use tidegate_test_servers::{Cluster, Redis, eventually};

pub(crate) use load::{Event, Load, Outcome};

/// The maximum time for a step of a test, if the test does not check the duration of the step.
pub(crate) const SOON: Duration = Duration::from_secs(20);

pub(crate) fn policy(text: &str) -> Policy {
    text.parse().unwrap()
}

/// Returns a policy that never refuses during a test, and whose states do not recover during a
/// test.
pub(crate) fn wide() -> Policy {
    policy("wide: fixed-window 1000000/10d anchored")
}

/// Returns a builder for a store with short timeouts. The timeouts are just long enough for a busy
/// machine.
pub(crate) fn builder(cluster: &Cluster) -> ClusterStoreBuilder {
    let builder = ClusterStore::builder().urls(cluster.urls());
    builder.connect_timeout(Duration::from_millis(500)).response_timeout(Duration::from_secs(1))
}

pub(crate) fn store(cluster: &Cluster) -> ClusterStore {
    builder(cluster).build().unwrap()
}

/// Returns `count` tenants with keys on the given node.
pub(crate) async fn tenants_at(cluster: &Cluster, node: usize, count: usize) -> Vec<String> {
    let slots = cluster.slots_of(node).await.unwrap();
    let is_there = |tenant: &String| {
        let slot = Cluster::slot_of(tenant.as_bytes());
        slots.iter().any(|range| range.contains(&slot))
    };
    (0..).map(|number| format!("tenant{number}")).filter(is_there).take(count).collect()
}

pub(crate) async fn tenant_at(cluster: &Cluster, node: usize) -> String {
    tenants_at(cluster, node, 1).await.remove(0)
}

pub(crate) async fn acquire(
    store: &ClusterStore,
    policy: &Policy,
    tenant: &str,
) -> Result<Decision, Error> {
    store.decide(Call::acquire(&[Charge::new(policy, "s").tenant(tenant)])).await
}

/// Returns the amount of the policy's limit that the subject `s` of a tenant has used. After a
/// failed attempt to connect, calls fail for a short time, so this function retries until the store
/// decides.
pub(crate) async fn used(store: &ClusterStore, policy: &Policy, tenant: &str) -> u64 {
    let charges = [Charge::new(policy, "s").tenant(tenant).cost(0)];
    let peek = async || store.decide(Call::new(Operation::Peek, &charges)).await.ok();
    let peek = eventually(Duration::from_secs(10), "the store decides", peek).await.unwrap();
    policy.limit() - peek.verdicts()[0].remaining()
}

/// Returns `true` if a failed node or a moving slot can cause an error of kind `kind`.
pub(crate) fn is_caused_by_change(kind: ErrorKind) -> bool {
    use ErrorKind::{Busy, ReadOnly, Timeout, Unavailable};
    matches!(kind, Timeout | Unavailable | ReadOnly | Busy)
}

/// Returns the number of times that a server has executed a command.
pub(crate) async fn command_count(node: &Redis, command: &str) -> u64 {
    statistic(node, "commandstats", &format!("cmdstat_{command}:calls=")).await
}

/// Returns the number of times that a server has replied with an error, such as `MOVED`.
pub(crate) async fn error_count(node: &Redis, name: &str) -> u64 {
    statistic(node, "errorstats", &format!("errorstat_{name}:count=")).await
}

async fn statistic(node: &Redis, section: &str, prefix: &str) -> u64 {
    let info = node.command(&["INFO", section]).await.unwrap().text();
    let count = info.lines().find_map(|line| line.strip_prefix(prefix)?.split(',').next());
    count.map_or(0, |count| count.trim().parse().unwrap())
}
