//! Decides on a request.

use std::iter;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use smallvec::SmallVec;
use tidegate_core::{
    Call, Charge, Decision, Error, Operation, Outcome, OwnedCall, Policy, PolicyVerdict, Store,
};
use tokio::time::Instant;

use super::future::DecidedRequest;
use super::limit::{LimitCharge, NoSubject};
use super::shared::Shared;
use crate::subject::PartitionKey;

/// The number of charges that a request can have without an allocation for them.
const FEW: usize = 3;

/// The result of a decision on a request.
#[derive(Debug)]
pub(super) enum Admission {
    /// The request is admitted, and its response does not depend on the decision: no limit applies,
    /// or the layer has neither fields nor refunds.
    Passes,
    /// The decision of the store admits or refuses the request.
    Decided(Decided),
    /// The request has no subject for the limit of this policy.
    NoSubject { policy: Policy, refused: NoSubject },
    /// The store returned an error.
    Failed(Error),
}

/// A decision, with the policies of its charges.
#[derive(Debug)]
pub(super) struct Decided {
    policies: SmallVec<[Policy; FEW]>,
    partition_keys: PartitionKeys,
    pub(super) decision: Decision,
    /// The refund of the charges, if the layer's rule for refunds applies to the response. `None`
    /// if nothing can be refunded.
    pub(super) refund: Option<Box<Refund>>,
}

/// A refund of charges.
#[derive(Debug)]
pub(super) struct Refund {
    call: OwnedCall,
    decided_at: Instant,
    /// For each charge, the time after the decision at which the state has recovered.
    recovers_after: SmallVec<[Duration; FEW]>,
}

/// The partition key of each charge, or `None` if the response does not disclose the key. The list
/// is empty if the response discloses no key.
type PartitionKeys = Vec<Option<PartitionKey>>;

/// The charges of a request on which the store has not decided yet.
#[derive(Debug)]
pub(super) struct Undecided {
    call: Box<OwnedCall>,
    /// For each charge, whether a rule for refunds may refund it.
    is_refunded: SmallVec<[bool; FEW]>,
    partition_keys: PartitionKeys,
}

impl Decided {
    /// Creates the decision of a hold. It contains no call for a refund, because a hold is settled
    /// instead.
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

/// Adds to `limits` the charges of the limits that apply to a request. Returns an [`Admission`]
/// instead if no limit applies, if a required subject is missing, or if the store does not support
/// a policy.
// The caller passes `limits` by reference. The charges are large, so returning them would be
// slower.
pub(super) fn applying_limits<'r, S: Store, R>(
    shared: &'r Shared<S, R>,
    request: &'r Parts,
    limits: &mut LimitCharges<'r>,
) -> ControlFlow<Admission> {
    for (index, (own_policy, limit)) in shared.settings.limits.iter().enumerate() {
        match limit.charge(index, own_policy, request) {
            Ok(None) => {}
            Ok(Some(charge)) => {
                // When the limiter was created, it checked that the store supports the limiter's
                // own policies.
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
/// If the store does not answer immediately, returns the charges as an error. The caller then
/// passes them to [`decide`].
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
        // If the store promised an immediate answer but has none, the answer is dropped, and
        // [`decide`] calls the store again.
        if let Ok(answer) = store.decide(call).into_ready() {
            return Ok(Admission::new(shared, call, &is_refunded, partition_keys, answer));
        }
    }
    Err(Undecided { call: Box::new(call.into()), is_refunded, partition_keys })
}

/// Sends the charges of a request to the store, and waits for the decision.
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
            // A shadow policy that denied, and an alternative that does not pay, did not make the
            // charge, so there is nothing to refund.
            let refundable = charged.filter(|((_, is_refunded), verdict)| {
                **is_refunded && verdict.outcome() == Outcome::Allowed
            });
            let (charges, recovers_after): (SmallVec<[Charge<'_>; FEW]>, _) = refundable
                .map(|((charge, _), verdict)| (charge.in_list(0), verdict.reset_after()))
                .unzip();
            (!charges.is_empty()).then(|| {
                let call = Call::new(Operation::Refund, &charges).into();
                Box::new(Refund { call, decided_at: Instant::now(), recovers_after })
            })
        } else {
            None
        };
        let policies = call.charges.iter().map(|charge| charge.policy.clone()).collect();
        Self::Decided(Decided { policies, partition_keys, decision, refund })
    }
}

impl LimitCharge<'_> {
    fn as_charge(&self) -> Charge<'_> {
        let charge = Charge::new(self.policy, self.subject.as_bytes());
        charge.tenant(self.tenant()).cost(self.cost).in_list(self.list)
    }

    /// Returns the tenant, which is empty if there is none.
    pub(super) fn tenant(&self) -> &[u8] {
        self.tenant.as_ref().map_or(&b""[..], |tenant| tenant.as_bytes())
    }
}

/// Sends a refund of the charges that still count. A charge that has recovered must not be
/// refunded, because the refund would reduce the usage of later requests. If the refund fails, the
/// costs stay charged. The store layer `observed` counts the failure.
pub(super) async fn refund<S: Store, R>(shared: Arc<Shared<S, R>>, refund: Refund) {
    let elapsed = refund.decided_at.elapsed();
    let call = refund.call.as_call();
    let counting = call.charges.iter().zip(&refund.recovers_after);
    let charges: SmallVec<[Charge<'_>; FEW]> =
        counting.filter(|(_, after)| **after > elapsed).map(|(charge, _)| charge).collect();
    if !charges.is_empty() {
        let _ = shared.limiter.store().decide(Call::new(call.operation, &charges)).await;
    }
}
