//! Takes and frees the slots of a request.
//!
//! Each limit of slots makes its own hold, under the id in the descriptor. One hold of the slots
//! and the policies together would need only one call. But a hold is settled with all its charges,
//! and the request with which Envoy frees slots contains only the descriptors of the slots. So the
//! server takes the slots before it charges the policies, and frees the slots again if a policy
//! refuses the request.

use std::sync::Arc;

use tidegate_core::no_semver::send_all;
use tidegate_core::{
    Call, CallId, Charge, Decision, Error, ErrorKind, Operation, OwnedCall, Store,
};
use tokio::runtime::Handle;

use super::carry_out::{Answer, only, select, set};
use super::plan::{Limited, Planned, Rule};
use super::{DecideError, RequestError};

/// The slots that a descriptor takes or frees.
struct Slots<'p> {
    index: usize,
    limited: &'p Limited,
    operation: Operation,
    charge: [Charge<'p>; 1],
    id: CallId<'p>,
}

/// The slots that a request takes. If this value is dropped, a task frees the slots, because Envoy
/// cancels its call if the client disconnects before the answer. The end of such a request can
/// arrive before its slots are taken, or not at all.
pub(super) struct Taken<'p> {
    pub(super) is_refused: bool,
    slots: Vec<Slots<'p>>,
    store: &'p Arc<dyn Store>,
}

/// Takes the slots of a request. If another limit has refused the request (`is_refused`), the
/// function only reads the number of free slots. If a limit of slots refuses the request, the
/// caller must [free](Taken::free) the slots of the other limits.
pub(super) async fn take<'p>(
    planned: &'p [Planned],
    store: &'p Arc<dyn Store>,
    is_refused: bool,
    answers: &mut [Option<Answer>],
) -> Result<Taken<'p>, DecideError> {
    let slots = Slots::from_plan(planned, move |descriptor| match descriptor {
        Planned { is_refund: true, .. } => None,
        Planned { hits: 0, .. } => Some((Operation::Peek, 1)),
        Planned { hits, .. } if is_refused => Some((Operation::Peek, *hits)),
        Planned { hits, .. } => Some((Operation::Hold, *hits)),
    });
    let mut taken = Taken { is_refused: false, slots, store };
    let decisions = decide(&taken.slots, &**store).await;
    let mut failure = None;
    for (slots, decision) in std::mem::take(&mut taken.slots).into_iter().zip(decisions) {
        match decision {
            Ok(decision) => {
                set(answers, slots.index, Answer::Slots(only(&decision)?));
                taken.is_refused |= decision.is_denied();
                if slots.operation == Operation::Hold && decision.is_allowed() {
                    taken.slots.push(slots);
                }
            }
            Err(error) => failure = Some(failed(error, slots.limited)),
        }
    }
    if let Some(failure) = failure {
        taken.free(answers).await;
        return Err(failure);
    }
    if !taken.slots.is_empty() {
        // If the store has answered immediately, the connection has not checked yet whether Envoy
        // has cancelled the call. If it has, this future is dropped here.
        tokio::task::yield_now().await;
    }
    Ok(taken)
}

impl Taken<'_> {
    /// Frees the slots, because the request is refused or fails. If the store fails too, the
    /// request that Envoy sends at the end of the stream frees the slots.
    pub(super) async fn free(mut self, answers: &mut [Option<Answer>]) {
        self.settle();
        let decisions = decide(&self.slots, &**self.store).await;
        for (slots, decision) in std::mem::take(&mut self.slots).into_iter().zip(decisions) {
            if let Ok(verdict) = decision.and_then(|decision| only(&decision)) {
                set(answers, slots.index, Answer::Slots(verdict));
            }
        }
    }

    /// Keeps the slots, because the request is admitted.
    pub(super) fn keep(mut self) {
        self.slots.clear();
    }

    /// Turns the holds into settlements that free the slots.
    fn settle(&mut self) {
        self.slots.retain(|slots| slots.operation != Operation::Peek);
        for slots in &mut self.slots {
            slots.operation = Operation::Settle;
            slots.charge = slots.charge.map(|charge| charge.cost(0));
        }
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.settle();
        if let (false, Ok(runtime)) = (self.slots.is_empty(), Handle::try_current()) {
            let store = Arc::clone(self.store);
            let calls: Vec<OwnedCall> =
                self.slots.iter().map(|slots| slots.call().into()).collect();
            runtime.spawn(async move {
                let calls: Vec<Call<'_>> = calls.iter().map(OwnedCall::as_call).collect();
                let _ = send_all(&store, &calls).await;
            });
        }
    }
}

/// Frees the slots of requests that have ended.
pub(super) async fn give_back(
    planned: &[Planned],
    store: &dyn Store,
    answers: &mut [Option<Answer>],
) -> Result<(), Error> {
    let slots = Slots::from_plan(planned, |descriptor| {
        descriptor.is_refund.then_some((Operation::Settle, 0))
    });
    for (slots, decision) in slots.iter().zip(decide(&slots, store).await) {
        match decision {
            Ok(decision) => set(answers, slots.index, Answer::Slots(only(&decision)?)),
            // Envoy also frees the slots of a request that was refused. A hold that was made before
            // the name of the policy changed keeps its slots until it lapses.
            Err(error) if matches!(error.kind(), ErrorKind::UnknownHold | ErrorKind::IdReused) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

impl<'p> Slots<'p> {
    /// Returns the slots of each descriptor for which `operation` returns an operation and a cost.
    fn from_plan(
        planned: &'p [Planned],
        operation: impl Fn(&Planned) -> Option<(Operation, u64)> + 'p,
    ) -> Vec<Self> {
        let slots = select(planned, move |descriptor, limited| match &limited.rule {
            _ if limited.is_denied(descriptor.hits) => None,
            Rule::Slots(rule) => operation(descriptor).map(|operation| (rule, operation)),
            Rule::Counted(_) | Rule::Policy(_) => None,
        });
        slots
            .map(|(index, _, limited, (rule, (operation, cost)))| Self {
                index,
                limited,
                operation,
                charge: [Charge::new(limited.charged(), &limited.subject).cost(cost)],
                // The window of slots is their lease.
                id: CallId::new(&rule.id, rule.policy.window()),
            })
            .collect()
    }

    fn call(&self) -> Call<'_> {
        let call = Call::new(self.operation, &self.charge);
        if self.operation == Operation::Peek { call } else { call.with_id(self.id) }
    }
}

async fn decide(slots: &[Slots<'_>], store: &dyn Store) -> Vec<Result<Decision, Error>> {
    let calls: Vec<Call<'_>> = slots.iter().map(Slots::call).collect();
    send_all(store, &calls).await
}

/// Returns the error for a hold that was not made.
fn failed(error: Error, limited: &Limited) -> DecideError {
    use ErrorKind::{AlreadySettled, HoldLapsed, IdReused, UnknownHold};
    if !matches!(error.kind(), AlreadySettled | HoldLapsed | IdReused | UnknownHold) {
        return error.into();
    }
    let place = &limited.limit.place;
    let message = format!(
        "an earlier request has used the id for the slots of the limit at {place}; each request needs its own id"
    );
    RequestError::new(message).into()
}
