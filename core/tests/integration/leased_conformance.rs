//! The conformance suite on a store with leases.
//!
//! The first module runs the whole suite on a store that leases no call. The second module runs a
//! part of the suite on a store that leases every possible call. With leases, a store keeps only
//! the properties about one instant, one window or the used cost.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, and so do its helpers")]

use tidegate_core::layers::LeasedStore;
use tidegate_core::{Lease, ManualClock, Share, StoreExt};
use tidegate_testkit::fixture;
use tidegate_testkit::suite;

use crate::stubs::{Mood, Stub};

// No call is frequent enough for a lease, so the store decides each call.
tidegate_testkit::conformance!(
    leased,
    fixture: fixture(|clock: ManualClock| {
        let stub = Stub::new(&clock);
        stub.set(Mood::Slow);
        stub.leased(Lease::new().hot_after(u32::MAX).clock(clock))
    })
    .with_snapshot(|store: &LeasedStore<Stub, ManualClock>| store.inner().model().snapshot())
);

/// Creates a store that leases after one acquire, with chunks of up to the whole remaining amount.
/// The inner store does not answer immediately, so that the chunk arrives before the next call.
fn eager_store(clock: ManualClock) -> LeasedStore<Stub, ManualClock> {
    let stub = Stub::new(&clock);
    stub.set(Mood::Slow);
    let lease = Lease::new().hot_after(1).max_share(Share::new(1, 1).unwrap()).sliding();
    stub.leased(lease.clock(clock))
}

macro_rules! eager {
    ($($property:ident,)+) => {
        mod eager {
            use super::*;

            $(
                #[test]
                fn $property() {
                    suite::$property(&fixture(eager_store));
                }
            )+
        }
    };
}

eager! {
    b02_a_cost_above_the_limit_is_never_admitted,
    b03_the_cost_is_weighed_not_only_counted,
    b04_a_denied_decision_charges_no_member,
    b05_charges_to_one_key_add_up,
    b08_what_is_granted_is_what_is_charged,
    b12_the_second_call_sees_the_first,
    b14_a_fixed_window_ends_although_hits_go_on,
    b17_no_two_subjects_share_a_state,
    b17_no_two_policies_share_a_state,
    b17_subjects_are_as_long_as_they_may_be,
    b19_a_reset_is_of_one_subject,
    b35_zero_divides_nothing,
    b38_retry_after_seconds_round_up,
    b41_remaining_stops_at_zero,
    b31_jumps_of_years_are_survived,
    a_peek_says_what_an_acquire_would,
    a_block_shuts_out_and_is_lifted,
    a_block_of_at_least_a_span_shortens_none,
    a_refusal_blocks_and_the_block_is_not_extended,
    a_shadow_reports_and_never_refuses,
    a_block_grows_with_each_offense,
    the_end_of_a_block_restores_no_budget,
    offenses_are_forgotten_together,
    a_refusal_restarts_the_block_of_a_policy_with_restart,
    an_unblock_forgets_the_offenses,
    only_a_denial_by_the_policy_is_an_offense,
    offenses_survive_a_changed_block,
    b53_b54_a_changed_limit_keeps_what_was_used,
    b60_another_window_or_algorithm_has_a_state_of_its_own,
    b61_policies_without_a_name_share_states_only_if_equal,
    a_block_survives_a_changed_limit,
    a_wrong_call_is_an_error_and_not_a_denial,
    an_acquire_up_to_takes_all_that_remains,
    an_acquire_up_to_takes_one_amount_of_all,
    a_check_that_is_refused_blocks,
    parts_that_make_no_sense_are_errors,
    an_id_makes_a_call_happen_once,
    an_id_of_a_refused_call_is_free,
    an_id_of_another_call_is_an_error,
    concurrent_holds_never_exceed_the_limit,
    b29_a_limit_in_shards_is_all_of_the_limit,
    a_limit_of_a_tenant_is_one_for_all_its_subjects,
    a_whole_limit_is_each_subjects_own,
    b43_b55_an_error_is_an_error_and_not_a_denial,
    b44_a_call_without_an_answer_is_not_admitted,
    b24_sixty_four_callers_on_one_key_are_counted_exactly,
    b25_of_a_hundred_callers_five_pass,
    callers_on_several_keys_are_counted_exactly,
    charges_in_opposite_orders_are_exact_and_end,
    the_longest_of_concurrent_blocks_holds,
}

/// The properties would also hold without leases, so this test checks that the store leases.
#[test]
fn the_eager_store_leases() {
    use tidegate_core::{Call, Charge, Policy, Store};
    crate::run(async {
        let store = eager_store(ManualClock::default());
        let policy: Policy = "p: fixed-window 9/1h".parse().unwrap();
        let charges = [Charge::new(&policy, "s")];
        for call in 0..10 {
            assert_eq!(store.decide(Call::acquire(&charges)).await.unwrap().is_allowed(), call < 9);
        }
        assert!(store.stats().local() > 2, "{:?}", store.stats());
    });
}
