//! The conformance suite: properties that every store must have.
//!
//! [`conformance!`](crate::conformance) generates a test for each property. Without the macro, the
//! function [`check`] checks one property by name, [`check_all`] checks all properties, and
//! [`properties`] lists their names.
//!
//! A property consists of one or more cases. Each case opens its own store, with a clock that only
//! this case moves. No case sleeps.
//!
//! The suite uses only policies that the store [supports](tidegate_core::Store::supports). It skips
//! a case that needs an unsupported policy, and draws another policy in a random case. If all cases
//! of a property are skipped, the property passes and prints `not run: …`. If the store supports
//! none of the suite's policies, all properties that need a policy fail.
//!
//! # What the properties check
//!
//! The first table lists defects that released rate limiters had, by their ids, such as B01. The
//! file `docs/defects.md` in the repository describes each defect. The second table lists the rules
//! that the decisions of a store must follow.
//!
//! | id | checked by |
//! |---|---|
//! | B01 | `b01_a_denial_writes_nothing`; byte for byte if the fixture has a snapshot |
//! | B02 | `b02_a_cost_above_the_limit_is_never_admitted` |
//! | B03 | `b03_the_cost_is_weighed_not_only_counted` |
//! | B04 | `b04_a_denied_decision_charges_no_member`, `charges_in_opposite_orders_are_exact_and_end` |
//! | B05 | `b05_charges_to_one_key_add_up` |
//! | B06 | `b06_a_refund_stops_at_full_and_creates_nothing`, `refunds_and_acquires_conserve_the_budget` |
//! | B07 | `b07_nothing_is_granted_in_debt` |
//! | B08 | `b08_what_is_granted_is_what_is_charged` |
//! | B09 | `b09_the_fraction_of_a_token_is_kept` |
//! | B10 | `b10_remaining_is_rounded_down` |
//! | B11, B15 | `b11_b15_every_state_ends_within_the_stated_bound` checks the verdicts; the tests of each store check that the store also drops the state |
//! | B12 | `b12_the_second_call_sees_the_first` |
//! | B13 | `b13_a_state_lives_until_it_no_longer_matters`, `fresh_recovered_and_reset_keys_decide_alike` |
//! | B14 | `b14_a_fixed_window_ends_although_hits_go_on` |
//! | B16 | the tests of the Redis stores (a value and its expiry are written in one step) |
//! | B17 | the five properties that begin with `b17_` |
//! | B18 | the tests of the Redis stores (a foreign value under a Tidegate key) |
//! | B19 | `b19_a_reset_is_of_one_subject`; the benchmarks of each store check that a reset costs O(1) |
//! | B20 | the tests of the Redis stores (the server evicts one key) |
//! | B21, B22, B23 | the whole suite on a Redis Cluster, while scripts are flushed and replicas are promoted |
//! | B24 | `b24_sixty_four_callers_on_one_key_are_counted_exactly` |
//! | B25 | `b25_of_a_hundred_callers_five_pass` |
//! | B26 | `b26_the_first_calls_after_expiry_do_not_race`, and the property of B25, which uses keys without a state |
//! | B27 | `b27_requests_of_one_instant_are_all_counted` |
//! | B28 | `b28_a_log_of_a_million_is_exact` |
//! | B29 | `b29_a_limit_in_shards_is_all_of_the_limit`; the tests of the core check that the shares sum to the limit |
//! | B30 | `b30_the_clock_that_counts_is_the_stores` |
//! | B31 | the two properties that begin with `b31_`, and the seven `…_under_a_jumping_clock` |
//! | B32 | `b32_fractions_do_not_drift` |
//! | B33 | `b33_large_numbers_are_exact` |
//! | B34 | `b34_a_block_of_sixty_days_lasts_sixty_days` |
//! | B35 | `b35_zero_divides_nothing` |
//! | B36 | `b36_intervals_below_a_microsecond_do_not_truncate` |
//! | B37 | `b37_fifty_thousand_a_second_pass` |
//! | B38 | `b38_retry_after_seconds_round_up`; the tests of the HTTP middleware check the header |
//! | B39 | the two properties that begin with `b39_`, and `b02_…` for a cost that can never be admitted |
//! | B40 | `b40_the_end_of_a_window_is_outside_of_it` |
//! | B41 | `b41_remaining_stops_at_zero` |
//! | B42 | `b42_a_failed_call_is_charged_at_most_once` |
//! | B43, B55 | `b43_b55_an_error_is_an_error_and_not_a_denial`, `a_wrong_call_is_an_error_and_not_a_denial`; metrics have their own tests |
//! | B44 | `b44_a_call_without_an_answer_is_not_admitted`; the layers that degrade have their own tests |
//! | B45, B47 | the tests of the deny cache and of the fallback |
//! | B46 | the tests of each store, because each store has its own bound |
//! | B48 | `b48_building_a_limiter_waits_for_nothing`, and the tests of the timeout layer |
//! | B49, B50 | the tests of leases and of their synchronization |
//! | B51, B52 | the tests of waiting callers, and of all code that starts tasks |
//! | B53, B54 | `b53_b54_a_changed_limit_keeps_what_was_used`, `b53_changed_policies_are_decided_as_by_the_oracle` |
//! | B59 | `b59_many_takes_are_undone_in_full` |
//! | B60 | `b60_another_window_or_algorithm_has_a_state_of_its_own`, `b53_changed_policies_are_decided_as_by_the_oracle` |
//! | B61 | `b61_policies_without_a_name_share_states_only_if_equal` |
//! | B100 | `b100_a_settlement_never_refunds_other_callers` |
//!
//! | rule | checked by |
//! |---|---|
//! | 1 the same inputs get the same answer | `the_same_calls_get_the_same_answers`, and every trace against the [oracle](crate::Oracle) |
//! | 2 a denial writes nothing | B01, `a_peek_a_cost_of_zero_and_a_failed_call_write_nothing` |
//! | 3 exactly the limit is admitted | `never_more_is_admitted_than_the_policy_says`, `the_long_run_rate_is_met_however_often_it_is_asked` |
//! | 4 verdicts keep their promises | B39, `a_cost_of_remaining_passes_and_one_more_does_not` |
//! | 5 fresh, recovered and reset states decide alike | B13, `fresh_recovered_and_reset_keys_decide_alike` |
//! | 6 clocks that jump | B31, `the_ends_of_time_are_times_like_any_other` |
//! | 7 calls with several charges | B04, B05, `several_charges_are_decided_as_by_the_oracle` |
//! | 8 changes of policies | B53, B60, `a_block_survives_a_changed_limit`, `a_lowered_rate_counts_from_the_next_charge` |
//! | 9 blocks and shadows | `a_refusal_blocks_and_the_block_is_not_extended`, `a_penalty_is_all_that_a_denial_writes`, `a_shadow_reports_and_never_refuses` |
//! | fair pools | the eight properties in `fair_pools`, and every trace |
//! | blocks that grow or restart | the ten properties in `blocks`, and every trace |
//! | policies that count failures | the four properties in `attempts`, and `lapses_are_decided_as_by_the_oracle` |
//! | grants, rolled-over quota, pro-rated quota, credits | the ten properties in `grants`, and every trace of a quota |
//! | charge, acquire up to and check-only charges | the nine properties in `parts`, and every trace |
//! | a hold is settled once, and refunds at most its unspent part | the properties in `holds` and `hold_scenarios`; skipped if the store supports no ids |
//! | a call with an id is executed once | the properties that begin with `an_id_`; skipped if the store supports no ids |
//! | an undo refunds its own charge only | the eight properties in `undo`: `an_undo_at_once_leaves_what_was_there_before`, …, `never_more_is_admitted_whatever_is_undone` |
#![expect(
    clippy::panic,
    clippy::expect_used,
    reason = "a property that does not hold panics, because tests fail by panicking"
)]

