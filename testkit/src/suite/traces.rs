//! Properties of random traces. Each answer of the store is compared with the answer of the oracle.

use proptest::prelude::*;
use tidegate_core::{Error, Policy};

use super::fixture::Fixture;
use super::harness::cases;
use crate::compare::against_oracle::{run_against_oracle, run_batches_against_oracle};
use crate::generate::{
    ClockKind, Kind, Scenario, hostile_subject, policy, related_policies, scenario,
    several_policies,
};
use crate::show;

fn one(kind: Kind) -> impl Strategy<Value = Vec<Policy>> {
    policy(kind, "p").prop_map(|policy| vec![policy])
}

fn play<F: Fixture>(fixture: &F, scenarios: impl Strategy<Value = Scenario>, clock: ClockKind) {
    cases(fixture, scenarios, async |harness, scenario| {
        run_against_oracle(&harness.store, &harness.clock, &harness.supported(scenario), clock)
            .await
    });
}

macro_rules! kinds {
    ($($forwards:ident, $jumping:ident: $kind:ident;)+) => {$(
        #[doc = concat!("A random trace of one ", stringify!($kind), " policy is decided as by the oracle.")]
        pub(super) fn $forwards<F: Fixture>(fixture: &F) {
            let traces = scenario(one(Kind::$kind), ClockKind::Forwards, 30, 1);
            play(fixture, traces, ClockKind::Forwards);
        }

        #[doc = concat!("B31: so is a trace of one ", stringify!($kind), " policy under a clock that jumps both ways.")]
        pub(super) fn $jumping<F: Fixture>(fixture: &F) {
            let traces = scenario(one(Kind::$kind), ClockKind::Jumping, 30, 1);
            play(fixture, traces, ClockKind::Jumping);
        }
    )+};
}

kinds! {
    fixed_window_decides_as_the_oracle, fixed_window_under_a_jumping_clock: FixedWindow;
    sliding_log_decides_as_the_oracle, sliding_log_under_a_jumping_clock: SlidingLog;
    sliding_counter_decides_as_the_oracle, sliding_counter_under_a_jumping_clock: SlidingCounter;
    token_bucket_decides_as_the_oracle, token_bucket_under_a_jumping_clock: TokenBucket;
    interval_bucket_decides_as_the_oracle, interval_bucket_under_a_jumping_clock: IntervalBucket;
    gcra_decides_as_the_oracle, gcra_under_a_jumping_clock: Gcra;
    quota_decides_as_the_oracle, quota_under_a_jumping_clock: Quota;
}

/// Checks that the store decides calls with up to four charges to three policies like the oracle.
pub(super) fn several_charges_are_decided_as_by_the_oracle<F: Fixture>(fixture: &F) {
    let traces = scenario(several_policies(), ClockKind::Forwards, 25, 4);
    play(fixture, traces, ClockKind::Forwards);
}

/// Without defect B31, under a clock that jumps forwards and back, the store decides calls with up
/// to four charges like the oracle.
pub(super) fn several_charges_under_a_jumping_clock<F: Fixture>(fixture: &F) {
    let moves = fixture.moves_with_several();
    play(fixture, scenario(several_policies(), moves, 25, 4), moves);
}

/// Without defects B53 and B54, the store decides like the oracle if policies change. A changed
/// policy with the same name keeps its usage. If the shape of the policy has changed, it has
/// another state.
pub(super) fn b53_changed_policies_are_decided_as_by_the_oracle<F: Fixture>(fixture: &F) {
    let policies = Kind::any().prop_flat_map(|kind| related_policies(kind, "p"));
    let traces = scenario(policies, ClockKind::Jumping, 30, 1);
    play(fixture, traces, ClockKind::Jumping);
}

/// Checks that the store decides the calls of a batch like the oracle, which decides the calls one
/// after another.
pub(super) fn batches_are_decided_as_by_the_oracle<F: Fixture>(fixture: &F) {
    let moves = fixture.moves_with_several();
    let traces = scenario(several_policies(), moves, 30, 2);
    cases(fixture, (traces, 1..9_usize), async |harness, (scenario, size)| {
        let scenario = harness.supported(scenario);
        run_batches_against_oracle(&harness.store, &harness.clock, &scenario, moves, *size).await
    });
}

/// Without defect B17, the store decides traces with unusual subjects like the oracle.
pub(super) fn b17_hostile_subjects_are_decided_as_by_the_oracle<F: Fixture>(fixture: &F) {
    let subjects = prop::collection::vec((hostile_subject(), hostile_subject()), 1..5);
    let traces = scenario(several_policies(), ClockKind::Forwards, 12, 2);
    let traces =
        (traces, subjects).prop_map(|(scenario, subjects)| Scenario { subjects, ..scenario });
    play(fixture, traces, ClockKind::Forwards);
}

/// Checks that two stores return the same answers if they receive the same calls at the same times.
pub(super) fn the_same_calls_get_the_same_answers<F: Fixture>(fixture: &F) {
    use super::harness::Harness;
    use crate::generate::Trace;
    use tidegate_core::{Call, Store};
    let traces = scenario(several_policies(), ClockKind::Forwards, 25, 3);
    cases(fixture, traces, async |harness, scenario| {
        let other = Harness::open(fixture).await;
        let scenario = harness.supported(scenario);
        let mut trace = Trace::new(&scenario, ClockKind::Forwards);
        for step in &scenario.steps {
            let now = trace.pass(step);
            harness.clock.set(now);
            other.clock.set(now);
            let (operation, charges) = trace.ask(step);
            let call = Call::new(operation, &charges);
            let (one, two) = (harness.store.decide(call).await, other.store.decide(call).await);
            if let (Ok(one), Ok(two)) = (&one, &two) {
                if one != two {
                    return Err(format!(
                        "one store answers {} with {}, and a second store with {}",
                        show::call(&call),
                        show::answer(&Ok::<_, Error>(one.clone())),
                        show::answer(&Ok::<_, Error>(two.clone())),
                    ));
                }
                trace.answered(one);
            }
        }
        Ok(())
    });
}
