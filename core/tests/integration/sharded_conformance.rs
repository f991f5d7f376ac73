//! A store that keeps limits in shards is a store like any other, to the last field, but for the
//! policies that have them.

use tidegate_core::ManualClock;
use tidegate_core::layers::ShardedStore;
use tidegate_testkit::{ModelStore, fixture};

tidegate_testkit::conformance!(
    sharded,
    fixture: fixture(|clock: ManualClock| ShardedStore::new(ModelStore::new(clock)))
        .with_snapshot(|store: &ShardedStore<ModelStore>| store.inner().snapshot())
);