mod alternatives;
mod attempts;
mod blocks;
mod charging;
mod concurrent;
mod contract;
mod erased;
mod expiry;
mod failure;
mod fair_pools;
pub(crate) mod fixture;
mod grants;
mod harness;
mod hold_scenarios;
mod holds;
mod ids;
mod numbers;
mod operations;
mod parts;
mod report;
mod shards;
mod time;
mod traces;
mod undo;

use contract::Guarantee;
use erased::Erased;
use fixture::Fixture;

crate::__each_property! { __list }

/// Checks all properties.
///
/// # Panics
///
/// Panics if a property does not hold for the store.
pub fn check_all<F: Fixture>(fixture: &F) {
    properties().iter().for_each(|property| check(fixture, property));
}

/// Generates a module with a test for each property of the suite.
///
/// The first argument is the name of the module. The second argument is a closure that creates an
/// empty store with the given clock. A store that needs more than a closure passes a
/// [`Fixture`](crate::Fixture) after `fixture:`.
///
/// ```
/// use tidegate_testkit::ModelStore;
///
/// tidegate_testkit::conformance!(model_store, |clock| ModelStore::new(clock));
///
/// tidegate_testkit::conformance!(
///     model_store_byte_for_byte,
///     fixture: tidegate_testkit::fixture(ModelStore::new).with_snapshot(ModelStore::snapshot)
/// );
/// # fn main() {}
/// ```
#[macro_export]
macro_rules! conformance {
    ($module:ident, fixture: $fixture:expr $(,)?) => {
        mod $module {
            use super::*;

            // All tests of the module call this function, so that their fixtures have one type. If
            // each test had its own closure, the suite would be compiled again for the type of each
            // closure.
            fn fixture_under_test() -> impl $crate::Fixture {
                $fixture
            }

            $crate::__each_property! { __tests fixture_under_test() }
        }
    };
    ($module:ident, $make:expr $(,)?) => {
        $crate::conformance!($module, fixture: $crate::fixture($make));
    };
}

