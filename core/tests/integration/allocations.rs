//! Tests that a decision allocates no memory in the layers around a store while the store does not
//! fail.

use std::time::Duration;

use tidegate_core::{Breaker, Call, Charge, Lease, ManualClock, Policy, Share, Store, StoreExt};
use tidegate_memory::MemoryStore;
use tokio::task::yield_now;

#[test]
fn a_decision_through_several_layers_allocates_nothing() {
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
    let decide = || store.decide(Call::acquire(&charges)).into_ready().unwrap().unwrap();
    assert!(decide().is_allowed());
    // The limit is 500, so the 1,000 measured decisions are admissions at first and refusals later.
    let counted = allocation_counter::measure(|| (0..1_000).for_each(|_| drop(decide())));
    assert_eq!(counted.count_total, 0);
    assert!(decide().is_denied());
}

#[test]
fn an_admission_from_a_lease_allocates_nothing() {
    crate::run(async {
        let lease = Lease::new().hot_after(2).max_share(Share::new(1, 2).unwrap());
        let store = MemoryStore::new().leased(lease.clock(ManualClock::default()));
        let policies: [Policy; 2] = ["p: token-bucket 100000/1h", "q: fixed-window 100000/1h"]
            .map(|text| text.parse().unwrap());
        let charges = policies.each_ref().map(|policy| Charge::new(policy, "alice"));
        for _ in 0..60 {
            assert!(store.decide(Call::acquire(&charges)).await.unwrap().is_allowed());
            yield_now().await;
        }
        let (passed, chunks) = (store.stats().passed(), store.stats().chunks());
        let decide = || drop(store.decide(Call::acquire(&charges)).into_ready().unwrap().unwrap());
        let counted = allocation_counter::measure(decide);
        assert_eq!((store.stats().passed(), store.stats().chunks()), (passed, chunks));
        assert_eq!(counted.count_total, 0);
    });
}
