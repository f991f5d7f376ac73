//! Runs the conformance suite on a real cluster in virtual time. The subjects of the suite are in
//! many slots, so most calls with several charges are calls across slots.
#![allow(clippy::unwrap_used, reason = "a helper of a test that fails panics, as the test does")]

use tidegate_cluster::{ClusterStore, ManualClock, StoreExt};
use tidegate_testkit::{Context, Fixture, StoreWithContext};

use crate::common::{cluster, fresh_prefix, patient};

tidegate_testkit::conformance!(cluster_store, fixture: OnCluster);

/// Creates stores on the shared cluster. Each store has its own prefix.
struct OnCluster;

impl Fixture for OnCluster {
    type Store = StoreWithContext<ClusterStore, String>;
    type Guard = ();

    async fn open(&self, clock: ManualClock) -> (Self::Store, ()) {
        let prefix = fresh_prefix();
        let builder = patient(cluster().await).prefix(&prefix).clock(clock);
        (builder.build().unwrap().layer(Context(prefix)), ())
    }

    async fn open_again(&self, store: &Self::Store, clock: ManualClock) -> Option<Self::Store> {
        let prefix = store.as_layer().0.clone();
        let builder = patient(cluster().await).prefix(&prefix).clock(clock);
        Some(builder.build().unwrap().layer(Context(prefix)))
    }

    async fn snapshot(&self, store: &Self::Store) -> Option<Vec<u8>> {
        Some(crate::common::dump(cluster().await, &store.as_layer().0).await)
    }
}
