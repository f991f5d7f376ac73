//! The hold of a request, from the decision to the settlement.

use std::error::Error as _;
use std::future::Future;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::header::CONTENT_LENGTH;
use http::request::Parts;
use http::{Method, StatusCode, response};
use sha2::{Digest as _, Sha256};
use smallvec::SmallVec;
use tidegate_core::no_semver::settle_in_drop;
use tidegate_core::{
    AlreadySettled, Error, ErrorKind, HoldGuard, Limiter, MAX_EXACT, MultiRequest, OnDrop, Policy,
    Store, Subject,
};
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout};

use super::super::decide::{Admission, Decided, LimitCharges, applying_limits};
use super::super::future::DecidedRequest;
use super::super::limit::LimitCharge;
use super::super::shared::Shared;
use super::settings::{HoldSettings, Rule};
use super::usage::{Totals, Usage};

/// The minimum time between two reports of an upgraded connection.
const MIN_INTERVAL_OF_UPGRADED: Duration = Duration::from_secs(1);

/// A call to the store after a response. It returns nothing, because no caller is left to handle an
/// error. The store layer `observed` counts errors.
pub(in super::super) type StoreCall = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The hold of a request that the inner service is executing. If this value is dropped because the
/// request is cancelled, the hold is settled at the costs that the service has reported so far.
///
/// This is a trait, so that the type of a body does not depend on the type of the store.
pub(in super::super) trait OpenHold: Send {
    /// Records the head of the response, or `None` if the service failed. If `is_refunded` is
    /// `true`, all refundable charges will be settled at a cost of 0.
    fn respond(&mut self, response: Option<&response::Parts>, is_refunded: bool);

    /// Returns `true` if the costs do not depend on the body, and no slots are held until its end.
    fn is_known(&self) -> bool;

    /// Counts bytes of the body.
    fn count(&mut self, bytes: u64);

    /// Records that the response has ended without an error.
    fn end(&mut self);

    /// Returns a call that reports the costs so far, if a report is due.
    fn report(&mut self) -> Option<StoreCall>;

    /// Returns the call that settles the hold. If this call is dropped before its end, a task
    /// settles the hold.
    fn settle(self: Box<Self>) -> StoreCall;

    /// Returns a call that settles the hold at a cost of 0. If the application chose the id of the
    /// hold, the call does nothing, because another request with this id possibly uses the hold.
    fn cancel(self: Box<Self>) -> StoreCall;
}

struct HeldRequest<S: Store + 'static> {
    limiter: Limiter<S>,
    settings: Arc<HoldSettings>,
    /// The guard of the hold. `None` after the settlement was started.
    guard: Option<HoldGuard<S>>,
    charges: SmallVec<[HeldCharge; 4]>,
    usage: Arc<Totals>,
    /// The runtime that settles the hold if this value is dropped.
    runtime: Handle,
    body_bytes: u64,
    /// The length of the body that the response announces.
    content_length: Option<u64>,
    has_chosen_id: bool,
    is_connect: bool,
    is_head: bool,
    is_upgraded: bool,
    is_ended: bool,
    /// Whether the last report has failed.
    report_failed: Arc<AtomicBool>,
    reported_at: Instant,
    extended_at: Instant,
}

struct HeldCharge {
    policy: Policy,
    limit: usize,
    held: u64,
    is_refundable: bool,
    is_cancelled: bool,
    by_response: Option<u64>,
    /// The cost that was last reported to the store.
    reported: u64,
    /// The cost of the last report that did not fail.
    confirmed: u64,
}

/// Decides on a request, and holds its costs as estimates.
pub(super) async fn hold<S: Store + 'static, R>(
    shared: Arc<Shared<S, R>>,
    settings: Arc<HoldSettings>,
    mut request: Parts,
) -> DecidedRequest {
    let answer = {
        let mut limits = LimitCharges::new();
        match applying_limits(&shared, &request, &mut limits) {
            ControlFlow::Break(admission) => Err(admission),
            ControlFlow::Continue(()) => {
                let answer = hold_limits(&shared.limiter, &settings, &limits, &request).await;
                answer.map_err(Admission::Failed)
            }
        }
    };
    let (admission, held) = match answer {
        Ok((decided, held)) => (Admission::Decided(decided), held),
        Err(admission) => (admission, None),
    };
    let hold = held.map(|(held, usage)| {
        let outer = request.extensions.remove::<Usage>();
        request.extensions.insert(usage.inside(outer));
        Box::new(held) as Box<dyn OpenHold>
    });
    DecidedRequest { request, admission, hold }
}

