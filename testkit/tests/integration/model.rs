//! The suite on the smallest store there is, forgetting at once and never.

use tidegate_testkit::{ModelStore, conformance, fixture};

conformance!(
    forgetting_at_once,
    fixture: fixture(ModelStore::new).with_snapshot(ModelStore::snapshot)
);

conformance!(keeping_all, ModelStore::keeping_all);
