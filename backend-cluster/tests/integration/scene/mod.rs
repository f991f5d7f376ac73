//! What the tests of a cluster that goes wrong have in common.
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
use tidegate_testkit::servers::{Cluster, Redis, eventually};

pub(crate) use load::{Event, Load, Outcome};

/// How long anything may take that is no matter of the test.
pub(crate) const SOON: Duration = Duration::from_secs(20);

pub(crate) fn policy(text: &str) -> Policy {
    text.parse().unwrap()
}

/// A policy that refuses nothing and lets nothing recover while a test lasts.
pub(crate) fn wide() -> Policy {
    policy("wide: fixed-window 1000000/10d anchored")
}

/// A store that waits long enough for a busy machine, and not much longer.
pub(crate) fn builder(cluster: &Cluster) -> ClusterStoreBuilder {
    let builder = ClusterStore::builder().urls(cluster.urls());
    builder.connect_timeout(Duration::from_millis(500)).response_timeout(Duration::from_secs(1))
}

pub(crate) fn store(cluster: &Cluster) -> ClusterStore {
    builder(cluster).build().unwrap()
}

/// Tenants whose keys are at a node.
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

/// What is taken of the limit of the one subject of a tenant, once the store decides: after a failed
/// attempt to connect, calls fail for a moment.
pub(crate) async fn taken(store: &ClusterStore, policy: &Policy, tenant: &str) -> u64 {
    let charges = [Charge::new(policy, "s").tenant(tenant).cost(0)];
    let peek = async || store.decide(Call::new(Operation::Peek, &charges)).await.ok();
    let peek = eventually(Duration::from_secs(10), "the store decides", peek).await.unwrap();
    policy.limit() - peek.verdicts()[0].remaining()
}

/// The kinds of errors that a change of the cluster may bring about.
pub(crate) fn is_of_a_change(kind: ErrorKind) -> bool {
    use ErrorKind::{Busy, ReadOnly, Timeout, Unavailable};
    matches!(kind, Timeout | Unavailable | ReadOnly | Busy)
}

/// How often a server has executed a command.
pub(crate) async fn count_of(node: &Redis, command: &str) -> u64 {
    statistic(node, "commandstats", &format!("cmdstat_{command}:calls=")).await
}

/// How often a server has answered an error, such as `MOVED`.
pub(crate) async fn errors_of(node: &Redis, name: &str) -> u64 {
    statistic(node, "errorstats", &format!("errorstat_{name}:count=")).await
}

async fn statistic(node: &Redis, section: &str, prefix: &str) -> u64 {
    let info = node.command(&["INFO", section]).await.unwrap().text();
    let count = info.lines().find_map(|line| line.strip_prefix(prefix)?.split(',').next());
    count.map_or(0, |count| count.trim().parse().unwrap())
}
