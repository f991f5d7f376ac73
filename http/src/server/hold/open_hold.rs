//! The hold of a request, from the decision until it is settled.

use std::future::Future;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::Arc;

use http::request::Parts;
use http::response;
use smallvec::SmallVec;
use tidegate_core::{
    Error, ErrorKind, HoldGuard, Limiter, MAX_EXACT, MultiRequest, OnDrop, Policy, PolicyRef,
    Store, Subject,
};
use tokio::runtime::Handle;
use tokio::time::Instant;

use super::super::decide::{Admission, Decided, limits_of};
use super::super::limit::LimitCharge;
use super::super::shared::Shared;
use super::settings::{HoldSettings, Rule};
use super::usage::Usage;

/// A call to the store that is under way. It ends also if it fails: `observed()` counts that, and no caller is left.
pub(super) type Settling = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The hold of a request that is served. Dropped, it is settled at what is known, as of a request that was cut.
///
/// A trait, so that the type of a body does not depend on the store's.
pub(super) trait OpenHold: Send {
    /// Notes the head of the response, if there is one, and whether a rule gives back what can be given back.
    fn respond(&mut self, response: Option<&response::Parts>, is_refunded: bool);

    /// Whether the costs do not depend on the body.
    fn is_known(&self) -> bool;

    /// Counts bytes of the body.
    fn count(&mut self, bytes: u64);

    /// Notes that the response has ended as it should.
    fn end(&mut self);

    /// Reports what was used so far, if there is something to report now.
    fn report(&mut self) -> Option<Settling>;

    /// Settles it. Dropped before its end, the call is made again by a task.
    fn settle(self: Box<Self>) -> Settling;

    /// Gives everything back.
    fn give_back(self: Box<Self>) -> Settling;
}

struct HeldRequest<S: Store + 'static> {
    limiter: Limiter<S>,
    settings: Arc<HoldSettings>,
    /// `None` once it is settled.
    guard: Option<HoldGuard<S>>,
    charges: SmallVec<[HeldCharge; 4]>,
    usage: Usage,
    body_bytes: u64,
    is_ended: bool,
    reported_at: Instant,
    extended_at: Instant,
}

struct HeldCharge {
    policy: Policy,
    limit: usize,
    held: u64,
    is_refundable: bool,
    is_given_back: bool,
    by_response: Option<u64>,
    /// What the store knows of.
    reported: u64,
}

/// Decides on a request, and takes its costs as estimates.
pub(super) async fn hold<S: Store + 'static, R>(
    shared: &Shared<S, R>,
    settings: &Arc<HoldSettings>,
    request: &mut Parts,
) -> (Admission, Option<Box<dyn OpenHold>>) {
    let (decided, held) = match limits_of(shared, request) {
        ControlFlow::Break(admission) => return (admission, None),
        ControlFlow::Continue(limits) => {
            match hold_for(&shared.limiter, settings, &limits, request).await {
                Ok(answer) => answer,
                Err(error) => return (Admission::Failed(error), None),
            }
        }
    };
    if let Some(held) = &held {
        request.extensions.insert(held.usage.clone());
    }
    let held = held.map(|held| Box::new(held) as Box<dyn OpenHold>);
    (Admission::Decided(decided), held)
}

async fn hold_for<S: Store + 'static>(
    limiter: &Limiter<S>,
    settings: &Arc<HoldSettings>,
    limits: &[LimitCharge<'_>],
    request: &Parts,
) -> Result<(Decided, Option<HeldRequest<S>>), Error> {
    if Handle::try_current().is_err() {
        let message = "a layer that holds needs a Tokio runtime, to settle when a request is cut";
        return Err(Error::new(ErrorKind::Unsupported, message));
    }
    // A caller that is cancelled leaves the call to a task, which settles the hold later.
    let _counted = limiter.counted_guard();
    let id = settings.id(request)?;
    let mut call: Option<MultiRequest<'_, S>> = None;
    for limit in limits {
        let policy = match limit.is_own_policy {
            true => PolicyRef::Name(limit.policy.name()),
            false => PolicyRef::Policy(limit.policy),
        };
        let subject = Subject::from(&limit.subject);
        let call_so_far = match call {
            None => limiter.by(policy, subject),
            Some(call) => call.by(policy, subject),
        };
        // An estimate that a client chose may be any number. One above what a state can hold is refused as it is.
        call = Some(call_so_far.cost(limit.cost.min(MAX_EXACT)).tenant(limit.tenant()));
    }
    let Some(call) = call else {
        let message = "a hold needs a limit that applies to the request";
        return Err(Error::new(ErrorKind::InvalidCall, message));
    };
    let hold = call.hold(&id, settings.ttl).await?;
    let decided = Decided::without_refund(limits, hold.decision().clone());
    let Ok(ticket) = hold.into_ticket() else { return Ok((decided, None)) };
    let charge = |(limit, (_, held)): (&LimitCharge<'_>, (&str, u64))| HeldCharge {
        policy: limit.policy.clone(),
        limit: limit.limit,
        held,
        is_refundable: limit.is_refunded,
        is_given_back: false,
        by_response: None,
        reported: held,
    };
    let charges = limits.iter().zip(ticket.held()).map(charge).collect();
    let now = Instant::now();
    let held = HeldRequest {
        limiter: limiter.clone(),
        settings: Arc::clone(settings),
        guard: Some(HoldGuard::new(limiter, ticket, OnDrop::Settle)?),
        charges,
        usage: Usage::new(&settings.measures),
        body_bytes: 0,
        is_ended: false,
        reported_at: now,
        extended_at: now,
    };
    Ok((decided, Some(held)))
}

