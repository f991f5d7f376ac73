//! Makes the same calls at the same virtual time on a real cluster and on the core in memory. The
//! decisions must be identical. The states of the subjects are in two slots on different nodes.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a helper of a test that fails panics, as the test does"
)]

use tidegate_cluster::{ClusterStore, ManualClock};
use tidegate_test_servers::{Client, Cluster};
use tidegate_testkit::differential::DifferentialStore;

tidegate_testkit::differential!(cluster_store, stores);

const CONCURRENT_SCENARIOS: usize = 8;

/// A store on the cluster. Each store has its own prefix.
struct OnCluster {
    store: ClusterStore,
    clock: ManualClock,
    prefix: String,
    nodes: Vec<Client>,
}

async fn stores() -> (Vec<OnCluster>, Cluster) {
    // Each test has its own cluster with few keys, because a test finds the keys of a store by a
    // scan of all keys.
    let cluster = Cluster::start().await.unwrap();
    let mut stores = vec![];
    for _ in 0..CONCURRENT_SCENARIOS {
        let (clock, prefix) = (ManualClock::default(), crate::common::fresh_prefix());
        let builder = crate::common::patient(&cluster).prefix(&prefix).clock(clock.clone());
        let mut nodes = vec![];
        for node in cluster.nodes() {
            nodes.push(node.client().await.unwrap());
        }
        stores.push(OnCluster { store: builder.build().unwrap(), clock, prefix, nodes });
    }
    (stores, cluster)
}

impl DifferentialStore for OnCluster {
    type Store = ClusterStore;

    fn store(&self) -> &ClusterStore {
        &self.store
    }

    fn clock(&self) -> &ManualClock {
        &self.clock
    }

    async fn empty(&mut self) {
        for node in &mut self.nodes {
            for key in node.call(&["KEYS", &format!("{}:*", self.prefix)]).await.unwrap().list() {
                assert_eq!(node.call(&["UNLINK", &key.text()]).await.unwrap().text(), "1");
            }
        }
    }
}
