//! A chunk of a subject's budget that the store has granted, and what is left of it.

use smallvec::SmallVec;

use crate::policy::Rule;
use crate::time::Wait;
use crate::{ChargeBuf, Charges, Decision, Outcome, Policy, Verdict};

/// One number for each charge of a call.
pub(super) type PerCharge<T> = SmallVec<[T; 1]>;

/// What the store has granted, and what of it is left. Times are microseconds by the clock of the layer.
#[derive(Debug)]
pub(super) struct Chunk {
    /// The number of the hold.
    pub(super) number: u64,
    /// When the call was sent.
    sent: u64,
    /// When the chunk ends: it is not used any more.
    deadline: u64,
    /// When the answer came.
    installed: u64,
    last_used: u64,
    /// Calls that were admitted from it.
    pub(super) calls: u64,
    parts: PerCharge<Part>,
}

/// The part of a chunk that is of one charge.
#[derive(Debug, Clone, Copy)]
struct Part {
    granted: u64,
    left: u64,
    limit: u64,
    /// What remained in the store.
    remaining: u64,
    /// When the state has recovered, as far as the answer knows.
    resets_at: u64,
}

/// When a grant was asked for, when it was answered, and how long it may last.
#[derive(Debug, Clone, Copy)]
pub(super) struct Grant {
    pub(super) number: u64,
    pub(super) sent: u64,
    pub(super) received: u64,
    pub(super) span_micros: u64,
}

impl Chunk {
    /// The chunk of an answer; `None` if it grants none, or is not the store's.
    pub(super) fn new(
        grant: Grant,
        charges: &[ChargeBuf<'_>],
        decision: &Decision,
    ) -> Option<Self> {
        let verdicts = decision.verdicts();
        let is_granted = decision.degraded().is_none()
            && verdicts.len() == charges.len()
            && verdicts.iter().all(|it| it.outcome() == Outcome::Allowed);
        if !is_granted {
            return None;
        }
        let Grant { number, sent, received, span_micros } = grant;
        let policies = charges.iter().map(ChargeBuf::policy);
        let life = life(span_micros, policies.zip(verdicts));
        let parts = charges.iter().zip(verdicts).map(|(charge, verdict)| {
            let granted = charge.as_charge().cost;
            Part {
                granted,
                left: granted,
                limit: verdict.limit(),
                remaining: verdict.remaining(),
                resets_at: received.saturating_add(verdict.reset_micros()),
            }
        });
        let deadline = sent.saturating_add(life);
        let (installed, last_used, calls, parts) = (received, received, 0, parts.collect());
        Some(Self { number, sent, deadline, installed, last_used, calls, parts })
    }

    pub(super) fn deadline(&self) -> u64 {
        self.deadline
    }

    /// Whether it cannot be used at this time, as it has ended or the clock has stepped back.
    pub(super) fn is_over(&self, now: u64) -> bool {
        now < self.sent || now >= self.deadline
    }

    /// Returns `true` if all costs of a call are left, so that [`take`](Self::take) succeeds.
    pub(super) fn has(&self, charges: Charges<'_>, now: u64) -> bool {
        let mut pairs = self.parts.iter().zip(charges.iter());
        !self.is_over(now) && pairs.all(|(part, charge)| part.left >= charge.cost)
    }

    /// Takes the costs of a call, if all are left.
    pub(super) fn take(&mut self, charges: Charges<'_>, now: u64) -> Option<Decision> {
        if self.is_over(now) {
            return None;
        }
        if let ([part], Some(charge)) = (&mut self.parts[..], charges.get(0)) {
            part.left = part.left.checked_sub(charge.cost)?;
            let decision = Decision::one(part.verdict(charge.policy, now));
            (self.calls, self.last_used) = (self.calls + 1, now);
            return Some(decision);
        }
        if !self.has(charges, now) {
            return None;
        }
        (self.calls, self.last_used) = (self.calls + 1, now);
        let verdicts = self.parts.iter_mut().zip(charges.iter()).map(|(part, charge)| {
            part.left = part.left.saturating_sub(charge.cost);
            part.verdict(charge.policy, now)
        });
        Some(Decision::new(verdicts))
    }

    /// Returns the granted cost of each charge.
    pub(super) fn granted(&self) -> impl Iterator<Item = u64> + '_ {
        self.parts.iter().map(|part| part.granted)
    }

    /// What is left of each charge.
    pub(super) fn left(&self) -> impl Iterator<Item = u64> + '_ {
        self.parts.iter().map(|part| part.left)
    }

    /// What was used of each charge.
    pub(super) fn used(&self) -> impl Iterator<Item = u64> + '_ {
        self.parts.iter().map(|part| part.granted.saturating_sub(part.left))
    }

    /// What remained in the store of each charge.
    pub(super) fn remaining(&self) -> impl Iterator<Item = u64> + '_ {
        self.parts.iter().map(|part| part.remaining)
    }

    /// Whether half of any charge is used.
    pub(super) fn is_half_used(&self) -> bool {
        self.parts.iter().any(|part| part.left <= part.granted / 2)
    }

    /// What would be used of each charge in half a span at the rate so far, at most four times as much as was granted.
    pub(super) fn demand(&self, now: u64, span_micros: u64) -> PerCharge<u64> {
        // Once it is used up, no more calls show the demand.
        let until = if self.left().any(|left| left == 0) { self.last_used } else { now };
        let elapsed = u128::from(until.saturating_sub(self.installed).max(1));
        let half_span = u128::from(span_micros / 2);
        let demand = |part: &Part| {
            let used = u128::from(part.granted.saturating_sub(part.left));
            let max = part.granted.saturating_mul(4);
            u64::try_from(used * half_span / elapsed).unwrap_or(max).min(max)
        };
        self.parts.iter().map(demand).collect()
    }
}

impl Part {
    fn verdict(&self, policy: &Policy, now: u64) -> Verdict {
        let remaining = self.remaining.saturating_add(self.left).min(self.limit);
        let reset = self.resets_at.saturating_sub(now);
        Verdict::from_micros(Outcome::Allowed, self.limit, remaining, Wait::ZERO, reset)
            .with_shadow_of(policy)
    }
}

/// For how long a chunk may be used from the time at which the call was sent.
///
/// A window ends `reset_after` after the store has answered, so no earlier than so long after the call was sent. A
/// thousandth is taken off, so that a clock that is slower than the store's by up to that ends the chunk in time.
fn life<'p>(span_micros: u64, verdicts: impl Iterator<Item = (&'p Policy, &'p Verdict)>) -> u64 {
    let windows = verdicts.filter(|(policy, _)| matches!(policy.rule(), Rule::FixedWindow(_)));
    let life = windows.map(|(_, verdict)| verdict.reset_micros()).fold(span_micros, u64::min);
    life.saturating_sub(life.div_ceil(1_000))
}
