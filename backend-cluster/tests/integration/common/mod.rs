//! The cluster that all tests of this program share, and helpers that create stores on it.
#![allow(clippy::unwrap_used, reason = "a helper of a test that fails panics, as the test does")]

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tidegate_cluster::{
    Call, Charge, ClusterStore, ClusterStoreBuilder, ManualClock, Operation, Policy, Store,
};
use tidegate_test_servers::Cluster;
use tokio::sync::OnceCell;

/// Returns the shared cluster of three primaries, which runs from the first call until the program
/// ends.
pub(crate) async fn cluster() -> &'static Cluster {
    static CLUSTER: OnceCell<Cluster> = OnceCell::const_new();
    CLUSTER.get_or_init(steady_cluster).await
}

/// Starts a cluster in which a node counts as dead only after a minute without an answer, so that
/// a slow or a paused node does not count as dead.
pub(crate) async fn steady_cluster() -> Cluster {
    Cluster::builder().config("cluster-node-timeout", "60000").start().await.unwrap()
}

pub(crate) fn fresh_prefix() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("t{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Returns a builder for a store with long timeouts, because the machine is possibly slow and few
/// tests depend on timeouts.
pub(crate) fn patient(cluster: &Cluster) -> ClusterStoreBuilder {
    let builder = ClusterStore::builder().urls(cluster.urls());
    builder.response_timeout(Duration::from_secs(30)).connect_timeout(Duration::from_secs(10))
}

/// Returns a builder for a store on the shared cluster, with a new prefix.
pub(crate) async fn builder() -> ClusterStoreBuilder {
    patient(cluster().await).prefix(fresh_prefix())
}

/// Returns a store on the shared cluster, with a new prefix and the time of `clock`.
pub(crate) async fn store_at(clock: &ManualClock) -> ClusterStore {
    builder().await.clock(clock.clone()).build().unwrap()
}

pub(crate) fn policy(text: &str) -> Policy {
    text.parse().unwrap()
}

/// Returns the amount of the policy's limit that the subject of `charge` has used.
pub(crate) async fn used(store: &ClusterStore, charge: Charge<'_>) -> u64 {
    let peek = store.decide(Call::new(Operation::Peek, &[charge.cost(0)])).await.unwrap();
    charge.policy.limit() - peek.verdicts()[0].remaining()
}

/// Returns the values of all keys with the prefix, from all nodes. If no such key changes between
/// two calls of this function, both calls return the same bytes.
pub(crate) async fn dump(cluster: &Cluster, prefix: &str) -> Vec<u8> {
    let mut dumps = vec![];
    for node in cluster.nodes() {
        dumps.extend(node.dump(prefix).await.unwrap());
    }
    dumps
}

/// Returns a subject without a tenant whose state is on the given node. Different numbers give
/// different subjects.
pub(crate) async fn subject_on(cluster: &Cluster, node: usize, number: usize) -> String {
    let mut found = 0;
    for n in 0.. {
        let subject = format!("s{n}");
        if cluster.primary_of_slot(Cluster::slot_of(subject.as_bytes())).await.unwrap() == node {
            if found == number {
                return subject;
            }
            found += 1;
        }
    }
    unreachable!("there is a subject for each slot")
}
