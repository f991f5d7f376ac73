//! The conformance suite on a deny cache that stores only exact denials. A store with this cache
//! must decide like any other store, in all fields of the decision.

use tidegate_core::layers::DenyCacheStore;
use tidegate_core::{DenyCache, ManualClock, StoreExt};
use tidegate_testkit::{ModelStore, fixture};

type Store = DenyCacheStore<ModelStore, ManualClock>;

// The model store removes a state as soon as the state has recovered. The suite compares the states
// of this store byte for byte.
tidegate_testkit::conformance!(
    deny_cache,
    fixture: fixture(|clock: ManualClock| -> Store {
        let cache = DenyCache::new().max_bytes(1 << 18).only_exact().clock(clock.clone());
        ModelStore::new(clock).deny_cache(cache)
    })
    .with_snapshot(|store: &Store| store.inner().snapshot())
);
