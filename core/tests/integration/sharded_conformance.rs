//! The conformance suite on a store that supports shards. For policies without shards, this store
//! must decide like any other store, in all fields of the decision.

use tidegate_core::ManualClock;
use tidegate_core::layers::ShardedStore;
use tidegate_testkit::{ModelStore, fixture};

tidegate_testkit::conformance!(
    sharded,
    fixture: fixture(|clock: ManualClock| ShardedStore::new(ModelStore::new(clock)))
        .with_snapshot(|store: &ShardedStore<ModelStore>| store.inner().snapshot())
);
