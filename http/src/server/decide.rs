//! The decision on a request.

use std::future::Future;
use std::sync::Arc;

use http::StatusCode;
use http::request::Parts;
use smallvec::SmallVec;
use tidegate_core::{
    Call, Charge, Decision, Error, Operation, Outcome, Policy, PolicyVerdict, Store, Verdict,
};

use super::layer::Shared;
use super::limit::LimitCharge;

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
    NoSubject { limit: usize, status: StatusCode },
    /// The store has not decided.
    Failed(Error),
}

/// A decision with what it is on.
#[derive(Debug)]
pub(super) struct Decided {
    policies: SmallVec<[Policy; FEW]>,
    pub(super) decision: Decision,
    /// What to give back if the request fails. Empty without a rule for refunds.
    pub(super) refundable: Vec<OwnedCharge>,
}

/// A charge that outlives its request.
#[derive(Debug)]
pub(super) struct OwnedCharge {
    policy: Policy,
    tenant: Bytes,
    subject: Bytes,
    cost: u64,
}

/// Most subjects need no allocation.
type Bytes = SmallVec<[u8; 40]>;

impl Decided {
    pub(super) fn verdicts(&self) -> impl Iterator<Item = PolicyVerdict<'_>> {
        self.decision.verdicts_of(&self.policies)
    }
}

/// Decides on a request, and gives its head back. Owns all that it needs, as it outlives the call.
// The future is allocated for each request. That of an `async fn` would have room for the head twice.
#[allow(clippy::manual_async_fn, reason = "its future is larger")]
pub(super) fn decide<S: Store, R: Send + Sync>(
    shared: Arc<Shared<S, R>>,
    request: Parts,
) -> impl Future<Output = (Parts, Admission)> + Send {
    async move {
        let admission = decide_on(&shared, &request).await.unwrap_or_else(Admission::Failed);
        (request, admission)
    }
}

async fn decide_on<S: Store, R>(
    shared: &Shared<S, R>,
    request: &Parts,
) -> Result<Admission, Error> {
    let store = shared.limiter.store();
    let mut limits: SmallVec<[LimitCharge<'_>; FEW]> = SmallVec::new();
    for (limit, (own_policy, it)) in shared.settings.limits.iter().enumerate() {
        match it.charge(own_policy, request) {
            Ok(None) => {}
            Ok(Some(charge)) => {
                // The limiter's own policies were checked when it was built.
                if !charge.is_own_policy {
                    store.supports(charge.policy)?;
                }
                limits.push(charge);
            }
            Err(status) => return Ok(Admission::NoSubject { limit, status }),
        }
    }
    if limits.is_empty() {
        return Ok(Admission::Unlimited);
    }
    let charges: SmallVec<[Charge<'_>; FEW]> = limits.iter().map(LimitCharge::as_charge).collect();
    let decision = store.decide(Call::new(Operation::Acquire, &charges)).await?;
    // What a failure policy admits is not charged, or not in one place.
    let is_charged = decision.is_allowed() && decision.degraded().is_none();
    let refundable = if is_charged && shared.settings.refund.is_some() {
        let pairs = limits.iter().zip(decision.verdicts());
        let charged = pairs.filter(|(limit, verdict)| limit.is_refundable(verdict));
        charged.map(|(limit, _)| limit.to_owned()).collect()
    } else {
        vec![]
    };
    let policies = limits.iter().map(|limit| limit.policy.clone()).collect();
    Ok(Admission::Decided(Decided { policies, decision, refundable }))
}

impl LimitCharge<'_> {
    fn as_charge(&self) -> Charge<'_> {
        let tenant = self.tenant.as_ref().map_or(&b""[..], |tenant| tenant.as_bytes());
        Charge::new(self.policy, self.subject.as_bytes()).tenant(tenant).cost(self.cost)
    }

    /// Whether there is something to give back. A shadow that denied was not charged.
    fn is_refundable(&self, verdict: &Verdict) -> bool {
        self.is_refunded && verdict.outcome() == Outcome::Allowed
    }

    fn to_owned(&self) -> OwnedCharge {
        let Charge { tenant, subject, cost, .. } = self.as_charge();
        let (tenant, subject) = (Bytes::from_slice(tenant), Bytes::from_slice(subject));
        OwnedCharge { policy: self.policy.clone(), tenant, subject, cost }
    }
}

/// Gives charges back. A refund that fails leaves them taken; `observed()` counts it.
pub(super) async fn refund<S: Store, R>(shared: Arc<Shared<S, R>>, charges: Vec<OwnedCharge>) {
    let charges: SmallVec<[Charge<'_>; FEW]> = charges.iter().map(OwnedCharge::as_charge).collect();
    let _ = shared.limiter.store().decide(Call::new(Operation::Refund, &charges)).await;
}

impl OwnedCharge {
    fn as_charge(&self) -> Charge<'_> {
        Charge::new(&self.policy, &self.subject).tenant(&self.tenant).cost(self.cost)
    }
}
