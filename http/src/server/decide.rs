//! The decision on a request.

use std::iter;
use std::ops::ControlFlow;
use std::sync::Arc;

use http::request::Parts;
use smallvec::SmallVec;
use tidegate_core::{
    Call, Charge, Decision, Error, Operation, Outcome, OwnedCall, Policy, PolicyVerdict, Store,
};

use super::limit::{LimitCharge, NoSubject};
use super::shared::Shared;
use crate::subject::PartitionKey;

/// How many limits a request mostly has at most.
const FEW: usize = 3;

/// What was decided on a request.
#[derive(Debug)]
pub(super) enum Admission {
    /// No limit applies.
    Unlimited,
    /// The policies admit it or refuse it.
    Decided(Decided),
    /// The limit at this place applies to it, and it has no subject.
    NoSubject { limit: usize, refused: NoSubject },
    /// The store has not decided.
    Failed(Error),
}

/// A decision with what it is on.
#[derive(Debug)]
pub(super) struct Decided {
    policies: SmallVec<[Policy; FEW]>,
    partition_keys: PartitionKeys,
    pub(super) decision: Decision,
    /// The refund to send if the request fails. `None` without a rule for refunds.
    pub(super) refund: Option<Box<OwnedCall>>,
}

/// What clients are told of the partitions, by the places of the charges. Empty if they are told of none.
type PartitionKeys = Vec<Option<PartitionKey>>;

/// The charges of a request that the store has not decided on yet.
#[derive(Debug)]
pub(super) struct Undecided {
    call: Box<OwnedCall>,
    /// Whether a rule may refund each charge.
    is_refunded: SmallVec<[bool; FEW]>,
    partition_keys: PartitionKeys,
}

impl Decided {
    /// Of a decision whose charges no rule for refunds gives back.
    pub(super) fn without_refund(limits: &[LimitCharge<'_>], decision: Decision) -> Self {
        let policies = limits.iter().map(|limit| limit.policy.clone()).collect();
        Self { policies, partition_keys: partition_keys(limits), decision, refund: None }
    }

    pub(super) fn verdicts(&self) -> impl Iterator<Item = PolicyVerdict<'_>> {
        self.decision.verdicts_of(&self.policies)
    }

    /// The verdicts, each with what the client is told of its partition.
    pub(super) fn partitioned(&self) -> impl Iterator<Item = (PolicyVerdict<'_>, Option<&[u8]>)> {
        let keys = self.partition_keys.iter().map(|key| key.as_ref().map(|key| &key[..]));
        self.verdicts().zip(keys.chain(iter::repeat(None)))
    }
}

/// What the limits that apply to a request charge; or, if nothing is to be decided, its admission.
pub(super) fn limits_of<'r, S: Store, R>(
    shared: &'r Shared<S, R>,
    request: &'r Parts,
) -> ControlFlow<Admission, SmallVec<[LimitCharge<'r>; FEW]>> {
    let mut limits: SmallVec<[LimitCharge<'_>; FEW]> = SmallVec::new();
    for (limit, (own_policy, it)) in shared.settings.limits.iter().enumerate() {
        match it.charge(limit, own_policy, request) {
            Ok(None) => {}
            Ok(Some(charge)) => {
                // The limiter's own policies were checked when it was built.
                if !charge.is_own_policy
                    && let Err(error) = shared.limiter.store().supports(charge.policy)
                {
                    return ControlFlow::Break(Admission::Failed(error));
                }
                limits.push(charge);
            }
            Err(refused) => return ControlFlow::Break(Admission::NoSubject { limit, refused }),
        }
    }
    match limits.is_empty() {
        true => ControlFlow::Break(Admission::Unlimited),
        false => ControlFlow::Continue(limits),
    }
}

fn partition_keys(limits: &[LimitCharge<'_>]) -> PartitionKeys {
    match limits.iter().any(|limit| limit.partition_key.is_some()) {
        true => limits.iter().map(|limit| limit.partition_key).collect(),
        false => vec![],
    }
}

/// Decides on a request without waiting, and without an allocation unless clients are told their partitions.
///
/// # Errors
///
/// What to [`decide`] on, if the store may have to be waited for.
pub(super) fn decide_now<S: Store, R>(
    shared: &Shared<S, R>,
    request: &Parts,
) -> Result<Admission, Undecided> {
    let store = shared.limiter.store();
    let limits = match limits_of(shared, request) {
        ControlFlow::Continue(limits) => limits,
        ControlFlow::Break(admission) => return Ok(admission),
    };
    let charges: SmallVec<[Charge<'_>; FEW]> = limits.iter().map(LimitCharge::as_charge).collect();
    let is_refunded: SmallVec<[bool; FEW]> = limits.iter().map(|limit| limit.is_refunded).collect();
    let partition_keys = partition_keys(&limits);
    let call = Call::acquire(&charges);
    if store.answers_immediately() {
        // A store that breaks this promise is called again.
        if let Ok(answer) = store.decide(call).into_ready() {
            return Ok(Admission::new(shared, call, &is_refunded, partition_keys, answer));
        }
    }
    Err(Undecided { call: Box::new(call.into()), is_refunded, partition_keys })
}

/// Decides on the charges of a request. Owns all that it needs, as it outlives the call.
pub(super) async fn decide<S: Store, R>(
    shared: Arc<Shared<S, R>>,
    undecided: Undecided,
) -> Admission {
    let Undecided { call, is_refunded, partition_keys } = undecided;
    let answer = shared.limiter.store().decide(call.as_call()).await;
    Admission::new(&shared, call.as_call(), &is_refunded, partition_keys, answer)
}

impl Admission {
    fn new<S, R>(
        shared: &Shared<S, R>,
        call: Call<'_>,
        is_refunded: &[bool],
        partition_keys: PartitionKeys,
        answer: Result<Decision, Error>,
    ) -> Self {
        let decision = match answer {
            Ok(decision) => decision,
            Err(error) => return Self::Failed(error),
        };
        // What a failure policy admits is not charged, or not in one place.
        let is_charged = decision.is_allowed() && decision.degraded().is_none();
        let refund = if is_charged && shared.settings.refund.is_some() {
            let charged = call.charges.iter().zip(is_refunded).zip(decision.verdicts());
            // A shadow that denied was not charged.
            let refundable = charged.filter(|((_, is_refunded), verdict)| {
                **is_refunded && verdict.outcome() == Outcome::Allowed
            });
            let charges: SmallVec<[Charge<'_>; FEW]> =
                refundable.map(|((charge, _), _)| charge).collect();
            (!charges.is_empty()).then(|| Box::new(Call::new(Operation::Refund, &charges).into()))
        } else {
            None
        };
        let policies = call.charges.iter().map(|charge| charge.policy.clone()).collect();
        Self::Decided(Decided { policies, partition_keys, decision, refund })
    }
}

impl LimitCharge<'_> {
    fn as_charge(&self) -> Charge<'_> {
        Charge::new(self.policy, self.subject.as_bytes()).tenant(self.tenant()).cost(self.cost)
    }

    /// Empty for none.
    pub(super) fn tenant(&self) -> &[u8] {
        self.tenant.as_ref().map_or(&b""[..], |tenant| tenant.as_bytes())
    }
}

/// Sends a refund. If it fails, the costs stay charged; `observed()` counts the failure.
pub(super) async fn refund<S: Store, R>(shared: Arc<Shared<S, R>>, refund: OwnedCall) {
    let _ = shared.limiter.store().decide(refund.as_call()).await;
}
