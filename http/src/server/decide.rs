//! Decides on a request.

use std::iter;
use std::ops::ControlFlow;
use std::sync::Arc;

use http::request::Parts;
use smallvec::SmallVec;
use tidegate_core::{
    Call, Charge, Decision, Error, Operation, Outcome, OwnedCall, Policy, PolicyVerdict, Store,
};

use super::future::DecidedRequest;
use super::limit::{LimitCharge, NoSubject};
use super::shared::Shared;
use crate::subject::PartitionKey;

/// The number of limits up to which a request needs no allocation for them.
const FEW: usize = 3;

/// The result of a decision on a request.
#[derive(Debug)]
pub(super) enum Admission {
    /// The request passes, and its response does not depend on the decision. Either no limit
    /// applies, or the layer neither writes fields nor refunds.
    Passes,
    /// The policies admit or refuse the request.
    Decided(Decided),
    /// The request has no subject for the limit of this policy.
    NoSubject { policy: Policy, refused: NoSubject },
    /// The store returned an error.
    Failed(Error),
}

/// A decision, with the policies that it is on.
#[derive(Debug)]
pub(super) struct Decided {
    policies: SmallVec<[Policy; FEW]>,
    partition_keys: PartitionKeys,
    pub(super) decision: Decision,
    /// The refund to send if the request fails. `None` without a rule for refunds.
    pub(super) refund: Option<Box<OwnedCall>>,
}

/// The partition key of each charge, if the response discloses it. Empty if the response discloses
/// none.
type PartitionKeys = Vec<Option<PartitionKey>>;

/// The charges of a request on which the store has not decided yet.
#[derive(Debug)]
pub(super) struct Undecided {
    call: Box<OwnedCall>,
    /// Whether a rule may refund each charge.
    is_refunded: SmallVec<[bool; FEW]>,
    partition_keys: PartitionKeys,
}

impl Decided {
    /// Creates a decision whose charges are never refunded by a rule.
    pub(super) fn without_refund(limits: &[LimitCharge<'_>], decision: Decision) -> Self {
        let policies = limits.iter().map(|limit| limit.policy.clone()).collect();
        Self { policies, partition_keys: partition_keys(limits), decision, refund: None }
    }

    pub(super) fn verdicts(&self) -> impl Iterator<Item = PolicyVerdict<'_>> {
        self.decision.verdicts_of(&self.policies)
    }

    /// Returns each verdict with its partition key, if the response discloses the key.
    pub(super) fn partitioned(&self) -> impl Iterator<Item = (PolicyVerdict<'_>, Option<&[u8]>)> {
        let keys = self.partition_keys.iter().map(|key| key.as_ref().map(|key| &key[..]));
        self.verdicts().zip(keys.chain(iter::repeat(None)))
    }
}

/// The charges of the limits that apply to a request.
pub(super) type LimitCharges<'r> = SmallVec<[LimitCharge<'r>; FEW]>;

/// Adds the charges of the limits that apply to a request to `limits`. Returns an [`Admission`]
/// instead if no limit applies, if a required subject is missing, or if the store does not support
/// a policy.
// The charges are large, so that a caller that received them as a result would move them.
pub(super) fn applying_limits<'r, S: Store, R>(
    shared: &'r Shared<S, R>,
    request: &'r Parts,
    limits: &mut LimitCharges<'r>,
) -> ControlFlow<Admission> {
    for (index, (own_policy, limit)) in shared.settings.limits.iter().enumerate() {
        match limit.charge(index, own_policy, request) {
            Ok(None) => {}
            Ok(Some(charge)) => {
                // The limiter checked its own policies when it was created.
                if !charge.policy.is_same_object(own_policy)
                    && let Err(error) = shared.limiter.store().supports(charge.policy)
                {
                    return ControlFlow::Break(Admission::Failed(error));
                }
                limits.push(charge);
            }
            Err(refused) => {
                let policy = own_policy.clone();
                return ControlFlow::Break(Admission::NoSubject { policy, refused });
            }
        }
    }
    match limits.is_empty() {
        true => ControlFlow::Break(Admission::Passes),
        false => ControlFlow::Continue(()),
    }
}

fn partition_keys(limits: &[LimitCharge<'_>]) -> PartitionKeys {
    match limits.iter().any(|limit| limit.partition_key.is_some()) {
        true => limits.iter().map(|limit| limit.partition_key).collect(),
        false => vec![],
    }
}

/// Decides on a request without waiting. The decision needs no allocation, unless the response
/// discloses partition keys.
///
/// # Errors
///
/// Returns the charges for [`decide`], if the store does not answer immediately.
pub(super) fn decide_now<S: Store, R>(
    shared: &Shared<S, R>,
    request: &Parts,
) -> Result<Admission, Undecided> {
    let store = shared.limiter.store();
    let mut limits = LimitCharges::new();
    if let ControlFlow::Break(admission) = applying_limits(shared, request, &mut limits) {
        return Ok(admission);
    }
    let charges: SmallVec<[Charge<'_>; FEW]> = limits.iter().map(LimitCharge::as_charge).collect();
    let is_refunded: SmallVec<[bool; FEW]> = limits.iter().map(|limit| limit.is_refunded).collect();
    let partition_keys = partition_keys(&limits);
    let call = Call::acquire(&charges);
    if store.answers_immediately() {
        // If the store breaks its promise and the answer is not ready, `decide` calls it again.
        if let Ok(answer) = store.decide(call).into_ready() {
            return Ok(Admission::new(shared, call, &is_refunded, partition_keys, answer));
        }
    }
    Err(Undecided { call: Box::new(call.into()), is_refunded, partition_keys })
}

/// Decides on the charges of a request.
pub(super) async fn decide<S: Store, R>(
    shared: Arc<Shared<S, R>>,
    request: Parts,
    undecided: Undecided,
) -> DecidedRequest {
    let Undecided { call, is_refunded, partition_keys } = undecided;
    let answer = shared.limiter.store().decide(call.as_call()).await;
    let admission = Admission::new(&shared, call.as_call(), &is_refunded, partition_keys, answer);
    DecidedRequest { request, admission, hold: None }
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
        if decision.is_allowed()
            && shared.settings.fields.is_none()
            && shared.settings.refund.is_none()
        {
            return Self::Passes;
        }
        // If a failure policy admitted the request, its costs were not charged to the store.
        let is_charged = decision.is_allowed() && decision.degraded().is_none();
        let refund = if is_charged && shared.settings.refund.is_some() {
            let charged = call.charges.iter().zip(is_refunded).zip(decision.verdicts());
            // A shadow policy that denied was not charged.
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

    /// Returns the tenant, which is empty if there is none.
    pub(super) fn tenant(&self) -> &[u8] {
        self.tenant.as_ref().map_or(&b""[..], |tenant| tenant.as_bytes())
    }
}

/// Sends a refund. If the refund fails, the costs stay charged. The layer `observed` counts the
/// failure.
pub(super) async fn refund<S: Store, R>(shared: Arc<Shared<S, R>>, refund: OwnedCall) {
    let _ = shared.limiter.store().decide(refund.as_call()).await;
}
