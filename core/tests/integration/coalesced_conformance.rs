//! The conformance suite on a coalesced store: it must decide like any other store, to the last
//! field.

use tidegate_core::layers::CoalescedStore;
use tidegate_core::{ManualClock, StoreExt};
use tidegate_testkit::fixture;

use crate::stubs::{Mood, Stub};

// Calls to a store that answers immediately are not batched. Therefore this store answers slowly.
tidegate_testkit::conformance!(
    coalesced,
    fixture: fixture(|clock: ManualClock| {
        let stub = Stub::new(&clock);
        stub.set(Mood::Slow);
        stub.coalesced()
    })
    .with_snapshot(|store: &CoalescedStore<Stub>| store.inner().model().snapshot())
);
