//! Random schedules of callers, cancellations, answers and failures: each call is carried out at most once, in order,
//! and each caller that stays has the answer of its own call.

use std::collections::HashMap;

use proptest::prelude::*;
use tidegate_core::{Decision, Error, ErrorKind, StoreExt};
use tokio::task::{JoinHandle, yield_now};

use super::gate::{Fate, Gate};
use super::{alive_tasks, call_of, settle};

#[derive(Debug, Clone)]
enum Step {
    /// A call on one of a few subjects.
    Call(u8),
    /// One of the callers gives up.
    GiveUp(prop::sample::Index),
    /// The batch in flight, or the next, passes.
    Pass(Fate),
    /// Tasks go on, some steps at a time.
    Yield(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let kinds = prop::sample::select(vec![ErrorKind::Timeout, ErrorKind::Busy]);
    let fate = prop_oneof![
        4 => Just(Fate::CarriedOut),
        1 => kinds.clone().prop_map(Fate::Before),
        1 => kinds.prop_map(Fate::After),
        1 => Just(Fate::OneTooFew),
    ];
    prop_oneof![
        6 => (0..3_u8).prop_map(Step::Call),
        2 => any::<prop::sample::Index>().prop_map(Step::GiveUp),
        3 => fate.prop_map(Step::Pass),
        4 => (1..5_usize).prop_map(Step::Yield),
    ]
}

/// A caller, whose call is known by its cost, which no other call has.
struct Caller {
    subject: String,
    cost: u64,
    has_given_up: bool,
    task: JoinHandle<Result<Decision, Error>>,
}

async fn play(steps: &[Step], max_batch: usize) -> Result<(), TestCaseError> {
    let gate = Gate::new();
    let store = gate.clone().coalesced().max_batch(max_batch);
    let mut callers: Vec<Caller> = vec![];
    for step in steps {
        match step {
            Step::Call(subject) => {
                let (subject, cost) = (subject.to_string(), callers.len() as u64 + 1);
                let task = call_of("", &store, &subject, cost);
                callers.push(Caller { subject, cost, has_given_up: false, task });
            }
            Step::GiveUp(index) if !callers.is_empty() => {
                let number = index.index(callers.len());
                callers[number].has_given_up = true;
                callers[number].task.abort();
            }
            Step::GiveUp(_) => {}
            Step::Pass(fate) => gate.pass(*fate),
            Step::Yield(times) => {
                for _ in 0..*times {
                    yield_now().await;
                }
            }
        }
    }
    // Whatever has happened, callers that have stayed are answered once batches pass.
    for _ in 0..=callers.len() {
        gate.pass(Fate::CarriedOut);
    }
    settle().await;
    for _ in 0..callers.len() {
        settle().await;
    }
    prop_assert_eq!(alive_tasks(), 0, "a caller waits for ever, or the task of an idle store");
    prop_assert!(gate.max_in_flight() <= 1);
    for batch in gate.sent() {
        prop_assert!(batch.len() <= max_batch);
    }
    check(callers, &gate).await
}

async fn check(callers: Vec<Caller>, gate: &Gate) -> Result<(), TestCaseError> {
    let carried_out = gate.carried_out();
    let costs: Vec<u64> = carried_out.iter().map(|(_, cost)| *cost).collect();
    prop_assert!(costs.is_sorted_by(|a, b| a < b), "in order, and once: {:?}", costs);
    // By the cost of a call, what is left after it.
    let (mut used, mut left) = (HashMap::<&str, u64>::new(), HashMap::new());
    for (subject, cost) in &carried_out {
        let used = used.entry(subject).or_default();
        *used += cost;
        left.insert(*cost, 1_000_000 - *used);
    }
    for Caller { subject, cost, has_given_up, task } in callers {
        let Ok(answer) = task.await else {
            prop_assert!(has_given_up);
            continue;
        };
        match answer {
            Ok(decision) => {
                let remaining = decision.verdicts()[0].remaining();
                prop_assert_eq!(Some(&remaining), left.get(&cost), "{} {}", subject, cost);
            }
            Err(error) if error.kind() == ErrorKind::Protocol => {
                prop_assert!(left.contains_key(&cost), "its answer was left out");
            }
            Err(error) => prop_assert!(error.to_string().contains("planned"), "{}", error),
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn each_call_is_carried_out_once_and_in_order_and_answered_as_its_own(
        steps in prop::collection::vec(step(), 1..60),
        max_batch in 1..8_usize,
    ) {
        crate::run(play(&steps, max_batch))?;
    }
}
