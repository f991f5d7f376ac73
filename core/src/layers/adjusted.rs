//! The layer that applies a limit set.

use std::slice;
use std::sync::Arc;

use smallvec::SmallVec;

use super::layered::{Layer, Layered};
use crate::limit_set::{CurrentLimits, LimitSet, LookUp, Versions, look_up};
use crate::store::send_all;
use crate::{Answer, Call, Charge, Decision, Error, ErrorKind, Policy, Store, Timestamp};

/// A store that applies the [limit set](crate::LimitSet) in force: see
/// [`StoreExt::adjusted`](super::StoreExt::adjusted).
///
/// The layer looks up the policy of each charge by its name, tenant and subject. If the set has a
/// limit for them, the inner store receives the policy of the set. All operations are adjusted. The
/// layer adds no call to the store, and a call uses one version of the set.
/// [`Decision::adjusted_policy`] returns the applied policy.
///
/// A set can be [partly in memory](crate::LimitSet#a-set-that-is-partly-in-memory). The first call
/// that needs another override waits until it was loaded.
///
/// A policy without a given name is never replaced, because its name contains its numbers.
///
/// # Calls with an id
///
/// A store rejects an id under another policy than before with
/// [`IdReused`](crate::ErrorKind::IdReused). So if the set changes between a hold and its
/// settlement, the layer sends the settlement again: with an override that has ended, with the
/// limits of the previous set, and with the policies of the caller. A [`Ticket`](crate::Ticket) has
/// the policies of its hold, so it finds the hold after any number of changes.
pub type AdjustedStore<S> = Layered<AdjustedLayer, S>;

/// The layer of an [`AdjustedStore`].
#[derive(Debug, Clone)]
pub struct AdjustedLayer {
    limits: CurrentLimits,
}

/// For each charge of a call, the policy that replaces its policy.
type Policies = SmallVec<[Option<Policy>; 2]>;

impl AdjustedLayer {
    pub(super) fn new(limits: CurrentLimits) -> Self {
        Self { limits }
    }

    /// Returns the adjusted calls, or `None` if no set has a limit for them.
    fn adjust<'a>(
        &self,
        versions: &Arc<Versions>,
        calls: &[Call<'a>],
    ) -> Option<Vec<AdjustedCall<'a>>> {
        if versions.current.is_empty() && versions.previous.is_empty() {
            return None;
        }
        // One time for all calls, so that one set of overrides decides the whole batch.
        let mut now = None;
        let mut adjust = |call: &Call<'a>| {
            let policies = find(&versions.current, call, &mut || {
                Some(*now.get_or_insert_with(|| self.limits.now()))
            });
            AdjustedCall { call: *call, policies, versions: Arc::clone(versions) }
        };
        let calls: Vec<_> = calls.iter().map(&mut adjust).collect();
        calls.iter().any(AdjustedCall::is_relevant).then_some(calls)
    }

    /// Answers by the versions in force. If overrides for the charges are not in memory, loads them
    /// first.
    fn answer<'a, T: Send + 'a>(
        &'a self,
        charges: impl Iterator<Item = Charge<'a>>,
        answer_by: impl FnOnce(&Arc<Versions>) -> Answer<'a, T> + Send + 'a,
    ) -> Answer<'a, T> {
        let versions = self.limits.versions();
        if !versions.is_partial() {
            return answer_by(&versions);
        }
        let needed: SmallVec<[LookUp<'a>; 2]> =
            charges.filter_map(|charge| look_up(&charge)).collect();
        if versions.absent(&needed).is_empty() {
            return answer_by(&versions);
        }
        Answer::later(async move {
            let versions = self.limits.loaded(&needed).await;
            answer_by(&versions).await
        })
    }

    async fn decide_each(
        inner: &impl Store,
        calls: Vec<AdjustedCall<'_>>,
    ) -> Vec<Result<Decision, Error>> {
        let charges: Vec<_> = calls.iter().map(|call| call.charges(&call.policies)).collect();
        let adjusted = calls.iter().zip(&charges).map(|(call, charges)| call.with(charges));
        let adjusted: Vec<Call<'_>> = adjusted.collect();
        let answers = send_all(inner, &adjusted).await;
        let mut all = Vec::with_capacity(answers.len());
        for (call, answer) in calls.iter().zip(answers) {
            all.push(match answer {
                Err(error) if has_other_policies(&error) => {
                    call.decide_as_before(inner, error).await
                }
                answer => answer.map(|decision| marked(decision, &call.policies)),
            });
        }
        all
    }
}

