//! The cluster that the tests of one program share, and stores on it.
#![allow(clippy::unwrap_used, reason = "a helper of a test that fails panics, as the test does")]

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tidegate_cluster::{ClusterStore, ClusterStoreBuilder, ManualClock, Policy};
use tidegate_testkit::servers::Cluster;
use tokio::sync::OnceCell;

/// The cluster of this program: three primaries. It ends with the program.
pub(crate) async fn cluster() -> &'static Cluster {
    static CLUSTER: OnceCell<Cluster> = OnceCell::const_new();
    CLUSTER.get_or_init(async || Cluster::start().await.unwrap()).await
}

/// A prefix that no other store has.
pub(crate) fn fresh_prefix() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("t{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A store on a cluster. The machine that runs the tests may be slow; few of them are about a timeout.
pub(crate) fn patient(cluster: &Cluster) -> ClusterStoreBuilder {
    let builder = ClusterStore::builder().urls(cluster.urls());
    builder.response_timeout(Duration::from_secs(30)).connect_timeout(Duration::from_secs(10))
}

/// A store on the shared cluster, with keys of its own.
pub(crate) async fn builder() -> ClusterStoreBuilder {
    patient(cluster().await).prefix(fresh_prefix())
}

/// The same, in virtual time.
pub(crate) async fn store_at(clock: &ManualClock) -> ClusterStore {
    builder().await.clock(clock.clone()).build().unwrap()
}

pub(crate) fn policy(text: &str) -> Policy {
    text.parse().unwrap()
}

/// A subject without a tenant that is kept on the node of this number, and not in the slot of another.
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
