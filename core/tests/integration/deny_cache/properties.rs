//! Makes random calls at random times, and compares a store that has a deny cache to an equal store
//! without a cache.

use proptest::prelude::*;
use tidegate_core::layers::DenyCacheStore;
use tidegate_core::{
    Call, Charges, Decision, DenyCache, ManualClock, Operation, Outcome, Policy, Store, StoreExt,
    Verdict,
};
use tidegate_testkit::ModelStore;
use tidegate_testkit::faults::{Fault, plan};
use tidegate_testkit::generate::{
    ClockKind, Does, Kind, Scenario, Step, Trace, policy, related_policies, scenario,
};

use super::common::{Bench, ready};

const STEPS: usize = 60;

fn policies() -> impl Strategy<Value = Vec<Policy>> {
    let one = |name| Kind::any().prop_flat_map(move |kind| policy(kind, name));
    prop_oneof![
        2 => one("p").prop_map(|p| vec![p]),
        2 => (one("p"), one("q"), one("r")).prop_map(|(p, q, r)| vec![p, q, r]),
        1 => Kind::any().prop_flat_map(|kind| related_policies(kind, "p")),
    ]
}

fn any_scenario() -> impl Strategy<Value = (Scenario, ClockKind)> {
    prop_oneof![Just(ClockKind::Forwards), Just(ClockKind::Jumping)].prop_flat_map(|clock| {
        let again = prop::collection::vec(prop::bool::weighted(0.6), STEPS);
        (scenario(policies(), clock, STEPS, 3), again)
            .prop_map(move |(scenario, again)| (with_repeats(scenario, &again), clock))
    })
}

/// Replaces random steps by an acquire with the charges of the previous step, so that callers often
/// repeat a call.
fn with_repeats(mut scenario: Scenario, again: &[bool]) -> Scenario {
    for (index, again) in (1..scenario.steps.len()).zip(again) {
        if *again {
            let charges = scenario.steps[index - 1].charges.clone();
            scenario.steps[index] =
                Step { charges, does: Does::Acquire, ..scenario.steps[index].clone() };
        }
    }
    scenario
}

/// Checks that a decision of the cache equals the store's decision, except that the remaining
/// amount is allowed to be lower.
fn check_same_except_remaining(
    call: &Call<'_>,
    cached: &Decision,
    expected: &Decision,
) -> Result<(), TestCaseError> {
    prop_assert_eq!(cached.is_allowed(), expected.is_allowed());
    prop_assert_eq!(cached.retry_after(), expected.retry_after());
    prop_assert_eq!(cached.wait(), expected.wait());
    prop_assert_eq!(cached.verdicts().len(), expected.verdicts().len());
    for (index, (a, b)) in cached.verdicts().iter().zip(expected.verdicts()).enumerate() {
        let all_but_remaining = |v: &Verdict| {
            let refusal = (v.outcome(), v.retry_after(), v.blocked_for(), v.reset_after());
            (refusal, v.limit(), v.is_shadow())
        };
        prop_assert_eq!(all_but_remaining(a), all_but_remaining(b), "charge {}", index);
        if a.remaining() != b.remaining() {
            prop_assert!(cached.is_denied() && a.remaining() < b.remaining(), "{a:?}, not {b:?}");
            let small = a.outcome() != Outcome::Allowed && cost(call.charges, index) <= 1;
            prop_assert!(!small && a.outcome() != Outcome::Blocked, "{a:?}, not {b:?}");
        }
    }
    Ok(())
}

/// Returns the sum of the costs of all charges in a call that use the same state as the charge with
/// this index.
fn cost(charges: Charges<'_>, index: usize) -> u64 {
    let charge = charges.get(index).unwrap();
    charges
        .iter()
        .filter(|other| other.shares_state_with(&charge))
        .fold(0, |sum, c| sum.saturating_add(c.cost))
}

/// A store that receives all calls, and an equal store with a deny cache around it.
struct Pair {
    clock: ManualClock,
    plain: ModelStore,
    cached: DenyCacheStore<ModelStore, ManualClock>,
}