async fn hold_limits<S: Store + 'static>(
    limiter: &Limiter<S>,
    settings: &Arc<HoldSettings>,
    limits: &[LimitCharge<'_>],
    request: &Parts,
) -> Result<(Decided, Option<(HeldRequest<S>, Usage)>), Error> {
    let Ok(runtime) = Handle::try_current() else {
        let message = "a layer that holds needs a Tokio runtime, to settle when a request is cut";
        return Err(Error::new(ErrorKind::Unsupported, message));
    };
    // `guards_settled` waits for this request even before its guard exists. If the caller is
    // cancelled, a task awaits the call and settles the hold.
    let _counted = limiter.counted_guard();
    let (id, has_chosen_id) = settings.id(request)?;
    let mut call: Option<MultiRequest<'_, S>> = None;
    let mut last_list = 0;
    for limit in limits {
        let subject = Subject::from(&limit.subject);
        let call_so_far = match call {
            None => limiter.by(limit.policy, subject),
            Some(call) if limit.list > 0 && limit.list == last_list => {
                call.or(limit.policy, subject)
            }
            Some(call) => call.by(limit.policy, subject),
        };
        last_list = limit.list;
        // A request can cause an estimate of any size. An estimate above `MAX_EXACT` is reduced to
        // `MAX_EXACT`, which every policy refuses too.
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
        is_cancelled: false,
        by_response: None,
        reported: held,
        confirmed: held,
    };
    let charges = limits.iter().zip(ticket.held()).map(charge).collect();
    let now = Instant::now();
    let (usage, totals) = Usage::new(&settings.measures);
    let held = HeldRequest {
        limiter: limiter.clone(),
        settings: Arc::clone(settings),
        guard: Some(HoldGuard::new(limiter, ticket, OnDrop::Settle)?),
        charges,
        usage: totals,
        runtime,
        body_bytes: 0,
        content_length: None,
        has_chosen_id,
        is_connect: request.method == Method::CONNECT,
        is_head: request.method == Method::HEAD,
        is_upgraded: false,
        is_ended: false,
        report_failed: Arc::default(),
        reported_at: now,
        extended_at: now,
    };
    Ok((decided, Some((held, usage))))
}

