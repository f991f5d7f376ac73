//! The layer that allows and denies subjects by lists.

use std::slice;

use smallvec::SmallVec;

use super::layered::{Layer, Layered};
use crate::lists::{ListAction, PolicyLists};
use crate::store::send_all;
#[cfg(feature = "metrics")]
use crate::telemetry::count_listed;
use crate::{Answer, Call, Charge, Decision, Error, Operation, Outcome, Policy, Store, Verdict};

/// A store that allows and denies subjects by [lists](crate::Lists): see
/// [`StoreExt::listed`](super::StoreExt::listed).
///
/// The layer looks up the subject of each charge in the lists of the charge's policy:
///
/// * If an entry denies the subject of an enforced policy, the call is refused, and nothing is
///   charged. The verdict has the outcome [`Outcome::DenyListed`] and no `retry_after`. The store
///   is called only if the call has other charges: a peek then returns their verdicts.
/// * If an entry allows the subject, the store counts the charge beyond the limit. The charge is
///   refused only if the subject is [blocked](Outcome::Blocked). All other charges of the call are
///   decided as usual, in the same atomic call.
///
/// The lists affect acquires, reservations, holds and peeks. All other operations, such as refunds,
/// settlements and blocks, are passed to the store unchanged. The [maximum
/// hold](crate::Policy::max_hold) of a policy also applies to subjects that are allowed.
///
/// The state of an allowed subject counts up to a maximum far above the limit. A charge beyond this
/// maximum passes and is not counted, at the price of a second call to the store.
///
/// [`Verdict::list_action`] returns the action of the entry. If the policy is a
/// [shadow](crate::Policy::shadow), an entry that denies is only reported there.
pub type ListedStore<S> = Layered<ListedLayer, S>;

/// The layer of a [`ListedStore`].
#[derive(Debug, Clone)]
pub struct ListedLayer {
    lists: PolicyLists,
}

impl ListedLayer {
    pub(super) fn new(lists: PolicyLists) -> Self {
        Self { lists }
    }

    /// Finds the entries for the charges of each call. Returns `None` if no entry matches.
    fn find<'a>(&self, calls: &[Call<'a>]) -> Option<Vec<ListedCall<'a>>> {
        let lists = self.lists.version();
        let find = |charge: Charge<'_>| match charge.policy.raise() {
            Some(_) => Some(ListAction::Allow),
            None => lists.find(charge.policy.name(), charge.subject),
        };
        let is_listed = |call: &Call<'_>| {
            call.operation.can_be_refused()
                && call.charges.iter().any(|charge| find(charge).is_some())
        };
        calls.iter().any(is_listed).then(|| {
            let listed = |call: &Call<'a>| match is_listed(call) {
                true => ListedCall::new(*call, find),
                false => ListedCall::new(*call, |_| None),
            };
            calls.iter().map(listed).collect()
        })
    }

    async fn decide_each(
        inner: &impl Store,
        calls: Vec<ListedCall<'_>>,
    ) -> Vec<Result<Decision, Error>> {
        let first = calls.iter().map(ListedCall::first).collect();
        let first = send(inner, &calls, first).await;
        let second = calls.iter().zip(&first).map(|(call, first)| call.second(first)).collect();
        let second = send(inner, &calls, second).await;
        let answers = calls.iter().zip(first).zip(second);
        answers.map(|((call, first), second)| call.answer(first, second)).collect()
    }
}

/// The charges that are sent to the store, and their indices in the call.
type Sent<'a> = SmallVec<[(usize, Charge<'a>); 2]>;

