//! Runs random schedules of callers, cancellations, answers and failures. The store executes the
//! calls in the order in which the callers made them, and each call at most once. Each caller that
//! is not cancelled gets the answer to its own call.

use std::collections::HashMap;

use proptest::prelude::*;
use tidegate_core::{Decision, Error, ErrorKind, StoreExt};
use tokio::task::{JoinHandle, yield_now};

use super::gate::{Fate, Gate};
use super::{alive_tasks, call_for, settle};

#[derive(Debug, Clone)]
enum Step {
    /// Makes a call on one of a few subjects.
    Call(u8),
    /// Cancels one of the callers.
    Cancel(prop::sample::Index),
    /// Lets the batch in flight pass. If no batch is in flight, lets the next batch pass.
    Pass(Fate),
    /// Yields this many times, so that other tasks run.
    Yield(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let kinds = prop::sample::select(vec![ErrorKind::Timeout, ErrorKind::Busy]);
    let fate = prop_oneof![
        4 => Just(Fate::Executed),
        1 => kinds.clone().prop_map(Fate::Before),
        1 => kinds.prop_map(Fate::After),
        1 => Just(Fate::OneTooFew),
    ];
    prop_oneof![
        6 => (0..3_u8).prop_map(Step::Call),
        2 => any::<prop::sample::Index>().prop_map(Step::Cancel),
        3 => fate.prop_map(Step::Pass),
        4 => (1..5_usize).prop_map(Step::Yield),
    ]
}

/// A caller with one call. The cost identifies the call, because no two calls have the same cost.
struct Caller {
    subject: String,
    cost: u64,
    is_cancelled: bool,
    task: JoinHandle<Result<Decision, Error>>,
}

async fn run_steps(steps: &[Step], max_batch: usize) -> Result<(), TestCaseError> {
    let gate = Gate::new();
    let store = gate.clone().coalesced().max_batch(max_batch);
    let mut callers: Vec<Caller> = vec![];
    for step in steps {
        match step {
            Step::Call(subject) => {
                let (subject, cost) = (subject.to_string(), callers.len() as u64 + 1);
                let task = call_for("", &store, &subject, cost);
                callers.push(Caller { subject, cost, is_cancelled: false, task });
            }
            Step::Cancel(index) if !callers.is_empty() => {
                let number = index.index(callers.len());
                callers[number].is_cancelled = true;
                callers[number].task.abort();
            }
            Step::Cancel(_) => {}
            Step::Pass(fate) => gate.pass(*fate),
            Step::Yield(times) => {
                for _ in 0..*times {
                    yield_now().await;
                }
            }
        }
    }
    // The gate now lets all batches pass. So all callers that are not cancelled must get an answer.
    for _ in 0..=callers.len() {
        gate.pass(Fate::Executed);
    }
    settle().await;
    for _ in 0..callers.len() {
        settle().await;
    }
    prop_assert_eq!(alive_tasks(), 0, "a caller waits forever, or an idle store has a task");
    prop_assert!(gate.max_in_flight() <= 1);
    for batch in gate.sent() {
        prop_assert!(batch.len() <= max_batch);
    }
    check(callers, &gate).await
}

async fn check(callers: Vec<Caller>, gate: &Gate) -> Result<(), TestCaseError> {
    let executed = gate.executed();
    let costs: Vec<u64> = executed.iter().map(|(_, cost)| *cost).collect();
    prop_assert!(
        costs.is_sorted_by(|a, b| a < b),
        "the calls are not in order or not unique: {:?}",
        costs
    );
    // `remaining_after` maps the cost of each call to the amount that remains after the call.
    let (mut used, mut remaining_after) = (HashMap::<&str, u64>::new(), HashMap::new());
    for (subject, cost) in &executed {
        let used = used.entry(subject).or_default();
        *used += cost;
        remaining_after.insert(*cost, 1_000_000 - *used);
    }
    for Caller { subject, cost, is_cancelled, task } in callers {
        let Ok(answer) = task.await else {
            prop_assert!(is_cancelled);
            continue;
        };
        match answer {
            Ok(decision) => {
                let remaining = decision.verdicts()[0].remaining();
                prop_assert_eq!(
                    Some(&remaining),
                    remaining_after.get(&cost),
                    "{} {}",
                    subject,
                    cost
                );
            }
            Err(error) if error.kind() == ErrorKind::Protocol => {
                prop_assert!(
                    remaining_after.contains_key(&cost),
                    "the missing answer belongs to an executed call"
                );
            }
            Err(error) => prop_assert!(error.to_string().contains("planned"), "{}", error),
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn each_call_is_executed_at_most_once_in_order_and_gets_its_own_answer(
        steps in prop::collection::vec(step(), 1..60),
        max_batch in 1..8_usize,
    ) {
        crate::run(run_steps(&steps, max_batch))?;
    }
}