impl<S: Store + 'static> HeldRequest<S> {
    /// Returns the cost of a charge, as far as it is known now. Returns `None` if the charge keeps
    /// its estimate.
    fn cost(&self, charge: &HeldCharge) -> Option<u64> {
        if charge.is_cancelled {
            return Some(0);
        }
        let rule = self.settings.rule(charge.limit)?;
        let if_cut = (!self.is_ended).then_some(self.settings.if_cut);
        if if_cut == Some(OnDrop::Keep) {
            return None;
        }
        let known = match rule {
            Rule::Usage(measure) => self.usage.get(*measure),
            Rule::BodyBytes => Some(self.body_bytes),
            Rule::Response(_) => charge.by_response,
        };
        known.or((if_cut == Some(OnDrop::Cancel)).then_some(0))
    }

    /// Takes the last report into account. If it failed, the next report contains its costs again.
    fn learn_report(&mut self) {
        let has_failed = self.report_failed.swap(false, Ordering::Relaxed);
        for charge in &mut self.charges {
            match has_failed {
                true => charge.reported = charge.confirmed,
                false => charge.confirmed = charge.reported,
            }
        }
    }

    /// If the connection was upgraded, moves the hold to a task. The task reports the usage, and
    /// settles the hold when the connection no longer uses it.
    fn hand_over(&mut self) {
        if !std::mem::take(&mut self.is_upgraded) {
            return;
        }
        let Some(guard) = self.guard.take() else { return };
        let mut open = Box::new(Self {
            limiter: self.limiter.clone(),
            settings: Arc::clone(&self.settings),
            guard: Some(guard),
            charges: std::mem::take(&mut self.charges),
            usage: Arc::clone(&self.usage),
            runtime: self.runtime.clone(),
            report_failed: Arc::clone(&self.report_failed),
            is_ended: true,
            ..*self
        });
        self.runtime.spawn(async move {
            let interval = open.settings.interval.max(MIN_INTERVAL_OF_UPGRADED);
            while timeout(interval, open.usage.until_unused()).await.is_err() {
                if let Some(report) = open.report() {
                    report.await;
                }
            }
            open.settle().await;
        });
    }

    /// Returns the call that settles the hold, or `None` if its settlement was started before. If
    /// the call is dropped before its end, the drop of the guard settles the hold.
    fn settlement(&mut self) -> Option<StoreCall> {
        self.learn_report();
        self.hand_over();
        let (guard, costs) = self.take_guard()?;
        let (limiter, charges) = (self.limiter.clone(), std::mem::take(&mut self.charges));
        Some(Box::pin(async move {
            let Some(ticket) = guard.ticket() else { return };
            if let Err(error) = limiter.settle(ticket, by_name(&costs)).await {
                let rest = rest(&charges, &costs, &error);
                if rest.iter().any(|(_, cost)| *cost > 0) {
                    let id = Sha256::digest([b"rest of ", ticket.id()].concat());
                    // No caller is left to handle an error. The store layer `observed` counts
                    // errors.
                    let _ = limiter.charge_after(ticket, &id, by_name(&rest)).await;
                }
            }
            let _ = guard.into_ticket();
        }))
    }

    /// Takes the guard, and returns it with all costs that are known. The costs are also set in the
    /// guard, so that its drop settles the hold at the same costs.
    fn take_guard(&mut self) -> Option<(HoldGuard<S>, Costs)> {
        let mut guard = self.guard.take()?;
        let mut costs = Costs::new();
        for charge in &self.charges {
            // Two limits can have policies of the same name, because a request can contain its own
            // policy. The guard would add up their costs, so only the first cost is set.
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

/// The known costs of a request, each with its policy.
type Costs = SmallVec<[(Policy, u64); 4]>;

fn by_name(costs: &Costs) -> impl Iterator<Item = (&str, u64)> {
    costs.iter().map(|(policy, cost)| (policy.name(), *cost))
}

/// Returns the part of the costs that a settlement with this error could not charge. There are two
/// cases:
///
/// * An earlier request with the same id settled the hold at lower costs.
/// * The store has forgotten the hold, because the client did not read the body for so long.
fn rest(charges: &[HeldCharge], costs: &Costs, error: &Error) -> Costs {
    let source = error.source().and_then(|source| source.downcast_ref::<AlreadySettled>());
    let settled = source.map(AlreadySettled::costs);
    let mut rest = Costs::new();
    if settled.is_none() && error.kind() != ErrorKind::UnknownHold {
        return rest;
    }
    let charged = |index: usize, charge: &HeldCharge| match settled {
        Some(settled) => settled.get(index).copied().unwrap_or(0),
        // The store has refunded the hold when it lapsed, because no cost was reported.
        None if charge.policy.refunds_lapsed() && charge.confirmed == charge.held => 0,
        None => charge.confirmed,
    };
    for (index, charge) in charges.iter().enumerate() {
        let is_same = |(policy, _): &&(Policy, u64)| policy.name() == charge.policy.name();
        if charge.policy.is_concurrent() || rest.iter().any(|known| is_same(&known)) {
            continue;
        }
        let cost = costs.iter().find(is_same).map_or(charge.held, |(_, cost)| *cost);
        rest.push((charge.policy.clone(), cost.saturating_sub(charged(index, charge))));
    }
    rest
}

impl<S: Store + 'static> OpenHold for HeldRequest<S> {
    fn respond(&mut self, response: Option<&response::Parts>, is_refunded: bool) {
        self.is_upgraded = response.is_some_and(|response| {
            response.status == StatusCode::SWITCHING_PROTOCOLS
                || self.is_connect && response.status.is_success()
        });
        let length = response.and_then(|response| response.headers.get(CONTENT_LENGTH));
        self.content_length = length.and_then(|length| length.to_str().ok()?.parse().ok());
        // A server drops the body of a response to HEAD, and an empty body, without reading it.
        self.is_ended |= response.is_some() && (self.is_head || self.content_length == Some(0));
        for charge in &mut self.charges {
            charge.is_cancelled |= is_refunded && charge.is_refundable;
            if let (Some(response), Some(Rule::Response(cost))) =
                (response, self.settings.rule(charge.limit))
            {
                charge.by_response = Some(cost(response).unwrap_or(charge.held));
            }
        }
    }

    fn is_known(&self) -> bool {
        self.charges.iter().all(|charge| {
            // Slots are held until the body has ended, although the settlement gives no cost for
            // them.
            if charge.policy.is_concurrent() && charge.held > 0 {
                return false;
            }
            let is_open = || match self.settings.rule(charge.limit) {
                None => false,
                Some(Rule::Response(_)) => charge.by_response.is_none(),
                Some(Rule::Usage(_) | Rule::BodyBytes) => true,
            };
            charge.is_cancelled || !is_open()
        })
    }

    fn count(&mut self, bytes: u64) {
        self.body_bytes = self.body_bytes.saturating_add(bytes);
        // A server drops a body after its announced length, without reading its end.
        self.is_ended |= self.content_length == Some(self.body_bytes);
    }

    fn end(&mut self) {
        self.is_ended = true;
    }

    fn report(&mut self) -> Option<StoreCall> {
        let now = Instant::now();
        if now.duration_since(self.reported_at) < self.settings.interval {
            return None;
        }
        self.reported_at = now;
        self.learn_report();
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
        let (limiter, report_failed) = (self.limiter.clone(), Arc::clone(&self.report_failed));
        Some(Box::pin(async move {
            if extends {
                let _ = limiter.extend(&ticket, ttl).await;
            }
            if !reported.is_empty() {
                let answer = limiter.settle_so_far(&ticket, by_name(&reported)).await;
                report_failed.store(answer.is_err(), Ordering::Relaxed);
            }
        }))
    }

    fn settle(mut self: Box<Self>) -> StoreCall {
        self.settlement().unwrap_or_else(|| Box::pin(std::future::ready(())))
    }

    fn cancel(mut self: Box<Self>) -> StoreCall {
        if self.has_chosen_id {
            drop(self.guard.take().and_then(HoldGuard::into_ticket));
        }
        for charge in &mut self.charges {
            charge.is_cancelled = true;
        }
        self.settle()
    }
}

impl<S: Store + 'static> Drop for HeldRequest<S> {
    fn drop(&mut self) {
        if let Some(settlement) = self.settlement() {
            settle_in_drop(self.limiter.store(), &self.runtime, settlement);
        }
    }
}
