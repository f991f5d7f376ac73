//! A call that the fallback store executes after the inner store has answered.

use std::mem::discriminant;
use std::time::Duration;

use smallvec::SmallVec;

use super::outage::Outage;
use super::settings::Settings;
use super::{empty_records, holds};
use crate::{
    Call, CallId, Charge, Charges, Decision, Degraded, DegradedAnswer, Error, ErrorKind, MAX_SPAN,
    Operation, Outcome, Policy, Timestamp, Verdict,
};

#[derive(Debug, Clone)]
pub(super) enum Fallback {
    /// The charge fails open: the layer decides it as if the subject had no usage.
    Open,
    /// The charge is refused.
    Closed,
    /// The fallback store decides the charge, under a policy whose limit is the node's share of the
    /// original limit.
    FallBack(Policy),
    /// Another charge of the same list of alternatives decides.
    Skipped,
}

/// A call that the inner store has answered, and that the fallback store executes instead or too.
#[derive(Debug)]
pub(super) struct FallbackCall<'a> {
    call: Call<'a>,
    /// The answer of the inner store. If it is a decision, both stores execute the call.
    inner: Result<Decision, Error>,
    fallbacks: SmallVec<[Fallback; 2]>,
    retry_hint: Duration,
    now: Timestamp,
    /// Whether the call is refused, regardless of the answer of the fallback store.
    is_refused: bool,
    /// For an `AcquireUpTo`, the maximum amount that all policies that fail open admit.
    max_amount: u64,
}

impl<'a> FallbackCall<'a> {
    /// Creates a call from the answer of the inner store. Returns the final answer instead if the
    /// call is not valid, or if no fallback is allowed to hide the error of the inner store.
    pub(super) fn new(
        call: Call<'a>,
        inner: Result<Decision, Error>,
        settings: &Settings,
        is_any_hold_known: bool,
        fallback: impl Fn(&Policy) -> Result<Fallback, Error>,
    ) -> Result<Self, Result<Decision, Error>> {
        let needs_hold = call.operation.needs_hold();
        if let Err(error) = &inner {
            let is_returned = match needs_hold {
                true if !is_any_hold_known => true,
                true if holds::is_missing(error.kind()) => false,
                _ => settings.is_returned(error.kind()),
            };
            if is_returned {
                return Err(inner);
            }
            // If a layer such as the breaker returned the error, the store has not checked the
            // call. So this layer checks it.
            call.check().map_err(Err)?;
        }
        let fallbacks = call.charges.iter().map(|charge| fallback(charge.policy));
        let fallbacks = match fallbacks.collect::<Result<SmallVec<[Fallback; 2]>, _>>() {
            Ok(fallbacks) => with_alternatives(call.charges, fallbacks),
            // The fallback store cannot have made a hold that it does not support.
            Err(_) if needs_hold || inner.is_ok() => return Err(inner),
            Err(error) => return Err(Err(error)),
        };
        let mut made = Self {
            call,
            inner,
            fallbacks,
            retry_hint: settings.retry_hint,
            now: settings.clock.now(),
            is_refused: false,
            max_amount: u64::MAX,
        };
        if let (Ok(_), Operation::HoldInTurn { place }) = (&made.inner, call.operation) {
            // The caller now has an answer of the inner store, and waits only in its queue.
            made.call.operation = Operation::Leave { place };
        } else if !made.has_slots() {
            if needs_hold {
                return Err(made.inner);
            }
            // Without the store, a hold without slots becomes an acquire: its estimate is charged,
            // and no hold is kept.
            made.call.operation = call.operation.without_hold();
        }
        if made.inner.is_err() && !needs_hold {
            let open = made.decide_open(made.call.operation, None).map_err(Err)?;
            made.is_refused = made.is_closed() || open.is_denied();
            made.max_amount = amount_of(&open).unwrap_or(u64::MAX);
        }
        Ok(made)
    }

