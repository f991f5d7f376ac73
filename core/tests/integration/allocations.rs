//! What the stores around a store cost while it is well: no allocation.

use std::time::Duration;

use tidegate_core::{Breaker, Call, Charge, ManualClock, Policy, Share, Store, StoreExt};
use tidegate_memory::MemoryStore;

#[test]
fn a_decision_through_all_of_them_allocates_nothing() {
    let clock = ManualClock::default();
    let store = MemoryStore::builder()
        .clock(clock)
        .build()
        .timeout(Duration::from_millis(50))
        .breaker(Breaker::new())
        .or_fall_back_to(MemoryStore::new(), Share::new(1, 3).unwrap());
    let store: &dyn Store = &store;
    let policy: Policy = "p: token-bucket 500/1h".parse().unwrap();
    let charges = [Charge::new(&policy, "alice")];
    let ask = || store.decide(Call::acquire(&charges)).into_ready().unwrap().unwrap();
    assert!(ask().is_allowed());
    // Admitted and refused.
    let counted = allocation_counter::measure(|| (0..1_000).for_each(|_| drop(ask())));
    assert_eq!(counted.count_total, 0);
    assert!(ask().is_denied());
}
