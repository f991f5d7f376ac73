//! Executes a scenario on a store, and compares every answer with the oracle.

use tidegate_core::{
    Call, CallId, Charge, Decision, Error, ErrorKind, ManualClock, Operation, Policy, Store,
};

use crate::call_log::CallLog;
use crate::generate::{ClockKind, HoldScenario, Places, Scenario, Step, Trace};
use crate::oracle::Oracle;

/// Returns `true` if the answer is an error that is allowed because the charges of the call belong
/// to different slots of a cluster. A store on a cluster cannot execute an "acquire up to", a list
/// of alternatives or a call with an id atomically in several slots. It refuses such a call and
/// charges nothing.
pub(crate) fn is_unsupported_over_slots(call: &Call<'_>, answer: &Result<Decision, Error>) -> bool {
    let needs_one_slot =
        call.id.is_some() || matches!(call.operation, Operation::AcquireUpTo { .. });
    let has_one_slot = |charges: Vec<Charge<'_>>| {
        charges.windows(2).all(|pair| pair[0].slot_key() == pair[1].slot_key())
    };
    let in_list = |list: u8| call.charges.iter().filter(move |charge| charge.list == list);
    let is_over_slots = match needs_one_slot {
        true => !has_one_slot(call.charges.iter().collect()),
        false => (1..=u8::MAX).any(|list| !has_one_slot(in_list(list).collect())),
    };
    is_over_slots && answer.as_ref().is_err_and(|error| error.kind() == ErrorKind::Unsupported)
}

/// Returns `true` if a store that remembers no calls has refused a grant.
pub(crate) fn is_grant_without_ids(call: &Call<'_>, answer: &Result<Decision, Error>) -> bool {
    matches!(call.operation, Operation::Grant { .. })
        && answer.as_ref().is_err_and(|error| error.kind() == ErrorKind::Unsupported)
}

/// Executes a scenario on an empty store that uses `clock`, and compares every answer with the
/// oracle.
///
/// # Errors
///
/// Returns an error that describes the first unexpected answer and the last calls before it.
pub async fn run_against_oracle(
    store: &impl Store,
    clock: &ManualClock,
    scenario: &Scenario,
    moves: ClockKind,
) -> Result<(), String> {
    let (mut oracle, mut log) = (Oracle::new(), CallLog::default());
    let mut trace = Trace::new(scenario, moves);
    for (place, step) in scenario.steps.iter().enumerate() {
        let now = trace.pass(step);
        clock.set(now);
        let (operation, charges) = trace.ask(step);
        let call = trace.call(operation, &charges);
        let answer = store.decide(call).await;
        if is_unsupported_over_slots(&call, &answer) || is_grant_without_ids(&call, &answer) {
            oracle.pass(now);
            continue;
        }
        oracle
            .check(&call, now, &answer)
            .map_err(|error| format!("step {place}: {error}{}", log.show()))?;
        log.add(now, &call, &answer);
        if let Ok(decision) = &answer {
            trace.answered(decision);
        }
    }
    Ok(())
}

/// Executes a scenario like [`run_against_oracle`], but in batches of up to `size` calls that are
/// made at the same time.
///
/// # Errors
///
/// Returns an error in the same cases as [`run_against_oracle`], or if the store returns a wrong
/// number of answers.
pub async fn run_batches_against_oracle(
    store: &impl Store,
    clock: &ManualClock,
    scenario: &Scenario,
    moves: ClockKind,
    size: usize,
) -> Result<(), String> {
    let (mut oracle, mut log) = (Oracle::new(), CallLog::default());
    let mut trace = Trace::new(scenario, moves);
    for batch in scenario.steps.chunks(size.max(1)) {
        let now = batch.first().map_or(trace.now(), |step| trace.pass(step));
        clock.set(now);
        let requests: Vec<_> = batch.iter().map(|step: &Step| trace.ask(step)).collect();
        let calls: Vec<_> =
            requests.iter().map(|(operation, charges)| trace.call(*operation, charges)).collect();
        let answers = store.decide_many(&calls).await;
        if answers.len() != calls.len() {
            return Err(format!(
                "`decide_many` returned {} answers to {} calls",
                answers.len(),
                calls.len()
            ));
        }
        for (call, answer) in calls.iter().zip(&answers) {
            if is_unsupported_over_slots(call, answer) || is_grant_without_ids(call, answer) {
                oracle.pass(now);
                continue;
            }
            oracle.check(call, now, answer).map_err(|error| format!("{error}{}", log.show()))?;
            log.add(now, call, answer);
            if let Ok(decision) = answer {
                trace.answered(decision);
            }
        }
    }
    Ok(())
}

/// Executes a scenario of holds on an empty store that uses `clock`, and compares every answer with
/// the oracle. Under a policy with `refund-lapsed`, the times in the verdicts are not compared,
/// because the times of the oracle do not include the refunds of holds that will lapse.
///
/// # Errors
///
/// Returns an error in the same cases as [`run_against_oracle`].
pub async fn run_holds_against_oracle(
    store: &impl Store,
    clock: &ManualClock,
    scenario: &HoldScenario,
) -> Result<(), String> {
    let (mut oracle, mut log) = (Oracle::new(), CallLog::default());
    let mut places = Places::default();
    for (place, step) in scenario.calls().into_iter().enumerate() {
        clock.set(step.now);
        let call = Call::new(places.operation(&step), &step.charges);
        let id = step.id.as_ref().map(|(id, ttl)| CallId::new(id, *ttl));
        let call = id.map_or(call, |id| call.with_id(id));
        let answer = store.decide(call).await;
        places.learn(&step, &answer);
        let refunds_lapsed = scenario.policies.iter().any(Policy::refunds_lapsed);
        let checked = match refunds_lapsed {
            true => oracle.check_without_times(&call, step.now, &answer),
            false => oracle.check(&call, step.now, &answer),
        };
        checked.map_err(|error| format!("step {place}: {error}{}", log.show()))?;
        log.add(step.now, &call, &answer);
    }
    Ok(())
}
