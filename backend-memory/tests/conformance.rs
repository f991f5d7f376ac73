//! Runs the conformance suite on the memory store, once with the default bounds, and once with a
//! single shard.

use tidegate_core::{Clock, ManualClock};
use tidegate_memory::MemoryStore;
use tidegate_testkit::{Fixture, fixture};

fn default_bounds() -> impl Fixture<Store = MemoryStore<ManualClock>> {
    fixture(|clock: ManualClock| MemoryStore::builder().clock(clock).build())
        .with_snapshot(snapshot)
}

fn single_shard() -> impl Fixture<Store = MemoryStore<ManualClock>> {
    fixture(|clock: ManualClock| MemoryStore::builder().clock(clock).max_keys(4096).build())
        .with_snapshot(snapshot)
}

/// Returns all records of the store that have not expired, in sorted order.
fn snapshot(store: &MemoryStore<impl Clock>) -> Vec<u8> {
    // Any call can remove expired records. The suite must not see this removal as an effect of the
    // call, so all expired records are removed first.
    store.sweep();
    let mut records = Vec::new();
    store.for_each(|tenant, subject, record| {
        records.push(format!("{tenant:?} {subject:?} {record:?}\n"));
    });
    records.sort();
    records.concat().into_bytes()
}

tidegate_testkit::conformance!(with_default_bounds, fixture: crate::default_bounds());
tidegate_testkit::conformance!(with_a_single_shard, fixture: crate::single_shard());