impl<S: Store + 'static> HeldRequest<S> {
    /// What a charge costs, by what is known now; `None` for what it holds.
    fn cost(&self, charge: &HeldCharge) -> Option<u64> {
        if charge.is_given_back {
            return Some(0);
        }
        let rule = self.settings.rule(charge.limit)?;
        let if_cut = (!self.is_ended).then_some(self.settings.if_cut);
        if if_cut == Some(OnDrop::Keep) {
            return None;
        }
        let known = match rule {
            Rule::Usage(measure) => self.usage.total_at(*measure),
            Rule::BodyBytes => Some(self.body_bytes),
            Rule::Response(_) => charge.by_response,
        };
        known.or((if_cut == Some(OnDrop::Cancel)).then_some(0))
    }

    /// The guard, and all costs that are known. The guard has them too, so that its drop settles at the same ones.
    fn take_guard(&mut self) -> Option<(HoldGuard<S>, Costs)> {
        let mut guard = self.guard.take()?;
        let mut costs = Costs::new();
        for charge in &self.charges {
            // The guard adds up what is of one name. A policy of a request may have the name of another limit's.
            let is_first = !costs.iter().any(|(policy, _)| policy.name() == charge.policy.name());
            if is_first && let Some(cost) = self.cost(charge) {
                let cost = cost.min(MAX_EXACT);
                guard.spent(charge.policy.name(), cost);
                costs.push((charge.policy.clone(), cost));
            }
        }
        Some((guard, costs))
    }
}

/// Policies with what a request has used of them.
type Costs = SmallVec<[(Policy, u64); 4]>;

fn by_name(costs: &Costs) -> impl Iterator<Item = (&str, u64)> {
    costs.iter().map(|(policy, cost)| (policy.name(), *cost))
}

impl<S: Store + 'static> OpenHold for HeldRequest<S> {
    fn respond(&mut self, response: Option<&response::Parts>, is_refunded: bool) {
        for charge in &mut self.charges {
            charge.is_given_back |= is_refunded && charge.is_refundable;
            if let (Some(response), Some(Rule::Response(cost))) =
                (response, self.settings.rule(charge.limit))
            {
                charge.by_response = Some(cost(response).unwrap_or(charge.held));
            }
        }
    }

    fn is_known(&self) -> bool {
        self.charges.iter().all(|charge| {
            let is_open = || match self.settings.rule(charge.limit) {
                None => false,
                Some(Rule::Response(_)) => charge.by_response.is_none(),
                Some(Rule::Usage(_) | Rule::BodyBytes) => true,
            };
            charge.is_given_back || !is_open()
        })
    }

    fn count(&mut self, bytes: u64) {
        self.body_bytes = self.body_bytes.saturating_add(bytes);
    }

    fn end(&mut self) {
        self.is_ended = true;
    }

    fn report(&mut self) -> Option<Settling> {
        let now = Instant::now();
        if now.duration_since(self.reported_at) < self.settings.interval {
            return None;
        }
        self.reported_at = now;
        let ttl = self.settings.ttl;
        let extends = now.duration_since(self.extended_at) >= ttl / 2;
        let costs: SmallVec<[Option<u64>; 4]> =
            self.charges.iter().map(|charge| self.cost(charge)).collect();
        let mut reported = Costs::new();
        for (charge, cost) in self.charges.iter_mut().zip(costs) {
            if let Some(cost) = cost.filter(|&cost| cost > charge.reported) {
                charge.reported = cost;
                reported.push((charge.policy.clone(), cost.min(MAX_EXACT)));
            }
        }
        if reported.is_empty() && !extends {
            return None;
        }
        let ticket = self.guard.as_ref()?.ticket()?.clone();
        if extends {
            self.extended_at = now;
        }
        let limiter = self.limiter.clone();
        Some(Box::pin(async move {
            if extends {
                let _ = limiter.extend(&ticket, ttl).await;
            }
            if !reported.is_empty() {
                let _ = limiter.settle_so_far(&ticket, by_name(&reported)).await;
            }
        }))
    }

    fn settle(mut self: Box<Self>) -> Settling {
        let open = self.take_guard();
        Box::pin(async move {
            if let Some((guard, costs)) = open {
                let _ = guard.settle(by_name(&costs)).await;
            }
        })
    }

    fn give_back(mut self: Box<Self>) -> Settling {
        for charge in &mut self.charges {
            charge.is_given_back = true;
        }
        self.settle()
    }
}

impl<S: Store + 'static> Drop for HeldRequest<S> {
    fn drop(&mut self) {
        // Dropped, the guard settles.
        drop(self.take_guard());
    }
}
