//! A call for which the store returned an error.

use std::time::Duration;

use smallvec::SmallVec;

use super::empty_records;
use super::outage::Outage;
use super::settings::Settings;
use crate::{
    Call, Charge, Decision, Degraded, DegradedAnswer, Error, ErrorKind, Operation, Outcome, Policy,
    Timestamp, Verdict,
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
}

#[derive(Debug)]
pub(super) struct FailedCall<'a> {
    call: Call<'a>,
    error: Error,
    fallbacks: SmallVec<[Fallback; 2]>,
    retry_hint: Duration,
    now: Timestamp,
    /// Whether the call is refused, regardless of the answer of the fallback store.
    is_refused: bool,
    /// For an `AcquireUpTo`, the maximum amount that all policies that fail open admit.
    max_amount: u64,
}

impl<'a> FailedCall<'a> {
    /// Creates a failed call from `call` and the error of the store. Returns an error if the call
    /// is not valid. Returns `error` itself if no fallback is allowed to hide it.
    pub(super) fn new(
        call: Call<'a>,
        error: Error,
        settings: &Settings,
        fallback: impl Fn(&Policy) -> Result<Fallback, Error>,
    ) -> Result<Self, Error> {
        if settings.is_returned(error.kind()) {
            return Err(error);
        }
        // If a layer such as the breaker returned the error, the store has not checked the call. So
        // this layer checks it.
        call.check()?;
        // Without the store, a hold becomes an acquire: its estimate is charged, and no hold is
        // kept.
        let operation = call.operation.without_hold();
        if operation.is_of_hold() {
            // A settlement or an extension of a hold remains an error, because only the store knows
            // the hold.
            return Err(error);
        }
        let call = Call { operation, ..call };
        let fallbacks = call.charges.iter().map(|charge| fallback(charge.policy));
        let mut failed = Self {
            call,
            error,
            fallbacks: fallbacks.collect::<Result<_, _>>()?,
            retry_hint: settings.retry_hint,
            now: settings.clock.now(),
            is_refused: false,
            max_amount: u64::MAX,
        };
        if failed.needs_slots() {
            return Err(failed.error);
        }
        let open = failed.decide_open(call.operation, None)?;
        failed.is_refused = failed.is_closed() || open.is_denied();
        failed.max_amount = amount_of(&open).unwrap_or(u64::MAX);
        Ok(failed)
    }

    /// Returns the operation for the fallback store. If the layer refuses the call regardless of
    /// the fallback store, the operation is a peek, so that the fallback store charges nothing.
    pub(super) fn operation(&self) -> Operation {
        if self.is_decided() && self.is_refused {
            return Operation::Peek;
        }
        operation_on(&self.charges(), self.call.operation)
    }

    /// Returns the charges for the fallback store. Returns no charges for an undo, because only the
    /// inner store has made the charge that the call undoes.
    pub(super) fn charges(&self) -> SmallVec<[Charge<'_>; 2]> {
        if matches!(self.call.operation, Operation::Undo { .. }) {
            return SmallVec::new();
        }
        let pairs = self.call.charges.iter().zip(&self.fallbacks);
        pairs
            .filter_map(|(charge, fallback)| match fallback {
                Fallback::FallBack(policy) => {
                    Some(self.with_amount(Charge { policy, ..charge }, self.max_amount))
                }
                Fallback::Open | Fallback::Closed => None,
            })
            .collect()
    }

    /// Returns the final answer to the call. `fallback` is the answer of the fallback store, or
    /// `None` if the fallback store was not called.
    pub(super) fn answer(
        self,
        fallback: Option<Result<Decision, Error>>,
        outage: &Outage,
    ) -> Result<Decision, Error> {
        let decision = match fallback {
            Some(Err(second)) => return Err(both_failed(&self.error, second)),
            _ if !self.is_decided() => return Err(self.error),
            Some(Ok(decision)) => self.merge(&decision)?,
            None => self.merge(&Decision::new([]))?,
        };
        outage.record_failure(&self.error, self.degraded_answer(), self.now);
        Ok(decision)
    }

    /// Returns `true` if the call can be decided without the inner store, such as an acquire or a
    /// peek. Other calls, such as a refund, must change states of the inner store.
    fn is_decided(&self) -> bool {
        self.call.operation.can_be_refused()
    }

    /// Returns `true` if the fallback store would have to take slots. It cannot, because it keeps
    /// no holds.
    fn needs_slots(&self) -> bool {
        let mut pairs = self.call.charges.iter().zip(&self.fallbacks);
        pairs.any(|(charge, fallback)| {
            matches!(fallback, Fallback::FallBack(_)) && charge.takes_slots()
        })
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
            // No slot is taken, because no hold is kept that would free it.
            .map(|charge| if charge.takes_slots() { charge.check_only() } else { charge })
            .collect();
        if open.is_empty() {
            return Ok(Decision::new([]));
        }
        empty_records::decide(operation_on(&open, operation), &open, self.now)
    }

    /// Merges the verdicts of all charges into one decision, in the order of the charges.
    /// `fallback` has the verdicts of the charges that fall back. Each other charge fails open or
    /// fails closed.
    fn merge(&self, fallback: &Decision) -> Result<Decision, Error> {
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
            Fallback::FallBack(_) => fell_back.next().copied(),
        });
        let verdicts: Option<SmallVec<[Verdict; 4]>> = verdicts.collect();
        let verdicts = verdicts.ok_or_else(|| {
            Error::new(
                ErrorKind::Protocol,
                "the fallback store returned fewer verdicts than there were charges",
            )
        })?;
        let degraded = Degraded { answer: self.degraded_answer(), reason: self.error.kind() };
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
        Ok(if amount.is_some() { decision.with_amounts(amounts) } else { decision })
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

fn both_failed(first: &Error, second: Error) -> Error {
    let message = format!("neither the store ({first:#}) nor its fallback has decided");
    Error::new(first.kind(), message).with_source(second)
}
