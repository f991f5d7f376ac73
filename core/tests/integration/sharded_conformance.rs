//! The conformance suite on a store that supports shards: it must decide like any other store, to
//! the last field, for policies without shards.

use tidegate_core::ManualClock;
use tidegate_core::layers::ShardedStore;
use tidegate_testkit::{ModelStore, fixture};

tidegate_testkit::conformance!(
    sharded,
    fixture: fixture(|clock: ManualClock| ShardedStore::new(ModelStore::new(clock)))
        .with_snapshot(|store: &ShardedStore<ModelStore>| store.inner().snapshot())
);