    /// Returns `true` if the fallback store keeps slots for the hold of the call.
    fn has_slots(&self) -> bool {
        let needs_hold = self.call.operation.needs_hold();
        let has_slots = |charge: Charge<'_>| {
            charge.takes_slots()
                || needs_hold && charge.policy.is_concurrent() && !charge.is_check_only
        };
        let mut pairs = self.call.charges.iter().zip(&self.fallbacks);
        pairs.any(|(charge, fallback)| {
            matches!(fallback, Fallback::FallBack(_)) && has_slots(charge)
        })
    }

    /// Returns the call for the fallback store. If the layer refuses the call regardless of the
    /// fallback store, the call is a peek, so that the fallback store charges nothing. Only the
    /// calls for a hold have an id.
    pub(super) fn as_call<'c>(&'c self, charges: &'c [Charge<'c>]) -> Call<'c> {
        if self.is_decided() && self.is_refused {
            return Call::new(Operation::Peek, charges);
        }
        let operation = holds::with_own_place(operation_on(charges, self.call.operation));
        let call = Call::new(operation, charges);
        Call { id: self.call.id.filter(|_| operation.is_of_hold()), ..call }
    }

    /// Returns the life of the hold that the fallback store makes for the call.
    pub(super) fn life_of_new_hold(&self) -> Option<Duration> {
        self.life_of_hold(Operation::is_acquire)
    }

    /// Returns the life of the hold that the fallback store extends for the call.
    pub(super) fn life_of_extended_hold(&self) -> Option<Duration> {
        self.life_of_hold(|operation| operation == Operation::Extend)
    }

    fn life_of_hold(&self, is_meant: impl Fn(Operation) -> bool) -> Option<Duration> {
        let charges = self.charges();
        let call = self.as_call(&charges);
        let id = call.id.filter(|_| is_meant(call.operation))?;
        Some(call.life_of_hold(id.ttl))
    }

    /// Returns the charges for the fallback store. Returns no charges for an undo, because only the
    /// inner store has made the charge that the call undoes, none for a place in a queue of the
    /// inner store, and none for a grant, because the fallback store would lose the grant.
    pub(super) fn charges(&self) -> SmallVec<[Charge<'_>; 2]> {
        let operation = holds::with_own_place(self.call.operation);
        if matches!(
            operation,
            Operation::Undo { .. } | Operation::Leave { place: 0 } | Operation::Grant { .. }
        ) {
            return SmallVec::new();
        }
        let pairs = self.call.charges.iter().zip(&self.fallbacks);
        pairs
            .filter_map(|(charge, fallback)| match fallback {
                Fallback::FallBack(policy) => {
                    Some(self.with_amount(Charge { policy, ..charge }, self.max_amount))
                }
                Fallback::Open | Fallback::Closed | Fallback::Skipped => None,
            })
            .collect()
    }

    /// Returns the charge that completes a settlement, if only the fallback store has made and
    /// settled the hold: the inner store must then charge the actual costs. `fallback` is the
    /// answer of the fallback store.
    ///
    /// Returns `None` if the hold has a list of alternatives, because the answer does not say which
    /// charge of the list paid.
    ///
    /// The inner store remembers the charge for at least `time_left`. So while the fallback store
    /// knows the hold, a repeated settlement charges nothing.
    pub(super) fn charge_after(
        &self,
        fallback: &Result<Decision, Error>,
        time_left: impl FnOnce() -> Duration,
    ) -> Option<Call<'a>> {
        let is_missing = self.inner.as_ref().is_err_and(|error| holds::is_missing(error.kind()));
        let is_settlement = self.call.operation == Operation::Settle;
        if !is_missing || !is_settlement || fallback.is_err() || self.call.charges.has_lists() {
            return None;
        }
        let id = self.call.id.filter(|_| self.call.charges.iter().any(|charge| charge.cost > 0))?;
        let ttl = time_left().max(id.ttl).min(MAX_SPAN);
        let id = Some(CallId { ttl, ..id });
        Some(Call { operation: Operation::Charge, id, ..self.call })
    }

    /// Returns the final answer to the call. `fallback` is the answer of the fallback store, or
    /// `None` if the fallback store was not called.
    pub(super) fn answer(
        self,
        fallback: Option<Result<Decision, Error>>,
        outage: &Outage,
    ) -> Result<Decision, Error> {
        let error = match &self.inner {
            Ok(_) => return self.inner,
            Err(error) => error,
        };
        let decision = match fallback {
            Some(Err(second)) => {
                let is_uncharged = second.is_definitely_not_charged();
                let error = self.error_of_both(error, second);
                return Err(if is_uncharged { error } else { error.possibly_charged() });
            }
            // The fallback store has executed the call.
            Some(Ok(_)) if !self.is_decided() => return Err(error.clone().possibly_charged()),
            None if !self.is_decided() => return self.inner,
            Some(Ok(decision)) => self.merge(&decision, error.kind())?,
            None => self.merge(&Decision::new([]), error.kind())?,
        };
        if !error.kind().is_invalid_request() {
            outage.record_failure(error, self.degraded_answer(), self.now);
        }
        Ok(decision)
    }

    /// Returns the error of a call that both stores have failed to execute.
    fn error_of_both(&self, first: &Error, second: Error) -> Error {
        let operation = self.call.operation;
        if operation.needs_hold() {
            // The hold is possibly on the inner store. If it is not, the error of the fallback
            // store says why the hold has ended.
            let is_known = second.kind() != ErrorKind::UnknownHold;
            return if holds::is_missing(first.kind()) && is_known {
                second
            } else {
                first.clone()
            };
        }
        if operation.is_of_hold() && second.kind().is_invalid_request() {
            return second;
        }
        let message = format!("neither the store ({first:#}) nor its fallback has decided");
        Error::new(first.kind(), message).with_source(second)
    }

    /// Returns `true` if the call can be decided without the inner store, such as an acquire, a
    /// peek, or a settlement of a hold of the fallback store. Other calls, such as a refund, must
    /// change states of the inner store.
    fn is_decided(&self) -> bool {
        self.call.operation.can_be_refused() || self.call.operation.needs_hold()
    }

    fn is_closed(&self) -> bool {
        let mut pairs = self.call.charges.iter().zip(&self.fallbacks);
        pairs.any(|(charge, fallback)| {
            matches!(fallback, Fallback::Closed) && !charge.policy.is_shadow()
        })
    }

    /// Returns the charge at the cost that an `AcquireUpTo` charges: `amount`, or `min` if the call
    /// is refused. For other operations, returns the charge unchanged.
    fn with_amount<'c>(&self, charge: Charge<'c>, amount: u64) -> Charge<'c> {
        match self.call.operation {
            Operation::AcquireUpTo { .. } if charge.is_check_only => charge,
            Operation::AcquireUpTo { min } if self.is_refused => charge.cost(min),
            Operation::AcquireUpTo { .. } => charge.cost(charge.cost.min(amount)),
            _ => charge,
        }
    }

    /// Decides the charges that fail open. `amount` is the amount of an `AcquireUpTo`, or `None`
    /// while the amount is not known yet.
    fn decide_open(&self, operation: Operation, amount: Option<u64>) -> Result<Decision, Error> {
        let pairs = self.call.charges.iter().zip(&self.fallbacks);
        let open: SmallVec<[Charge<'_>; 2]> = pairs
            .filter(|(_, fallback)| matches!(fallback, Fallback::Open))
            .map(|(charge, _)| amount.map_or(charge, |amount| self.with_amount(charge, amount)))
            .map(|charge| if operation.needs_hold() { charge.cost(0) } else { charge })
            // No slot is taken, because no hold is kept that would free it.
            .map(|charge| if charge.takes_slots() { charge.check_only() } else { charge })
            .collect();
        if open.is_empty() {
            return Ok(Decision::new([]));
        }
        let operation = match operation {
            operation if operation.needs_hold() => Operation::Peek,
            operation => operation_on(&open, operation.without_hold()),
        };
        empty_records::decide(operation, &open, self.now)
    }

    /// Merges the verdicts of all charges into one decision, in the order of the charges.
    /// `fallback` has the verdicts of the charges that fall back. Each other charge fails open or
    /// fails closed.
    fn merge(&self, fallback: &Decision, reason: ErrorKind) -> Result<Decision, Error> {
        let is_denied = self.is_refused || fallback.is_denied();
        let (operation, amount) = match self.call.operation {
            Operation::AcquireUpTo { min } => {
                let amount = if is_denied { min } else { self.amount(fallback) };
                (Operation::Acquire, Some(amount))
            }
            operation => (operation, None),
        };
        let open = if is_denied { Operation::Peek } else { operation };
        let open = self.decide_open(open, amount)?;
        let (mut open, mut fell_back) = (open.verdicts().iter(), fallback.verdicts().iter());
        let pairs = self.call.charges.iter().zip(&self.fallbacks);
        let verdicts = pairs.map(|(charge, fallback)| match fallback {
            Fallback::Open => open.next().copied(),
            Fallback::Closed => Some(self.refuse(&charge)),
            Fallback::Skipped => Some(Verdict::new(Outcome::Skipped, charge.policy.limit())),
            Fallback::FallBack(_) => fell_back.next().copied(),
        });
        let verdicts: Option<SmallVec<[Verdict; 4]>> = verdicts.collect();
        let verdicts = verdicts.ok_or_else(|| {
            Error::new(
                ErrorKind::Protocol,
                "the fallback store returned fewer verdicts than there were charges",
            )
        })?;
        let mut degraded = Degraded::new(self.degraded_answer(), reason);
        let operation = self.call.operation;
        degraded.is_held = operation.is_of_hold() && operation.is_acquire() && !is_denied;
        let wait = if is_denied { Duration::ZERO } else { fallback.wait() };
        let amounts: SmallVec<[u64; 4]> = match amount {
            None => SmallVec::new(),
            Some(amount) => {
                let charges = self.call.charges.iter().zip(&verdicts);
                let is_charged = |charge: &Charge<'_>, verdict: &Verdict| {
                    !is_denied && !charge.is_check_only && verdict.outcome() == Outcome::Allowed
                };
                let charged_amount = |(charge, verdict): (Charge<'_>, &Verdict)| {
                    if is_charged(&charge, verdict) { amount } else { 0 }
                };
                charges.map(charged_amount).collect()
            }
        };
        let decision = Decision::new(verdicts).with_wait(wait).degraded_by(degraded);
        Ok(match fallback.place() {
            _ if operation.has_amounts() => self.with_amounts_of(decision, fallback),
            Some(place) => decision.with_place(holds::place_for_caller(place)),
            None if amount.is_some() => decision.with_amounts(amounts),
            None => decision,
        })
    }

    /// Adds the amounts of a settlement on the fallback store. The amounts of the charges that do
    /// not fall back are 0.
    fn with_amounts_of(&self, decision: Decision, fallback: &Decision) -> Decision {
        let settings = self.fallbacks.iter().enumerate();
        let on_fallback = settings.filter(|(_, setting)| matches!(setting, Fallback::FallBack(_)));
        // The index of each charge that falls back: in the answer of the fallback store, and in the
        // call.
        let indices: SmallVec<[(usize, usize); 2]> =
            on_fallback.map(|(index, _)| index).enumerate().collect();
        let mut amounts: SmallVec<[u64; 4]> = self.fallbacks.iter().map(|_| 0).collect();
        for (from, to) in &indices {
            if let (Some(to), Some(from)) = (amounts.get_mut(*to), fallback.amounts().get(*from)) {
                *to = *from;
            }
        }
        let marked = |is_marked: fn(&Decision, usize) -> bool| {
            let marked = indices.iter().filter(move |(from, _)| is_marked(fallback, *from));
            marked.map(|(_, to)| *to)
        };
        let charged = marked(Decision::is_charged);
        let out_of_reach = marked(Decision::is_out_of_reach);
        decision.with_amounts(amounts).with_charged(charged).with_out_of_reach(out_of_reach)
    }

    /// Returns the amount of an admitted `AcquireUpTo`: the amount that the fallback store has
    /// charged. If the fallback store has charged nothing, returns the maximum that the policies
    /// that fail open admit. The result is at most the lowest cost of the charges, and equal to
    /// this cost if all policies are shadows.
    fn amount(&self, fallback: &Decision) -> u64 {
        let costs = self.call.charges.iter().filter(|charge| !charge.is_check_only);
        let max = costs.map(|charge| charge.cost).min().unwrap_or(0);
        amount_of(fallback).unwrap_or(self.max_amount).min(max)
    }

    /// Returns the verdict of a policy that fails closed. Its `retry_after` is the configured hint.
    /// If the cost is above the limit, the verdict has no `retry_after`, because the cost is never
    /// admitted.
    fn refuse(&self, charge: &Charge<'_>) -> Verdict {
        let limit = charge.policy.limit();
        let cost = match self.call.operation {
            Operation::AcquireUpTo { min } if !charge.is_check_only => min,
            _ => self.call.charges.total_cost_for(charge),
        };
        let verdict = Verdict::new(Outcome::Denied, limit)
            .with_retry_after((cost <= limit).then_some(self.retry_hint))
            .with_reset_after(self.retry_hint);
        if charge.policy.is_shadow() { verdict.in_shadow() } else { verdict }
    }

    fn degraded_answer(&self) -> DegradedAnswer {
        let any = |is: fn(&Fallback) -> bool| self.fallbacks.iter().any(is);
        if self.is_closed() {
            DegradedAnswer::FailedClosed
        } else if any(|fallback| matches!(fallback, Fallback::FallBack(_))) {
            DegradedAnswer::FellBack
        } else if any(|fallback| matches!(fallback, Fallback::Open)) {
            DegradedAnswer::FailedOpen
        } else {
            DegradedAnswer::FailedClosed
        }
    }
}

