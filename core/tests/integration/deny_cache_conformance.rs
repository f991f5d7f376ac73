//! A store behind a deny cache is a store like any other, to the last field, if only exact answers
//! are remembered.

use tidegate_core::layers::DenyCacheStore;
use tidegate_core::{DenyCache, ManualClock, StoreExt};
use tidegate_testkit::{ModelStore, fixture};

type Store = DenyCacheStore<ModelStore, ManualClock>;

// The store that forgets at the first moment at which it may, looked at byte for byte.
tidegate_testkit::conformance!(
    deny_cache,
    fixture: fixture(|clock: ManualClock| -> Store {
        let cache = DenyCache::new().max_bytes(1 << 18).only_exact().clock(clock.clone());
        ModelStore::new(clock).deny_cache(cache)
    })
    .with_snapshot(|store: &Store| store.inner().snapshot())
);