/// Sends a call for each value that is not `None`, in one batch. Returns the answers in the order
/// of the values.
async fn send(
    inner: &impl Store,
    calls: &[ListedCall<'_>],
    sent: Vec<Option<Sent<'_>>>,
) -> Vec<Option<Result<Decision, Error>>> {
    let charges: Vec<Option<SmallVec<[Charge<'_>; 2]>>> = sent
        .iter()
        .map(|sent| sent.as_ref().map(|sent| sent.iter().map(|(_, charge)| *charge).collect()))
        .collect();
    let sub_calls: Vec<Call<'_>> = calls
        .iter()
        .zip(&charges)
        .filter_map(|(call, charges)| Some(call.with_charges(charges.as_ref()?)))
        .collect();
    let mut answers = send_all(inner, &sub_calls).await.into_iter();
    let mut answer = || answers.next().unwrap_or_else(|| Err(Error::no_answer()));
    charges.iter().map(|charges| charges.as_ref().map(|_| answer())).collect()
}

/// A call, and the action of the list entry for each of its charges.
struct ListedCall<'a> {
    call: Call<'a>,
    actions: SmallVec<[Option<ListAction>; 4]>,
    /// For each charge that is allowed, its policy [beyond the limit](Policy::beyond_limit).
    beyond: SmallVec<[Option<Policy>; 4]>,
    is_denied: bool,
}

impl<'a> ListedCall<'a> {
    fn new(call: Call<'a>, find: impl Fn(Charge<'_>) -> Option<ListAction>) -> Self {
        let actions: SmallVec<[_; 4]> = call.charges.iter().map(find).collect();
        let all = || call.charges.iter().zip(&actions);
        // A policy per tenant can have charges for several subjects on one state. The state decides
        // these charges together, so they are allowed only if each of them is allowed.
        let is_allowed = |charge: &Charge<'_>| {
            let is_limited = |(other, action): (Charge<'_>, &Option<ListAction>)| {
                *action != Some(ListAction::Allow) && other.shares_state_with(charge)
            };
            !all().any(is_limited)
        };
        let action = |(charge, action): (Charge<'_>, &Option<ListAction>)| match action {
            Some(ListAction::Allow) if !is_allowed(&charge) => None,
            action => *action,
        };
        let actions: SmallVec<[_; 4]> = all().map(action).collect();
        let is_denied = call.charges.iter().zip(&actions).any(denies);
        let beyond = call.charges.iter().zip(&actions).map(|(charge, action)| {
            (*action == Some(ListAction::Allow)).then(|| charge.policy.beyond_limit())
        });
        Self { call, beyond: beyond.collect(), actions, is_denied }
    }

    /// Returns the charges to send first, or `None` if the layer refuses all charges by itself.
    fn first(&self) -> Option<Sent<'_>> {
        let all = self.call.charges.iter().zip(self.actions.iter().zip(&self.beyond));
        let sent: Sent<'_> = all
            .enumerate()
            .filter(|(_, (charge, (action, _)))| !denies((*charge, action)))
            .map(|(index, (charge, (_, beyond)))| {
                (index, Charge { policy: beyond.as_ref().unwrap_or(charge.policy), ..charge })
            })
            .collect();
        // The store checks an empty call, and returns the error.
        (!sent.is_empty() || self.actions.is_empty()).then_some(sent)
    }

    /// Returns the charges to send after the answer `first`, if the state of an allowed subject
    /// cannot count the charge, and no other charge is refused. A hold must keep all its charges,
    /// so it is sent at a cost of 0. Other calls are sent without the charge.
    fn second(&self, first: &Option<Result<Decision, Error>>) -> Option<Sent<'_>> {
        let decision = first.as_ref()?.as_ref().ok()?;
        let is_final = self.is_denied
            || decision.is_allowed()
            || !self.is_whole(decision)
            || self.call.operation == Operation::Peek
            || self.call.operation.min_amount().is_some();
        let is_uncountable = |index: usize| {
            self.is_allowed(index) && decision.verdicts().get(index).is_some_and(is_denial)
        };
        if is_final || !decision.refused_by().all(is_uncountable) {
            return None;
        }
        let is_hold = self.call.operation.is_of_hold();
        let sent = self.first()?.into_iter().filter_map(|(index, charge)| {
            match (is_uncountable(index), is_hold) {
                (false, _) => Some((index, charge)),
                (true, true) => Some((index, charge.cost(0))),
                (true, false) => None,
            }
        });
        Some(sent.collect::<Sent<'_>>()).filter(|sent| !sent.is_empty())
    }

    fn with_charges<'c>(&'c self, charges: &'c [Charge<'c>]) -> Call<'c> {
        match self.is_denied {
            true => Call::new(Operation::Peek, charges),
            false => Call { id: self.call.id, ..Call::new(self.call.operation, charges) },
        }
    }

    fn answer(
        &self,
        first: Option<Result<Decision, Error>>,
        second: Option<Result<Decision, Error>>,
    ) -> Result<Decision, Error> {
        if self.is_denied {
            self.call.check()?;
        }
        let (first, second) = (first.transpose()?, second.transpose()?);
        let decision = match (&first, &second) {
            (_, Some(last)) | (Some(last), None) if self.is_whole(last) => last.clone(),
            _ => self.merge(first.as_ref(), second.as_ref()),
        };
        // The layer has tried to send the call without the charges that cannot be counted. If the
        // store has still refused only such charges, nothing is charged, so the call is refused.
        let operation = self.call.operation;
        let last = second.as_ref().or(first.as_ref());
        let is_final =
            second.is_some() || operation.is_of_hold() || operation.min_amount().is_some();
        let is_uncountable = |index: usize| {
            let verdict = decision.verdicts().get(index);
            self.is_allowed(index) && verdict.is_some_and(is_denial)
        };
        let keeps_denials = is_final
            && !self.is_denied
            && last.is_some_and(Decision::is_denied)
            && decision.refused_by().all(is_uncountable);
        Ok(self.marked(decision, keeps_denials))
    }

    /// Returns `true` if the decision has all charges of the call.
    fn is_whole(&self, decision: &Decision) -> bool {
        decision.verdicts().len() == self.actions.len()
    }

    fn is_allowed(&self, index: usize) -> bool {
        self.actions.get(index) == Some(&Some(ListAction::Allow))
    }

    /// Returns the decision on all charges, if the last answer lacks some of them. The charges that
    /// a list denies have no answer. The charges that the second call has left out have their first
    /// answer.
    fn merge(&self, first: Option<&Decision>, second: Option<&Decision>) -> Decision {
        let mut rest = second.or(first).map_or(&[][..], Decision::verdicts).iter();
        let verdicts = self.call.charges.iter().zip(&self.actions).enumerate();
        let verdicts = verdicts.map(|(index, (charge, action))| {
            let before =
                first.filter(|_| second.is_some()).and_then(|first| first.verdicts().get(index));
            match before {
                Some(before) if self.is_allowed(index) && is_denial(before) => *before,
                _ if denies((charge, action)) => Verdict::deny_listed(charge.policy),
                _ => rest.next().copied().unwrap_or(Verdict::deny_listed(charge.policy)),
            }
        });
        let decision = Decision::new(verdicts);
        let Some(last) = second.or(first) else { return decision };
        let decision = decision.with_wait(last.wait());
        match last.degraded() {
            Some(degraded) => decision.degraded_by(degraded.clone()),
            None => decision,
        }
    }

    /// Reports the entries in the verdicts, and converts the verdicts of raised limits.
    fn marked(&self, mut decision: Decision, keeps_denials: bool) -> Decision {
        let all = self.call.charges.iter().zip(self.actions.iter().zip(&self.beyond));
        for ((charge, (action, beyond)), verdict) in all.zip(decision.verdicts_mut()) {
            match action {
                Some(_) if verdict.list_action().is_some() => {}
                Some(ListAction::Allow) => {
                    let raise = beyond.as_ref().and_then(Policy::raise).unwrap_or(0);
                    *verdict = verdict.counted_beyond(raise, keeps_denials);
                }
                Some(ListAction::Deny) => *verdict = verdict.with_deny_entry(),
                None => continue,
            }
            if let (Some(action), None, true) =
                (action, charge.policy.raise(), self.call.operation.is_acquire())
            {
                count_listed(charge.policy.name(), *action);
            }
        }
        decision
    }
}

