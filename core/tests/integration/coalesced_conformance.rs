//! The conformance suite on a coalesced store. This store must decide like any other store, in all
//! fields of the decision.

use tidegate_core::layers::CoalescedStore;
use tidegate_core::{ManualClock, StoreExt};
use tidegate_testkit::fixture;

use crate::stubs::{Mood, Stub};

// The inner store of this suite answers slowly, because calls to a store that answers immediately
// are not batched.
tidegate_testkit::conformance!(
    coalesced,
    fixture: fixture(|clock: ManualClock| {
        let stub = Stub::new(&clock);
        stub.set(Mood::Slow);
        stub.coalesced()
    })
    .with_snapshot(|store: &CoalescedStore<Stub>| store.inner().model().snapshot())
);