/// A call, and the policies that replace its policies.
struct AdjustedCall<'a> {
    call: Call<'a>,
    policies: Policies,
    versions: Arc<Versions>,
}

impl<'a> AdjustedCall<'a> {
    /// Returns `false` if no version of the set affects the call.
    fn is_relevant(&self) -> bool {
        self.policies.iter().any(Option::is_some)
            || self.call.id.is_some() && self.earlier().any(|earlier| earlier != self.policies)
    }

    /// Returns the policies that a call with the same id possibly had before.
    fn earlier(&self) -> impl Iterator<Item = Policies> {
        let sets = [&self.versions.current, &self.versions.previous];
        let from_sets = sets.into_iter().map(|set| find(set, &self.call, &mut || None));
        let own = self.call.charges.iter().map(|_| None).collect();
        from_sets.chain(std::iter::once(own))
    }

    /// Sends a call whose id is known under other policies.
    async fn decide_as_before(&self, inner: &impl Store, error: Error) -> Result<Decision, Error> {
        let mut tried = vec![self.policies.clone()];
        for policies in self.earlier() {
            if tried.contains(&policies) {
                continue;
            }
            let answer = inner.decide(self.with(&self.charges(&policies))).await;
            match answer {
                Err(error) if has_other_policies(&error) => tried.push(policies),
                answer => return answer.map(|decision| marked(decision, &policies)),
            }
        }
        Err(error)
    }

    fn charges<'c>(&'c self, policies: &'c Policies) -> SmallVec<[Charge<'c>; 2]> {
        let all = self.call.charges.iter().zip(policies);
        all.map(|(charge, policy)| Charge {
            policy: policy.as_ref().unwrap_or(charge.policy),
            ..charge
        })
        .collect()
    }

    fn with<'c>(&'c self, charges: &'c [Charge<'c>]) -> Call<'c> {
        Call { id: self.call.id, ..Call::new(self.call.operation, charges) }
    }
}

fn find(set: &LimitSet, call: &Call<'_>, now: &mut impl FnMut() -> Option<Timestamp>) -> Policies {
    let find = |charge: Charge<'_>| {
        let policy = set.find_for(&charge, &mut *now)?;
        // The policy of a charge beyond the limit is a copy with a higher limit.
        Some(match charge.policy.raise() {
            Some(_) => policy.beyond_limit(),
            None => policy.clone(),
        })
    };
    call.charges.iter().map(find).collect()
}

/// Returns `true` if the call possibly has the id of a hold or a call under other policies. If the
/// number of shards has changed, the store searches for a hold at another place, and does not know
/// it.
fn has_other_policies(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::IdReused | ErrorKind::UnknownHold)
}

fn marked(decision: Decision, policies: &Policies) -> Decision {
    match policies.iter().any(Option::is_some) {
        true => decision.adjusted_by(policies.iter().cloned()),
        false => decision,
    }
}

impl<S: Store> Layer<S> for AdjustedLayer {
    const MAY_WAIT: bool = false;

    fn decide<'a>(&'a self, inner: &'a S, call: Call<'a>) -> Answer<'a, Result<Decision, Error>> {
        self.answer(call.charges.iter(), move |versions| {
            let Some(adjusted) = self.adjust(versions, slice::from_ref(&call)) else {
                return inner.decide(call);
            };
            let answer = async move { Error::single(Self::decide_each(inner, adjusted).await) };
            Answer::from_future(inner.answers_immediately(), answer)
        })
    }

    fn decide_many<'a>(
        &'a self,
        inner: &'a S,
        calls: &'a [Call<'a>],
    ) -> Answer<'a, Vec<Result<Decision, Error>>> {
        self.answer(calls.iter().flat_map(|call| call.charges.iter()), move |versions| {
            match self.adjust(versions, calls) {
                Some(adjusted) => Answer::later(Self::decide_each(inner, adjusted)),
                None => inner.decide_many(calls),
            }
        })
    }

    fn answers_immediately(&self, inner: &S) -> bool {
        !self.limits.is_partial() && inner.answers_immediately()
    }

    fn adjusted_policy<'a>(
        &'a self,
        inner: &'a S,
        charge: Charge<'a>,
    ) -> Answer<'a, Option<Policy>> {
        self.answer(std::iter::once(charge), move |versions| {
            match versions.current.find_for(&charge, || Some(self.limits.now())) {
                Some(found) => Answer::ready(Some(found.clone())),
                None => inner.adjusted_policy(charge),
            }
        })
    }
}