fn is_denial(verdict: &Verdict) -> bool {
    verdict.outcome() == Outcome::Denied
}

/// Returns `true` if an entry refuses the charge. A shadow never refuses.
fn denies((charge, action): (Charge<'_>, &Option<ListAction>)) -> bool {
    *action == Some(ListAction::Deny) && !charge.policy.is_shadow()
}

#[cfg(not(feature = "metrics"))]
fn count_listed(_: &str, _: ListAction) {}

impl<S: Store> Layer<S> for ListedLayer {
    const MAY_WAIT: bool = false;

    fn decide<'a>(&'a self, inner: &'a S, call: Call<'a>) -> Answer<'a, Result<Decision, Error>> {
        let Some(listed) = self.find(slice::from_ref(&call)) else { return inner.decide(call) };
        let answer = async move { Error::single(Self::decide_each(inner, listed).await) };
        Answer::from_future(inner.answers_immediately(), answer)
    }

    fn decide_many<'a>(
        &'a self,
        inner: &'a S,
        calls: &'a [Call<'a>],
    ) -> Answer<'a, Vec<Result<Decision, Error>>> {
        match self.find(calls) {
            Some(listed) => Answer::later(Self::decide_each(inner, listed)),
            None => inner.decide_many(calls),
        }
    }
}
