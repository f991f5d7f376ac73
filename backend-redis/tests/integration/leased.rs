//! Runs a part of the conformance suite on leases over coalesced calls: the properties about one
//! instant, one window, or the used amount. Every call that can be leased is leased. A chunk can
//! contain the whole remaining amount.
//!
//! Two groups of properties are left out. Properties with windows of microseconds do not apply,
//! because tasks return the chunks by Tokio's clock, while the clock of the suite stands still.
//! Properties with peeks do not apply, because a peek counts a chunk in flight as used.
#![allow(clippy::unwrap_used, reason = "a helper of a test that fails panics, as the test does")]

use tidegate_redis::core::layers::{CoalescedStore, LeasedStore};
use tidegate_redis::{
    Call, Charge, Lease, ManualClock, Policy, RedisStore, Share, Store, StoreExt,
};
use tidegate_testkit::{Context, Fixture, StoreWithContext, suite};

use crate::common::{builder_with, fresh_prefix, server};

type Leased = LeasedStore<CoalescedStore<RedisStore>, ManualClock>;

struct OnRedis;

impl Fixture for OnRedis {
    type Store = StoreWithContext<Leased, String>;
    type Guard = ();

    async fn open(&self, clock: ManualClock) -> (Self::Store, ()) {
        let prefix = fresh_prefix();
        let store = builder_with(&prefix).await.clock(clock.clone()).build().unwrap();
        let lease = Lease::new().hot_after(1).max_share(Share::new(1, 1).unwrap()).sliding();
        let store = store.coalesced().leased(lease.clock(clock));
        (store.layer(Context(prefix)), ())
    }

    async fn snapshot(&self, store: &Self::Store) -> Option<Vec<u8>> {
        Some(server().await.dump(&store.as_layer().0).await.unwrap())
    }
}

macro_rules! properties {
    ($($property:ident,)+) => {$(
        #[test]
        fn $property() {
            suite::$property(&OnRedis);
        }
    )+};
}

properties! {
    b03_the_cost_is_weighed_not_only_counted,
    b04_a_denied_decision_charges_no_member,
    b08_what_is_granted_is_what_is_charged,
    b12_the_second_call_sees_the_first,
    b17_no_two_policies_share_a_state,
    b24_sixty_four_callers_on_one_key_are_counted_exactly,
    callers_on_several_keys_are_counted_exactly,
    charges_in_opposite_orders_are_exact_and_end,
    a_block_shuts_out_and_is_lifted,
    an_acquire_up_to_takes_all_that_remains,
    an_id_makes_a_call_happen_once,
    concurrent_holds_never_exceed_the_limit,
}

/// Checks that calls are leased, because some of these properties would also hold without leases.
#[tokio::test]
async fn the_store_leases() {
    let (store, ()) = OnRedis.open(ManualClock::default()).await;
    let policy: Policy = "p: fixed-window 9/1h".parse().unwrap();
    let charges = [Charge::new(&policy, "s")];
    for call in 0..10 {
        let decision = store.inner().decide(Call::acquire(&charges)).await.unwrap();
        assert_eq!(decision.is_allowed(), call < 9);
    }
    assert!(store.inner().stats().local() > 2, "{:?}", store.inner().stats());
}
