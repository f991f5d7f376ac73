//! The same calls, at the same virtual time, on a real cluster and through the core: identical decisions.
//! The subjects lie in two slots, of different nodes.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a helper of a test that fails panics, as the test does"
)]

use tidegate_cluster::{ClusterStore, ManualClock};
use tidegate_testkit::differential::DifferentialStore;
use tidegate_testkit::servers::{Client, Cluster};

tidegate_testkit::differential!(cluster_store, stores);

/// How many scenarios are played at the same time, each on keys of its own.
const AT_ONCE: usize = 8;

/// A store, with a prefix of its own.
struct OnCluster {
    store: ClusterStore,
    clock: ManualClock,
    prefix: String,
    nodes: Vec<Client>,
}

async fn stores() -> (Vec<OnCluster>, Cluster) {
    // One for each test, as keys are looked for by their prefix: the fewer there are, the faster.
    let cluster = Cluster::start().await.unwrap();
    let mut stores = vec![];
    for _ in 0..AT_ONCE {
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

    /// The scripts have been tried on one Redis; what is to be tried here are the ways to the slots.
    fn operations() -> usize {
        20_000
    }

    async fn empty(&mut self) {
        for node in &mut self.nodes {
            for key in node.call(&["KEYS", &format!("{}:*", self.prefix)]).await.unwrap().list() {
                assert_eq!(node.call(&["UNLINK", &key.text()]).await.unwrap().text(), "1");
            }
        }
    }
}