/// Chooses the charges of each list of alternatives that decide without the store: the charges that
/// have the same kind of fallback as the first charge that does not fail closed. If all charges
/// fail closed, the first one refuses the call.
fn with_alternatives(
    charges: Charges<'_>,
    mut fallbacks: SmallVec<[Fallback; 2]>,
) -> SmallVec<[Fallback; 2]> {
    for list in charges.lists() {
        let is_possible = |index: &usize| !matches!(fallbacks.get(*index), Some(Fallback::Closed));
        let first = list.clone().find(is_possible).or_else(|| list.clone().next());
        let Some(kept) = first.and_then(|first| fallbacks.get(first)).map(discriminant) else {
            continue;
        };
        let is_closed = kept == discriminant(&Fallback::Closed);
        for index in list {
            if let Some(fallback) = fallbacks.get_mut(index)
                && (discriminant(fallback) != kept || is_closed && Some(index) != first)
            {
                *fallback = Fallback::Skipped;
            }
        }
    }
    fallbacks
}

fn amount_of(decision: &Decision) -> Option<u64> {
    decision.amounts().iter().copied().max().filter(|&amount| amount > 0)
}

/// Returns the operation for some of the charges of a call. If all these charges are check-only, an
/// `AcquireUpTo` becomes an acquire, because a check-only charge has no amount.
fn operation_on(charges: &[Charge<'_>], operation: Operation) -> Operation {
    match operation {
        Operation::AcquireUpTo { .. } if charges.iter().all(|charge| charge.is_check_only) => {
            Operation::Acquire
        }
        operation => operation,
    }
}
