//! Any calls at any times, beside the same store without a cache.

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

use super::common::{Bench, now};

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
            .prop_map(move |(scenario, again)| (insisting(scenario, &again), clock))
    })
}

/// The scenario with callers that often ask for the same again.
fn insisting(mut scenario: Scenario, again: &[bool]) -> Scenario {
    for (place, again) in (1..scenario.steps.len()).zip(again) {
        if *again {
            let charges = scenario.steps[place - 1].charges.clone();
            scenario.steps[place] =
                Step { charges, does: Does::Acquire, ..scenario.steps[place].clone() };
        }
    }
    scenario
}

/// Whether a decision of the cache is what the store would say, but for what may remain.
fn same_but_for_remaining(
    call: &Call<'_>,
    told: &Decision,
    true_one: &Decision,
) -> Result<(), TestCaseError> {
    prop_assert_eq!(told.is_allowed(), true_one.is_allowed());
    prop_assert_eq!(told.retry_after(), true_one.retry_after());
    prop_assert_eq!(told.wait(), true_one.wait());
    prop_assert_eq!(told.verdicts().len(), true_one.verdicts().len());
    for (place, (a, b)) in told.verdicts().iter().zip(true_one.verdicts()).enumerate() {
        let all_but_remaining = |v: &Verdict| {
            let refusal = (v.outcome(), v.retry_after(), v.blocked_for(), v.reset_after());
            (refusal, v.limit(), v.is_shadow())
        };
        prop_assert_eq!(all_but_remaining(a), all_but_remaining(b), "charge {}", place);
        if a.remaining() != b.remaining() {
            prop_assert!(told.is_denied() && a.remaining() < b.remaining(), "{a:?}, not {b:?}");
            let small = a.outcome() != Outcome::Allowed && cost(call.charges, place) <= 1;
            prop_assert!(!small && a.outcome() != Outcome::Blocked, "{a:?}, not {b:?}");
        }
    }
    Ok(())
}

/// What the call asks of the key of one of its charges.
fn cost(charges: Charges<'_>, place: usize) -> u64 {
    let of = charges.get(place).unwrap();
    charges.iter().filter(|c| c.shares_state_with(&of)).fold(0, |sum, c| sum.saturating_add(c.cost))
}

/// A store that is asked all, and the same behind a cache.
struct Pair {
    hand: ManualClock,
    plain: ModelStore,
    cached: DenyCacheStore<ModelStore, ManualClock>,
}

fn pair(cache: DenyCache) -> Pair {
    let hand = ManualClock::default();
    let store = || ModelStore::keeping_all(hand.clone());
    let cached = store().deny_cache(cache.max_bytes(0).clock(hand.clone()));
    Pair { plain: store(), cached, hand }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn every_call_is_decided_as_without_a_cache((scenario, clock) in any_scenario()) {
        let (usual, exact) = (pair(DenyCache::new()), pair(DenyCache::new().only_exact()));
        let mut trace = Trace::new(&scenario, clock);
        for step in &scenario.steps {
            let time = trace.pass(step);
            usual.hand.set(time);
            exact.hand.set(time);
            let (operation, charges) = trace.ask(step);
            let call = Call::new(operation, &charges);
            let (told, to_the_last) = (now(usual.cached.decide(call)), now(exact.cached.decide(call)));
            match now(usual.plain.decide(call)) {
                Ok(decision) => {
                    prop_assert_eq!(&to_the_last.unwrap(), &decision);
                    same_but_for_remaining(&call, &told.unwrap(), &decision)?;
                    trace.answered(&decision);
                }
                Err(error) => {
                    prop_assert_eq!(told.unwrap_err().kind(), error.kind());
                    prop_assert_eq!(to_the_last.unwrap_err().kind(), error.kind());
                }
            }
            // Nor is anything left unwritten.
            let _ = now(exact.plain.decide(call));
            prop_assert_eq!(usual.cached.inner().snapshot(), usual.plain.snapshot());
            prop_assert_eq!(exact.cached.inner().snapshot(), exact.plain.snapshot());
        }
    }

    #[test]
    fn every_batch_is_decided_as_without_a_cache(
        (scenario, clock) in any_scenario(),
        size in 1..9_usize,
    ) {
        let (usual, exact) = (pair(DenyCache::new()), pair(DenyCache::new().only_exact()));
        let mut trace = Trace::new(&scenario, clock);
        for batch in scenario.steps.chunks(size) {
            let time = trace.pass(&batch[0]);
            usual.hand.set(time);
            exact.hand.set(time);
            let asked: Vec<_> = batch.iter().map(|step: &Step| trace.ask(step)).collect();
            let calls: Vec<_> = asked.iter().map(|(op, charges)| Call::new(*op, charges)).collect();
            let told = crate::run(usual.cached.decide_many(&calls));
            let to_the_last = crate::run(exact.cached.decide_many(&calls));
            let plain: Vec<_> = calls.iter().map(|call| now(usual.plain.decide(*call))).collect();
            prop_assert_eq!((told.len(), to_the_last.len()), (plain.len(), plain.len()));
            for (place, decision) in plain.iter().enumerate() {
                let Ok(decision) = decision else {
                    prop_assert!(told[place].is_err() && to_the_last[place].is_err());
                    continue;
                };
                prop_assert_eq!(to_the_last[place].as_ref().unwrap(), decision);
                same_but_for_remaining(&calls[place], told[place].as_ref().unwrap(), decision)?;
                trace.answered(decision);
            }
            prop_assert_eq!(usual.cached.inner().snapshot(), usual.plain.snapshot());
            prop_assert_eq!(exact.cached.inner().snapshot(), usual.plain.snapshot());
        }
    }

    #[test]
    fn b45_what_is_known_is_true_whatever_was_lost(
        (scenario, clock) in any_scenario(),
        faults in plan(0..STEPS),
    ) {
        // A call that is kept back is carried out some time later, which is as if others did it.
        let at_once = |fault: Fault| if fault == Fault::Delayed { Fault::Late } else { fault };
        let bench = Bench::failing(faults.into_iter().map(at_once).collect());
        let mut trace = Trace::new(&scenario, clock);
        for step in &scenario.steps {
            bench.hand.set(trace.pass(step));
            let (operation, charges) = trace.ask(step);
            let call = Call::new(operation, &charges);
            let before = bench.asked();
            let mut answer = std::pin::pin!(bench.store.decide(call));
            // Nobody waits for an answer that comes late.
            let std::task::Poll::Ready(Ok(decision)) = super::common::poll(answer.as_mut()) else {
                continue;
            };
            if bench.asked() == before {
                let peek = now(bench.model.decide(Call::new(Operation::Peek, &charges))).unwrap();
                same_but_for_remaining(&call, &decision, &peek)?;
            }
            trace.answered(&decision);
        }
    }
}
