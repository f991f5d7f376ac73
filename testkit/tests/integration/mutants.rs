//! Tests of the conformance suite on stores with a defect. The call of the macro `caught!` lists
//! each defect, and the properties that must find the defect.
#![expect(clippy::expect_used, reason = "a test")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::broken::{Broken, Defect};
use tidegate_core::ManualClock;
use tidegate_testkit::Fixture;
use tidegate_testkit::suite::{check, check_all};

/// A fixture that opens stores with a defect.
struct BrokenFixture(Defect);

impl Fixture for BrokenFixture {
    type Store = Broken;
    type Guard = ();

    async fn open(&self, clock: ManualClock) -> (Broken, ()) {
        (Broken::new(self.0, clock), ())
    }

    async fn snapshot(&self, store: &Broken) -> Option<Vec<u8>> {
        Some(store.snapshot())
    }

    fn patience(&self) -> Duration {
        Duration::from_secs(5)
    }

    /// Returns `None`, so that no seeds of failing cases are saved. These stores fail on purpose.
    fn regressions(&self) -> Option<PathBuf> {
        None
    }
}

/// Returns `true` if a property fails on a store with a defect. Panics if the message of the
/// failure does not fit on a screen, or does not name the broken guarantee.
fn catches(property: &str, defect: Defect) -> bool {
    let result = catch_unwind(AssertUnwindSafe(|| check(&BrokenFixture(defect), property)));
    let Err(payload) = result else { return false };
    let message = payload.downcast::<String>().expect("a message");
    fits_on_a_screen(&message);
    assert!(message.starts_with(property), "{message}");
    assert!(message.contains("\n  guarantee "), "{message}");
    true
}

fn fits_on_a_screen(text: &str) {
    let (lines, bytes) = (text.lines().count(), text.len());
    assert!(lines <= 60 && bytes <= 8 << 10, "{lines} lines, {bytes} bytes: {}", &text[..2_000]);
    let words = ["left:", "right:", "Index(", "ExpectedVerdict"];
    assert!(words.iter().all(|word| !text.contains(word)), "{text}");
}

/// Runs a failing property. The test `the_whole_output_of_a_failure_…` runs this test in a separate
/// process.
#[test]
fn a_property_in_a_process_of_its_own() {
    let Ok(property) = std::env::var("TIDEGATE_TEST_PROPERTY") else { return };
    let defect = match std::env::var("TIDEGATE_TEST_DEFECT").as_deref() {
        Ok("ChargesDenials") => Defect::ChargesDenials,
        Ok("Seconds") => Defect::Seconds,
        Ok("GetsThenSets") => Defect::GetsThenSets,
        Ok("JoinsKeys") => Defect::JoinsKeys,
        Ok("Panics") => Defect::Panics,
        other => unreachable!("{other:?}"),
    };
    check(&BrokenFixture(defect), &property);
}

#[test]
fn the_whole_output_of_a_failure_fits_on_a_screen_and_says_what_is_broken() {
    for (defect, property, expected) in [
        (
            "ChargesDenials",
            "b05_charges_to_one_key_add_up",
            "guarantee 1: A call makes all of its charges",
        ),
        (
            "ChargesDenials",
            "token_bucket_decides_as_the_oracle",
            "guarantee 3: The store admits exactly",
        ),
        (
            "Seconds",
            "b17_hostile_subjects_are_decided_as_by_the_oracle",
            "guarantee 8: Two subjects",
        ),
        (
            "Seconds",
            "b36_intervals_below_a_microsecond_do_not_truncate",
            "guarantee 3: The store admits exactly",
        ),
        (
            "GetsThenSets",
            "b24_sixty_four_callers_on_one_key_are_counted_exactly",
            "the limit is 500",
        ),
        ("JoinsKeys", "b17_no_two_subjects_share_a_state", "two subjects share a state"),
        (
            "Panics",
            "several_charges_are_decided_as_by_the_oracle",
            "panicked: internal error: entered unreachable code: this store panics",
        ),
        (
            "Panics",
            "b19_a_reset_is_of_one_subject",
            "panicked: internal error: entered unreachable code: this store panics",
        ),
    ] {
        let output = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "mutants::a_property_in_a_process_of_its_own", "--nocapture"])
            .env("TIDEGATE_TEST_PROPERTY", property)
            .env("TIDEGATE_TEST_DEFECT", defect)
            .env("RUST_BACKTRACE", "0")
            .output()
            .expect("it starts");
        assert!(!output.status.success(), "{property} does not catch {defect}");
        let text = [&output.stdout[..], &output.stderr[..]].concat();
        let text = String::from_utf8(text).expect("text");
        fits_on_a_screen(&text);
        assert!(text.contains(expected), "{expected}: {text}");
    }
}

