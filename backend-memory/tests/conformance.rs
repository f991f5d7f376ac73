//! The memory backend has every property that the suite asks of a store: with the usual bounds, and
//! with a single shard, where all keys meet.

use tidegate_core::{Clock, ManualClock};
use tidegate_memory::MemoryStore;
use tidegate_testkit::{Fixture, fixture};

fn usual() -> impl Fixture<Store = MemoryStore<ManualClock>> {
    fixture(|clock: ManualClock| MemoryStore::builder().clock(clock).build())
        .with_snapshot(everything)
}

fn single_shard() -> impl Fixture<Store = MemoryStore<ManualClock>> {
    fixture(|clock: ManualClock| MemoryStore::builder().clock(clock).max_keys(4096).build())
        .with_snapshot(everything)
}

/// All records that matter, in an order that does not depend on where they lie.
fn everything(store: &MemoryStore<impl Clock>) -> Vec<u8> {
    // What has recovered may go at any call, which is not that call's doing.
    store.sweep();
    let mut records = Vec::new();
    store.for_each(|tenant, subject, record| {
        records.push(format!("{tenant:?} {subject:?} {record:?}\n"));
    });
    records.sort();
    records.concat().into_bytes()
}

tidegate_testkit::conformance!(with_the_usual_bounds, fixture: crate::usual());
tidegate_testkit::conformance!(with_a_single_shard, fixture: crate::single_shard());
