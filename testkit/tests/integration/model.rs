//! The suite on the smallest store, which drops recovered states immediately, and on the same
//! store that never drops a state.

use tidegate_testkit::{ModelStore, conformance, fixture};

conformance!(
    dropping_recovered,
    fixture: fixture(ModelStore::new).with_snapshot(ModelStore::snapshot)
);

conformance!(keeping_all, ModelStore::keeping_all);
