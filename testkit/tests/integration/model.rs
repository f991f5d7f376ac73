//! Tests of the conformance suite on the model store, the smallest store. One model store drops
//! recovered states immediately, and the other never drops a state.

use tidegate_testkit::{ModelStore, conformance, fixture};

conformance!(
    dropping_recovered,
    fixture: fixture(ModelStore::new).with_snapshot(ModelStore::snapshot)
);

conformance!(keeping_all, ModelStore::keeping_all);