#[test]
fn without_a_defect_the_same_store_passes() {
    check_all(&BrokenFixture(Defect::None));
}

macro_rules! caught {
    ($($name:ident: $defect:ident by $($property:ident),+;)+) => {$(
        #[test]
        fn $name() {
            $(assert!(
                catches(stringify!($property), Defect::$defect),
                "{} does not catch the defect",
                stringify!($property),
            );)+
        }
    )+};
}

caught! {
    a_store_that_charges_denials_is_caught: ChargesDenials
        by b01_a_denial_writes_nothing, b08_what_is_granted_is_what_is_charged,
           token_bucket_decides_as_the_oracle;
    a_store_that_charges_peeks_is_caught: ChargesPeeks
        by a_peek_a_cost_of_zero_and_a_failed_call_write_nothing, fixed_window_decides_as_the_oracle;
    a_store_that_counts_calls_and_not_costs_is_caught: CountsCalls
        by b03_the_cost_is_weighed_not_only_counted;
    a_store_that_prunes_at_denials_is_caught: PrunesAtDenials
        by b01_a_denial_writes_nothing;
    a_store_that_leaks_partial_charges_is_caught: LeaksPartialCharges
        by b04_a_denied_decision_charges_no_member, several_charges_are_decided_as_by_the_oracle,
           charges_in_opposite_orders_are_exact_and_end;
    a_store_that_does_not_add_up_twins_is_caught: SplitsTwins
        by b05_charges_to_one_key_add_up;
    a_store_that_keeps_a_tenants_limit_per_subject_is_caught: SplitsTenants
        by a_limit_of_a_tenant_is_one_for_all_its_subjects;
    a_store_whose_refunds_create_keys_is_caught: RefundsCreate
        by b06_a_refund_stops_at_full_and_creates_nothing;
    a_store_that_undoes_nothing_is_caught: UndoesNothing
        by an_undo_at_once_leaves_what_was_there_before, an_undo_later_takes_nothing_from_others,
           what_is_undone_at_once_is_as_if_never_taken, an_undo_leaves_blocks_alone,
           a_log_undoes_what_is_among_its_newest_records, sliding_log_decides_as_the_oracle;
    a_store_whose_undo_is_a_refund_is_caught: UndoesAsRefund
        by an_undo_later_takes_nothing_from_others, what_was_not_taken_is_not_undone,
           never_more_is_admitted_whatever_is_undone, fixed_window_decides_as_the_oracle,
           token_bucket_decides_as_the_oracle, a_log_undoes_what_is_among_its_newest_records;
    a_store_that_undoes_twins_one_by_one_is_caught: UndoesTwinsApart
        by what_was_not_taken_is_not_undone;
    a_store_whose_undo_lifts_a_block_is_caught: UndoesBlocks
        by an_undo_leaves_blocks_alone;
    a_store_that_rounds_remaining_up_is_caught: RemainingUp
        by b10_remaining_is_rounded_down, a_cost_of_remaining_passes_and_one_more_does_not;
    a_store_that_answers_a_wait_for_never_is_caught: WaitsForNever
        by b02_a_cost_above_the_limit_is_never_admitted, b35_zero_divides_nothing;
    a_store_that_never_forgets_is_caught: NeverExpires
        by b13_a_state_lives_until_it_no_longer_matters, b40_the_end_of_a_window_is_outside_of_it,
           fresh_recovered_and_reset_keys_decide_alike;
    a_store_that_forgets_too_early_is_caught: ForgetsEarly
        by b12_the_second_call_sees_the_first, b13_a_state_lives_until_it_no_longer_matters;
    a_store_whose_hits_push_the_end_on_is_caught: SlidesOnHits
        by b14_a_fixed_window_ends_although_hits_go_on;
    a_store_that_joins_keys_is_caught: JoinsKeys
        by b17_no_two_subjects_share_a_state, b17_no_two_policies_share_a_state;
    a_store_that_reads_subjects_as_text_is_caught: ReadsText
        by b17_no_two_policies_share_a_state;
    a_store_that_cuts_long_subjects_is_caught: CutsSubjects
        by b17_subjects_are_as_long_as_they_may_be;
    a_store_that_resets_all_is_caught: ResetsAll
        by b19_a_reset_is_of_one_subject;
    a_store_that_reads_computes_and_writes_is_caught: GetsThenSets
        by b24_sixty_four_callers_on_one_key_are_counted_exactly, b25_of_a_hundred_callers_five_pass,
           b26_the_first_calls_after_expiry_do_not_race, callers_on_several_keys_are_counted_exactly,
           refunds_and_acquires_conserve_the_budget;
    a_store_that_loses_equal_times_is_caught: LosesEqualTimes
        by b27_requests_of_one_instant_are_all_counted;
    a_store_that_mints_at_a_step_back_is_caught: MintsAtStepBack
        by b31_a_step_back_mints_nothing_and_costs_at_most_the_step,
           sliding_log_under_a_jumping_clock;
    a_store_whose_clock_never_steps_back_is_caught: NeverStepsBack
        by gcra_under_a_jumping_clock;
    a_store_with_a_millisecond_clock_is_caught: Milliseconds
        by b36_intervals_below_a_microsecond_do_not_truncate, b37_fifty_thousand_a_second_pass;
    a_store_with_a_clock_of_whole_seconds_is_caught: Seconds
        by b17_hostile_subjects_are_decided_as_by_the_oracle,
           b36_intervals_below_a_microsecond_do_not_truncate;
    a_store_that_is_late_by_a_microsecond_is_caught: LateByOne
        by b40_the_end_of_a_window_is_outside_of_it;
    a_store_whose_waits_are_short_is_caught: ShortWaits
        by b39_waiting_retry_after_succeeds_and_less_does_not;
    a_store_with_32_bit_blocks_is_caught: Blocks32Bit
        by b34_a_block_of_sixty_days_lasts_sixty_days;
    a_store_that_shortens_blocks_is_caught: ShortensBlocks
        by a_block_of_at_least_a_span_shortens_none;
    a_store_that_refuses_charges_is_caught: RefusesCharges
        by a_charge_beyond_the_limit_is_paid_for;
    a_store_that_takes_checks_is_caught: TakesChecks
        by a_check_takes_nothing_and_refuses_the_whole;
    a_store_that_ignores_lists_is_caught: IgnoresLists
        by the_first_policy_that_admits_pays, a_list_is_charged_with_the_whole_call_or_not_at_all,
           each_list_has_a_payer, a_refused_list_waits_for_its_first_admission,
           a_hold_keeps_the_charge_that_pays, slots_are_alternatives,
           lists_that_make_no_sense_are_errors, several_charges_are_decided_as_by_the_oracle,
           holds_are_decided_as_by_the_oracle;
    a_store_that_forgets_demands_is_caught: ForgetsDemands
        by the_unfairness_of_a_pool_is_bounded, a_member_alone_can_use_the_whole_pool;
    a_store_that_mixes_members_is_caught: MixesMembers
        by the_unfairness_of_a_pool_is_bounded, members_divide_a_pool_by_their_weights;
    a_store_that_takes_all_or_nothing_is_caught: TakesAllOrNothing
        by an_acquire_up_to_takes_all_that_remains, an_acquire_up_to_takes_one_amount_of_all;
    a_store_that_ignores_ids_is_caught: IgnoresIds
        by an_id_makes_a_call_happen_once, an_id_of_many_callers_is_charged_once;
    a_store_that_answers_any_call_under_an_id_is_caught: AnswersAnyCall
        by an_id_of_another_call_is_an_error;
    a_store_that_keeps_ids_is_caught: KeepsIds
        by an_id_is_forgotten_after_its_time;
    a_store_whose_subjects_share_ids_is_caught: SharesIds
        by an_id_belongs_to_a_tenant_or_a_subject;
    a_store_that_settles_twice_is_caught: SettlesTwice
        by a_hold_is_settled_once, a_settled_hold_has_one_settlement, a_hold_of_many_callers_is_settled_once;
    a_store_that_charges_again_what_was_spent_so_far_is_caught: ChargesSoFarAgain
        by a_hold_is_settled_so_far_in_totals, a_hold_is_settled_once_whatever_is_lost;
    a_store_that_gives_back_more_than_is_held_is_caught: HoldsTwice
        by a_hold_is_settled_once, a_hold_gives_back_no_more_than_is_owed, holds_are_decided_as_by_the_oracle;
    a_store_that_hides_what_is_held_is_caught: HidesHolds
        by a_peek_says_what_is_held_and_not_spent, lapses_are_decided_as_by_the_oracle;
    a_store_that_extends_blocks_is_caught: ExtendsBlocks
        by a_refusal_blocks_and_the_block_is_not_extended, a_block_grows_with_each_offense;
    a_store_that_forgets_offenses_is_caught: ForgetsOffenses
        by a_block_grows_with_each_offense, the_end_of_a_block_restores_no_budget,
           offenses_are_forgotten_together, an_unblock_forgets_the_offenses,
           a_refusal_restarts_the_block_of_a_policy_with_restart, holds_keep_the_offenses,
           only_a_denial_by_the_policy_is_an_offense, offenses_survive_a_changed_block;
    a_store_whose_shadows_refuse_is_caught: ShadowsRefuse
        by a_shadow_reports_and_never_refuses;
    a_store_that_refills_at_a_change_is_caught: RefillsAtChange
        by b53_b54_a_changed_limit_keeps_what_was_used, b53_changed_policies_are_decided_as_by_the_oracle;
    a_store_with_one_state_per_name_is_caught: OneStatePerName
        by b60_another_window_or_algorithm_has_a_state_of_its_own;
    a_store_whose_unnamed_policies_share_states_is_caught: UnnamedByAlgorithm
        by b61_policies_without_a_name_share_states_only_if_equal;
    a_store_that_keeps_the_old_limit_is_caught: KeepsOldLimit
        by b53_b54_a_changed_limit_keeps_what_was_used;
    a_store_that_denies_errors_is_caught: DeniesErrors
        by a_wrong_call_is_an_error_and_not_a_denial;
    a_store_that_reverses_batches_is_caught: ReversesBatches
        by a_batch_is_answered_as_its_calls_one_by_one, batches_are_decided_as_by_the_oracle;
    a_store_that_deadlocks_is_caught: Deadlocks
        by charges_in_opposite_orders_are_exact_and_end;
}

