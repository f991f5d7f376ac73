//! A scenario played on a store, every answer held against the oracle.

use tidegate_core::{Call, ManualClock, Store};

use crate::generate::{ClockKind, Scenario, Step, Trace};
use crate::oracle::Oracle;
use crate::suite::report::Calls;

/// Plays a scenario on an empty store whose clock is `hand`.
///
/// # Errors
///
/// The first answer that the oracle does not expect, with the steps up to it.
pub async fn follow(
    store: &impl Store,
    hand: &ManualClock,
    scenario: &Scenario,
    clock: ClockKind,
) -> Result<(), String> {
    let (mut oracle, mut before) = (Oracle::new(), Calls::default());
    let mut trace = Trace::new(scenario, clock);
    for (place, step) in scenario.steps.iter().enumerate() {
        let now = trace.pass(step);
        hand.set(now);
        let (operation, charges) = trace.ask(step);
        let call = Call::new(operation, &charges);
        let answer = store.decide(call).await;
        oracle
            .check(&call, now, &answer)
            .map_err(|error| format!("step {place}: {error}{}", before.show()))?;
        before.add(now, &call, &answer);
        if let Ok(decision) = &answer {
            trace.answered(decision);
        }
    }
    Ok(())
}

/// Plays a scenario as [`follow`] does, but in batches of up to `size` calls at one time.
///
/// # Errors
///
/// As [`follow`]; or if the batch has not as many answers as calls.
pub async fn follow_in_batches(
    store: &impl Store,
    hand: &ManualClock,
    scenario: &Scenario,
    clock: ClockKind,
    size: usize,
) -> Result<(), String> {
    let (mut oracle, mut before) = (Oracle::new(), Calls::default());
    let mut trace = Trace::new(scenario, clock);
    for batch in scenario.steps.chunks(size.max(1)) {
        let now = batch.first().map_or(trace.now(), |step| trace.pass(step));
        hand.set(now);
        let asked: Vec<_> = batch.iter().map(|step: &Step| trace.ask(step)).collect();
        let calls: Vec<_> =
            asked.iter().map(|(operation, charges)| Call::new(*operation, charges)).collect();
        let answers = store.decide_many(&calls).await;
        if answers.len() != calls.len() {
            return Err(format!("{} answers to {} calls", answers.len(), calls.len()));
        }
        for (call, answer) in calls.iter().zip(&answers) {
            oracle.check(call, now, answer).map_err(|error| format!("{error}{}", before.show()))?;
            before.add(now, call, answer);
            if let Ok(decision) = answer {
                trace.answered(decision);
            }
        }
    }
    Ok(())
}
