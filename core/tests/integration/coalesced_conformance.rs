//! A store whose callers share batches is a store like any other, to the last field.

use tidegate_core::layers::CoalescedStore;
use tidegate_core::{ManualClock, StoreExt};
use tidegate_testkit::fixture;

use crate::stubs::{Mood, Stub};

// Nothing is batched with a store that answers immediately, so this one takes its time.
tidegate_testkit::conformance!(
    coalesced,
    fixture: fixture(|clock: ManualClock| {
        let stub = Stub::new(&clock);
        stub.set(Mood::Slow);
        stub.coalesced()
    })
    .with_snapshot(|store: &CoalescedStore<Stub>| store.inner().model().snapshot())
);