/// A fixture that opens stores with a defect. The suite runs the cases whose seeds are saved in
/// `folder`, and `cases` random cases.
struct WithSeeds {
    defect: Defect,
    cases: u32,
    folder: PathBuf,
}

impl Fixture for WithSeeds {
    type Store = Broken;
    type Guard = ();

    async fn open(&self, clock: ManualClock) -> (Broken, ()) {
        (Broken::new(self.defect, clock), ())
    }

    fn cases(&self) -> u32 {
        self.cases
    }

    fn regressions(&self) -> Option<PathBuf> {
        Some(self.folder.clone())
    }
}

#[test]
fn the_seed_of_a_failing_case_is_kept_and_tried_again() {
    let property = "token_bucket_decides_as_the_oracle";
    let folder = tempfile::tempdir().expect("a folder");
    let fails = |defect, cases| {
        let fixture = WithSeeds { defect, cases, folder: folder.path().to_owned() };
        catch_unwind(AssertUnwindSafe(|| check(&fixture, property))).is_err()
    };
    assert!(!fails(Defect::ChargesDenials, 0), "no case is run");
    assert!(fails(Defect::ChargesDenials, 64));
    let kept = std::fs::read_to_string(folder.path().join(property).with_extension("txt"));
    assert_eq!(kept.expect("a file").lines().filter(|line| line.starts_with("cc ")).count(), 1);
    assert!(fails(Defect::ChargesDenials, 0), "the case with the stored seed is run");
    assert!(!fails(Defect::None, 0), "the case passes without the defect");
}
