//! Calls that no chunk admits. Each such call is sent to the store, alone or in a batch.

use std::collections::HashSet;
use std::sync::Arc;

use super::barrier::{Answers, Barrier, return_chunks, send_paused};
use super::keeper::Keeper;
use super::key::{is_plain_acquire, state_keys};
use super::refused::{cause, resolve};
use super::table::StoreCall;
use crate::{Answer, Call, Clock, Decision, Error, Operation, Outcome, Store};

pub(super) fn pass<'a, S: Store + 'static, C: Clock + 'static>(
    keeper: &'a Arc<Keeper<S, C>>,
    sent: StoreCall<'a>,
) -> Answer<'a, Result<Decision, Error>> {
    match Barrier::before(&sent.call) {
        Barrier::None => send(keeper, sent),
        _ if sent.call.operation.is_acquire() && keeper.table.has_no_chunks() => send(keeper, sent),
        Barrier::UnlessEnough => Answer::later(send_if_enough(keeper, sent)),
        Barrier::Always => Answer::later(send_after_barrier(keeper, sent.call)),
    }
}

fn send<'a, S: Store + 'static, C: Clock + 'static>(
    keeper: &'a Arc<Keeper<S, C>>,
    sent: StoreCall<'a>,
) -> Answer<'a, Result<Decision, Error>> {
    let call = sent.call;
    let settled = keeper.table.in_flight.settled();
    let answer = keeper.store().decide(call);
    if call.operation == Operation::Peek {
        return answer.map(move |mut answer| {
            if let Ok(decision) = &mut answer {
                keeper.table.add_unspent(&call, decision, &keeper.clock);
            }
            answer
        });
    }
    if !call.operation.is_acquire() {
        return answer;
    }
    match answer.into_ready() {
        Ok(answer) if cause(keeper, &call, &answer, settled).is_none() => {
            keeper.record(sent, &answer);
            Answer::ready(answer)
        }
        Ok(answer) => Answer::later(resolve(keeper, sent, answer, settled)),
        Err(later) => {
            Answer::later(async move { resolve(keeper, sent, later.await, settled).await })
        }
    }
}

/// Sends a call whose answer depends on the whole remaining amount, such as an acquire up to. If
/// the node has chunks of the call's states, first sends a peek. If the peek shows that the store
/// would admit the whole cost, the chunks stay on this node. If not, the node returns the chunks
/// before it sends the call.
async fn send_if_enough<S: Store + 'static, C: Clock + 'static>(
    keeper: &Arc<Keeper<S, C>>,
    sent: StoreCall<'_>,
) -> Result<Decision, Error> {
    let call = sent.call;
    if keeper.table.has_chunks_of(&state_keys(call.charges, &keeper.table.hasher)) {
        let peek = Call { operation: Operation::Peek, id: None, ..call };
        let has_enough = keeper.store().decide(peek).await.is_ok_and(|decision| {
            let mut verdicts = decision.verdicts().iter();
            decision.degraded().is_none()
                && verdicts.all(|verdict| verdict.outcome() == Outcome::Allowed)
        });
        if !has_enough {
            return send_after_barrier(keeper, call).await;
        }
    }
    // After the peek, other callers possibly use the remaining amount. If the store then refuses
    // this call, `send` returns the chunks and sends the call again.
    send(keeper, sent).await
}

async fn send_after_barrier<S: Store + 'static, C: Clock + 'static>(
    keeper: &Arc<Keeper<S, C>>,
    call: Call<'_>,
) -> Result<Decision, Error> {
    let pause = return_chunks(keeper, &call).await;
    let answers = send_paused(keeper, &[call], vec![pause]).await;
    answers.into_iter().next().unwrap_or_else(|| Err(Error::no_answer()))
}

pub(super) fn pass_many<'a, S: Store + 'static, C: Clock + 'static>(
    keeper: &'a Arc<Keeper<S, C>>,
    calls: &'a [Call<'a>],
) -> Answer<'a, Answers> {
    let hasher = &keeper.table.hasher;
    // The decision of a chunk on each call, or `None` for a call that is sent to the store.
    let mut local: Vec<Option<Decision>> = Vec::with_capacity(calls.len());
    // If a call shares a state with an earlier call of the batch that is sent to the store, this
    // call is sent too, so that the store executes both calls in their order.
    let (mut all_sent, mut sent_states) = (vec![], HashSet::with_hasher(hasher.clone()));
    for call in calls {
        let states = state_keys(call.charges, hasher);
        let is_first = !states.iter().any(|state| sent_states.contains(state));
        let can_lease = is_plain_acquire(call) && keeper.table.settings.can_lease(call.charges);
        let admission = match can_lease {
            true if is_first => keeper.admit(call.charges).map_err(Some),
            true => Err(Some(keeper.table.candidate(call.charges))),
            false => Err(None),
        };
        if let Err(candidate) = admission {
            sent_states.extend(states);
            all_sent.push(StoreCall { call: *call, candidate });
        }
        local.push(admission.ok());
    }
    let merge = |answers: Answers| {
        let mut answers = answers.into_iter();
        let mut next = || answers.next().unwrap_or_else(|| Err(Error::no_answer()));
        local.into_iter().map(|local| local.map_or_else(&mut next, Ok)).collect()
    };
    if all_sent.is_empty() {
        return Answer::ready(merge(vec![]));
    }
    Answer::later(async move {
        merge(match all_sent[..] {
            [sent] => vec![pass(keeper, sent).await],
            _ => send_many(keeper, &all_sent).await,
        })
    })
}

async fn send_many<S: Store + 'static, C: Clock + 'static>(
    keeper: &Arc<Keeper<S, C>>,
    all_sent: &[StoreCall<'_>],
) -> Answers {
    let calls: Vec<_> = all_sent.iter().map(|sent| sent.call).collect();
    let mut pauses = Vec::new();
    for call in &calls {
        // No peek is sent before a batch, because the peek would not see the charges of earlier
        // calls of the batch.
        if Barrier::before(call) != Barrier::None {
            pauses.push(return_chunks(keeper, call).await);
        }
    }
    let settled = keeper.table.in_flight.settled();
    let mut answers = if pauses.is_empty() {
        keeper.store().decide_many(&calls).await
    } else {
        send_paused(keeper, &calls, pauses).await
    };
    for (sent, answer) in all_sent.iter().zip(&mut answers) {
        if sent.call.operation.is_acquire() {
            let first = std::mem::replace(answer, Err(Error::no_answer()));
            *answer = resolve(keeper, *sent, first, settled).await;
        } else if sent.call.operation == Operation::Peek
            && let Ok(decision) = answer
        {
            keeper.table.add_unspent(&sent.call, decision, &keeper.clock);
        }
    }
    answers
}