fn pair(cache: DenyCache) -> Pair {
    let clock = ManualClock::default();
    let store = || ModelStore::keeping_all(clock.clone());
    let cached = store().deny_cache(cache.max_bytes(0).clock(clock.clone()));
    Pair { plain: store(), cached, clock }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn every_call_is_decided_like_without_a_cache((scenario, clock) in any_scenario()) {
        let (usual, exact) = (pair(DenyCache::new()), pair(DenyCache::new().only_exact()));
        let mut trace = Trace::new(&scenario, clock);
        for step in &scenario.steps {
            let time = trace.pass(step);
            usual.clock.set(time);
            exact.clock.set(time);
            let (operation, charges) = trace.ask(step);
            let call = Call::new(operation, &charges);
            let (cached, exactly_cached) = (ready(usual.cached.decide(call)), ready(exact.cached.decide(call)));
            match ready(usual.plain.decide(call)) {
                Ok(decision) => {
                    prop_assert_eq!(&exactly_cached.unwrap(), &decision);
                    check_same_except_remaining(&call, &cached.unwrap(), &decision)?;
                    trace.answered(&decision);
                }
                Err(error) => {
                    prop_assert_eq!(cached.unwrap_err().kind(), error.kind());
                    prop_assert_eq!(exactly_cached.unwrap_err().kind(), error.kind());
                }
            }
            let _ = ready(exact.plain.decide(call));
            prop_assert_eq!(usual.cached.inner().snapshot(), usual.plain.snapshot());
            prop_assert_eq!(exact.cached.inner().snapshot(), exact.plain.snapshot());
        }
    }

    #[test]
    fn every_batch_is_decided_like_without_a_cache(
        (scenario, clock) in any_scenario(),
        size in 1..9_usize,
    ) {
        let (usual, exact) = (pair(DenyCache::new()), pair(DenyCache::new().only_exact()));
        let mut trace = Trace::new(&scenario, clock);
        for batch in scenario.steps.chunks(size) {
            let time = trace.pass(&batch[0]);
            usual.clock.set(time);
            exact.clock.set(time);
            let requests: Vec<_> = batch.iter().map(|step: &Step| trace.ask(step)).collect();
            let calls: Vec<_> = requests.iter().map(|(op, charges)| Call::new(*op, charges)).collect();
            let cached = crate::run(usual.cached.decide_many(&calls));
            let exactly_cached = crate::run(exact.cached.decide_many(&calls));
            let plain: Vec<_> = calls.iter().map(|call| ready(usual.plain.decide(*call))).collect();
            prop_assert_eq!((cached.len(), exactly_cached.len()), (plain.len(), plain.len()));
            for (index, decision) in plain.iter().enumerate() {
                let Ok(decision) = decision else {
                    prop_assert!(cached[index].is_err() && exactly_cached[index].is_err());
                    continue;
                };
                prop_assert_eq!(exactly_cached[index].as_ref().unwrap(), decision);
                check_same_except_remaining(&calls[index], cached[index].as_ref().unwrap(), decision)?;
                trace.answered(decision);
            }
            prop_assert_eq!(usual.cached.inner().snapshot(), usual.plain.snapshot());
            prop_assert_eq!(exact.cached.inner().snapshot(), usual.plain.snapshot());
        }
    }

    #[test]
    fn b45_cached_refusals_are_true_after_any_lost_calls(
        (scenario, clock) in any_scenario(),
        faults in plan(0..STEPS),
    ) {
        // The test replaces delayed calls by late answers. The store would execute a delayed call
        // at some later time, like a call of another node, and the cache would not see this call.
        let not_delayed = |fault: Fault| if fault == Fault::Delayed { Fault::Late } else { fault };
        let bench = Bench::failing(faults.into_iter().map(not_delayed).collect());
        let mut trace = Trace::new(&scenario, clock);
        for step in &scenario.steps {
            bench.clock.set(trace.pass(step));
            let (operation, charges) = trace.ask(step);
            let call = Call::new(operation, &charges);
            let before = bench.calls();
            let mut answer = std::pin::pin!(bench.store.decide(call));
            // If the answer is late, the test drops the future of the caller.
            let std::task::Poll::Ready(Ok(decision)) = super::common::poll(answer.as_mut()) else {
                continue;
            };
            if bench.calls() == before {
                let peek = ready(bench.model.decide(Call::new(Operation::Peek, &charges))).unwrap();
                check_same_except_remaining(&call, &decision, &peek)?;
            }
            trace.answered(&decision);
        }
    }
}