/// Calls another macro of this crate with the list of all properties.
#[doc(hidden)]
#[macro_export]
macro_rules! __each_property {
    ($macro_name:ident $($arguments:tt)*) => {
        $crate::$macro_name! {
            ($($arguments)*)
            charging::b01_a_denial_writes_nothing,
            charging::a_peek_a_cost_of_zero_and_a_failed_call_write_nothing,
            charging::b02_a_cost_above_the_limit_is_never_admitted,
            charging::b03_the_cost_is_weighed_not_only_counted,
            charging::b04_a_denied_decision_charges_no_member,
            charging::b05_charges_to_one_key_add_up,
            charging::b06_a_refund_stops_at_full_and_creates_nothing,
            charging::b07_nothing_is_granted_in_debt,
            charging::b08_what_is_granted_is_what_is_charged,
            charging::b09_the_fraction_of_a_token_is_kept,
            charging::b10_remaining_is_rounded_down,
            expiry::b11_b15_every_state_ends_within_the_stated_bound,
            expiry::b12_the_second_call_sees_the_first,
            expiry::b13_a_state_lives_until_it_no_longer_matters,
            expiry::fresh_recovered_and_reset_keys_decide_alike,
            expiry::b14_a_fixed_window_ends_although_hits_go_on,
            expiry::b17_no_two_subjects_share_a_state,
            expiry::b17_no_two_policies_share_a_state,
            expiry::b17_subjects_are_as_long_as_they_may_be,
            expiry::b19_a_reset_is_of_one_subject,
            numbers::b27_requests_of_one_instant_are_all_counted,
            numbers::b28_a_log_of_a_million_is_exact,
            numbers::b32_fractions_do_not_drift,
            numbers::b33_large_numbers_are_exact,
            numbers::b34_a_block_of_sixty_days_lasts_sixty_days,
            numbers::b35_zero_divides_nothing,
            numbers::b36_intervals_below_a_microsecond_do_not_truncate,
            numbers::b37_fifty_thousand_a_second_pass,
            numbers::b38_retry_after_seconds_round_up,
            numbers::b41_remaining_stops_at_zero,
            numbers::the_ends_of_time_are_times_like_any_other,
            time::b30_the_clock_that_counts_is_the_stores,
            time::b31_a_step_back_mints_nothing_and_costs_at_most_the_step,
            time::b31_jumps_of_years_are_survived,
            time::b39_waiting_retry_after_succeeds_and_less_does_not,
            time::b39_the_wait_of_a_quota_ends_in_any_time_zone,
            time::a_cost_of_remaining_passes_and_one_more_does_not,
            time::b40_the_end_of_a_window_is_outside_of_it,
            time::never_more_is_admitted_than_the_policy_says,
            time::the_long_run_rate_is_met_however_often_it_is_asked,
            operations::a_peek_says_what_an_acquire_would,
            operations::a_batch_is_answered_as_its_calls_one_by_one,
            operations::a_reservation_books_the_next_place,
            operations::reserving_what_is_no_bucket_is_unsupported,
            operations::a_block_shuts_out_and_is_lifted,
            operations::a_block_of_at_least_a_span_shortens_none,
            operations::a_refusal_blocks_and_the_block_is_not_extended,
            operations::a_penalty_is_all_that_a_denial_writes,
            operations::a_shadow_reports_and_never_refuses,
            alternatives::the_first_policy_that_admits_pays,
            alternatives::a_list_is_charged_with_the_whole_call_or_not_at_all,
            alternatives::each_list_has_a_payer,
            alternatives::a_refused_list_waits_for_its_first_admission,
            alternatives::a_blocked_subject_of_a_list_refuses_the_call,
            alternatives::a_blocked_alternative_waits_only_for_its_block,
            alternatives::a_hold_keeps_the_charge_that_pays,
            alternatives::slots_are_alternatives,
            alternatives::lists_that_make_no_sense_are_errors,
            fair_pools::the_unfairness_of_a_pool_is_bounded,
            fair_pools::a_member_alone_can_use_the_whole_pool,
            fair_pools::members_divide_a_pool_by_their_weights,
            fair_pools::a_pool_with_fewer_units_than_members_admits_one_each,
            fair_pools::only_a_refusal_by_the_pool_is_a_demand,
            fair_pools::a_hold_of_a_member_is_settled_in_the_pool,
            fair_pools::a_refund_of_a_member_changes_no_hold_of_another_member,
            fair_pools::two_tenants_have_two_pools,
            fair_pools::calls_that_make_no_sense_for_a_pool_are_errors,
            blocks::a_block_grows_with_each_offense,
            blocks::the_end_of_a_block_restores_no_budget,
            blocks::offenses_are_forgotten_together,
            blocks::a_refusal_restarts_the_block_of_a_policy_with_restart,
            blocks::a_restart_that_prolongs_no_block_changes_nothing,
            blocks::an_unblock_forgets_the_offenses,
            blocks::only_a_denial_by_the_policy_is_an_offense,
            blocks::offenses_survive_a_changed_block,
            blocks::holds_keep_the_offenses,
            blocks::offenses_outlive_the_last_hold,
            attempts::a_denial_by_open_attempts_is_no_offense,
            attempts::a_lapsed_attempt_is_a_failure,
            attempts::an_attempt_that_is_open_at_a_reset_counts_if_it_fails,
            attempts::a_locked_account_charges_no_address,
            grants::a_grant_is_made_once_per_id,
            grants::what_ends_first_is_spent_first,
            grants::a_refund_returns_what_was_spent_last,
            grants::a_hold_over_the_end_of_a_grant_refunds_nothing,
            grants::a_state_has_at_most_sixteen_grants,
            grants::a_grant_that_is_not_valid_is_an_error,
            grants::unused_quota_rolls_over_once,
            grants::a_wait_counts_on_what_will_roll_over,
            grants::the_first_window_is_pro_rated,
            grants::credits_last_until_they_are_spent,
            operations::b53_b54_a_changed_limit_keeps_what_was_used,
            operations::b60_another_window_or_algorithm_has_a_state_of_its_own,
            operations::b61_policies_without_a_name_share_states_only_if_equal,
            operations::a_block_survives_a_changed_limit,
            operations::a_lowered_rate_counts_from_the_next_charge,
            operations::a_wrong_call_is_an_error_and_not_a_denial,
            operations::phased_windows_end_at_times_of_their_own,
            parts::a_charge_beyond_the_limit_is_paid_for,
            parts::a_charge_stops_at_what_a_state_can_hold,
            parts::a_charge_to_a_full_log_counts_from_now,
            parts::a_charge_passes_blocks_and_shadows,
            parts::an_acquire_up_to_takes_all_that_remains,
            parts::an_acquire_up_to_takes_one_amount_of_all,
            parts::a_check_takes_nothing_and_refuses_the_whole,
            parts::a_check_that_is_refused_blocks,
            parts::parts_that_make_no_sense_are_errors,
            ids::an_id_makes_a_call_happen_once,
            ids::an_id_is_forgotten_after_its_time,
            ids::an_id_of_a_refused_call_is_free,
            ids::an_id_of_another_call_is_an_error,
            ids::an_id_belongs_to_a_tenant_or_a_subject,
            ids::an_id_is_any_bytes,
            ids::an_id_that_is_not_valid_is_an_error,
            ids::an_id_in_a_batch_makes_a_call_happen_once,
            ids::an_id_is_charged_once_whatever_is_lost,
            ids::an_id_of_many_callers_is_charged_once,
            holds::holds_are_decided_as_by_the_oracle,
            holds::holds_of_several_charges_are_decided_as_by_the_oracle,
            holds::lapses_are_decided_as_by_the_oracle,
            holds::slots_are_decided_as_by_the_oracle,
            holds::a_lapsed_hold_is_given_back_by_its_policy,
            holds::a_wait_counts_on_what_will_lapse,
            holds::a_peek_says_what_is_held_and_not_spent,
            holds::b100_a_settlement_never_refunds_other_callers,
            holds::a_hold_is_settled_once,
            holds::a_settled_hold_has_one_settlement,
            holds::a_hold_expires_after_twice_its_time,
            holds::a_hold_is_extended_in_its_time,
            holds::a_hold_is_settled_so_far_in_totals,
            holds::a_hold_gives_back_no_more_than_is_owed,
            holds::holds_never_make_room_for_more,
            holds::several_charges_are_held_together,
            holds::a_shadow_that_refuses_holds_nothing,
            holds::as_much_as_there_is_can_be_held,
            holds::a_made_up_hold_gives_nothing_back,
            holds::slots_are_freed_after_a_change_of_their_limit,
            holds::a_hold_that_is_not_valid_is_an_error,
            holds::a_hold_of_a_changed_policy_is_settled_where_it_was_taken,
            holds::a_hold_is_settled_once_whatever_is_lost,
            holds::a_hold_of_many_callers_is_settled_once,
            hold_scenarios::concurrent_holds_never_exceed_the_limit,
            hold_scenarios::holds_are_settled_through_any_limiter,
            hold_scenarios::a_lost_settlement_stays_charged_and_ends_by_itself,
            hold_scenarios::a_late_settlement_charges_the_difference_once,
            hold_scenarios::a_settlement_says_if_its_hold_is_out_of_reach,
            hold_scenarios::a_repeated_settlement_charges_once,
            hold_scenarios::an_outage_admits_no_hold_and_settles_none,
            undo::an_undo_at_once_leaves_what_was_there_before,
            undo::what_is_undone_at_once_is_as_if_never_taken,
            undo::an_undo_later_takes_nothing_from_others,
            undo::b59_many_takes_are_undone_in_full,
            undo::what_was_not_taken_is_not_undone,
            undo::an_undo_leaves_blocks_alone,
            undo::a_log_undoes_what_is_among_its_newest_records,
            undo::never_more_is_admitted_whatever_is_undone,
            shards::b29_a_limit_in_shards_is_all_of_the_limit,
            shards::a_limit_of_a_tenant_is_one_for_all_its_subjects,
            shards::a_whole_limit_is_each_subjects_own,
            traces::fixed_window_decides_as_the_oracle,
            traces::fixed_window_under_a_jumping_clock,
            traces::sliding_log_decides_as_the_oracle,
            traces::sliding_log_under_a_jumping_clock,
            traces::sliding_counter_decides_as_the_oracle,
            traces::sliding_counter_under_a_jumping_clock,
            traces::token_bucket_decides_as_the_oracle,
            traces::token_bucket_under_a_jumping_clock,
            traces::interval_bucket_decides_as_the_oracle,
            traces::interval_bucket_under_a_jumping_clock,
            traces::gcra_decides_as_the_oracle,
            traces::gcra_under_a_jumping_clock,
            traces::quota_decides_as_the_oracle,
            traces::quota_under_a_jumping_clock,
            traces::several_charges_are_decided_as_by_the_oracle,
            traces::several_charges_under_a_jumping_clock,
            traces::b53_changed_policies_are_decided_as_by_the_oracle,
            traces::batches_are_decided_as_by_the_oracle,
            traces::b17_hostile_subjects_are_decided_as_by_the_oracle,
            traces::the_same_calls_get_the_same_answers,
            failure::b42_a_failed_call_is_charged_at_most_once,
            failure::b43_b55_an_error_is_an_error_and_not_a_denial,
            failure::b44_a_call_without_an_answer_is_not_admitted,
            failure::b48_building_a_limiter_waits_for_nothing,
            concurrent::b24_sixty_four_callers_on_one_key_are_counted_exactly,
            concurrent::b25_of_a_hundred_callers_five_pass,
            concurrent::b26_the_first_calls_after_expiry_do_not_race,
            concurrent::callers_on_several_keys_are_counted_exactly,
            concurrent::charges_in_opposite_orders_are_exact_and_end,
            concurrent::refunds_and_acquires_conserve_the_budget,
            concurrent::concurrent_reservations_get_places_of_their_own,
            concurrent::the_longest_of_concurrent_blocks_holds,
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __tests {
    (($fixture:expr) $($file:ident::$name:ident,)+) => {$(
        #[test]
        fn $name() {
            $crate::suite::$name(&$fixture);
        }
    )+};
}

#[doc(hidden)]
#[macro_export]
macro_rules! __list {
    (() $($file:ident::$name:ident,)+) => {
        $(
            #[doc = concat!("Checks the property `", stringify!($name), "`.")]
            ///
            /// # Panics
            ///
            /// Panics if the store does not have the property.
            pub fn $name<F: Fixture>(fixture: &F) {
                // `erased` is not generic, so the code of the property is compiled in this crate,
                // and not in the crate of each store.
                fn erased(fixture: &Erased<'_>) {
                    let property = stringify!($name);
                    report::run(
                        property,
                        Guarantee::tested_by(property),
                        &|| $file::$name(fixture),
                        &|| harness::supports_any(fixture),
                    );
                }
                erased(&Erased::new(fixture));
            }
        )+

        /// Returns the names of all properties.
        #[must_use]
        pub fn properties() -> &'static [&'static str] {
            &[$(stringify!($name)),+]
        }

        /// Checks one property by name.
        ///
        /// # Panics
        ///
        /// Panics if the store does not have the property, or if there is no property of this
        /// name.
        pub fn check<F: Fixture>(fixture: &F, property: &str) {
            match property {
                $(stringify!($name) => $name(fixture),)+
                _ => panic!("there is no property `{property}`; it must be one of {:?}", properties()),
            }
        }
    };
}
