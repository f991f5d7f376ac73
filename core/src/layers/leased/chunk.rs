//! A chunk of a limit: the cost that the store has granted, and the part that calls have used.

use std::sync::Arc;

use super::todo::{Fetch, PerCharge};
use crate::policy::Rule;
use crate::time::{MAX_EXACT, Wait};
use crate::{Charges, Decision, Outcome, Policy, Verdict};

/// A chunk that the store has granted. All times of a chunk are in microseconds, by the clock of
/// the layer.
#[derive(Debug)]
pub(super) struct Chunk {
    pub(super) fetch: Arc<Fetch>,
    sent: u64,
    /// The end of the chunk. From this time on, the chunk admits no calls.
    pub(super) deadline: u64,
    /// The time at which the store's answer to the hold of the chunk arrived.
    installed: u64,
    last_used: u64,
    pub(super) calls: u64,
    parts: PerCharge<Part>,
}

#[derive(Debug, Clone, Copy)]
struct Part {
    granted: u64,
    unspent: u64,
    limit: u64,
    remaining: u64,
    /// The time at which the state recovers if nothing is charged after the chunk.
    resets_at: u64,
    /// Whether the answer to the hold of the chunk warns. Only quotas need it.
    warns: bool,
}

impl Chunk {
    /// Creates the chunk that the store has granted with `decision`, the answer to a hold. The hold
    /// was sent at `sent`, and the answer arrived at `received`. Returns `None` if the decision
    /// denies a charge or is degraded.
    pub(super) fn new(
        fetch: &Arc<Fetch>,
        decision: &Decision,
        sent: u64,
        received: u64,
        span_micros: u64,
    ) -> Option<Self> {
        let verdicts = decision.verdicts();
        let is_granted = decision.degraded().is_none()
            && verdicts.len() == fetch.charges.len()
            && verdicts.iter().all(|verdict| verdict.outcome() == Outcome::Allowed);
        if !is_granted {
            return None;
        }
        let parts = fetch.charges().zip(verdicts).map(|(charge, verdict)| Part {
            granted: charge.cost,
            unspent: charge.cost,
            limit: verdict.limit(),
            remaining: verdict.remaining(),
            resets_at: received.saturating_add(verdict.reset_micros()),
            warns: charge.policy.is_quota() && verdict.warns(),
        });
        let policies = fetch.charges().map(|charge| charge.policy);
        let deadline = sent.saturating_add(life(span_micros, policies.zip(verdicts)));
        let (fetch, parts) = (Arc::clone(fetch), parts.collect());
        Some(Self {
            fetch,
            sent,
            deadline,
            installed: received,
            last_used: received,
            calls: 0,
            parts,
        })
    }

    /// Returns `true` if the chunk cannot be used at `now`, because it is over or the clock has
    /// stepped back.
    pub(super) fn is_over(&self, now: u64) -> bool {
        now < self.sent || now >= self.deadline
    }

    pub(super) fn would_admit(&self, charges: Charges<'_>, now: u64) -> bool {
        let mut pairs = self.parts.iter().zip(charges.iter());
        !self.is_over(now) && pairs.all(|(part, charge)| part.unspent >= charge.cost)
    }

    pub(super) fn admit(&mut self, charges: Charges<'_>, now: u64) -> Option<Decision> {
        if self.is_over(now) {
            return None;
        }
        if let ([part], Some(charge)) = (&mut self.parts[..], charges.get(0)) {
            part.unspent = part.unspent.checked_sub(charge.cost)?;
            let decision = Decision::one(part.verdict(charge.policy, now));
            (self.calls, self.last_used) = (self.calls + 1, now);
            return Some(decision);
        }
        if !self.would_admit(charges, now) {
            return None;
        }
        (self.calls, self.last_used) = (self.calls + 1, now);
        let verdicts = self.parts.iter_mut().zip(charges.iter()).map(|(part, charge)| {
            part.unspent = part.unspent.saturating_sub(charge.cost);
            part.verdict(charge.policy, now)
        });
        Some(Decision::new(verdicts))
    }

    pub(super) fn granted(&self) -> impl Iterator<Item = u64> + '_ {
        self.parts.iter().map(|part| part.granted)
    }

    pub(super) fn unspent(&self) -> impl Iterator<Item = u64> + '_ {
        self.parts.iter().map(|part| part.unspent)
    }

    pub(super) fn used(&self) -> impl Iterator<Item = u64> + '_ {
        self.parts.iter().map(|part| part.granted.saturating_sub(part.unspent))
    }

    pub(super) fn remaining(&self) -> impl Iterator<Item = u64> + '_ {
        self.parts.iter().map(|part| part.remaining)
    }

    pub(super) fn is_half_used(&self) -> bool {
        self.parts.iter().any(|part| part.unspent <= part.granted / 2)
    }

    /// Returns the demand for each charge: the cost that calls would use in half a span, at the
    /// rate at which they have used this chunk. The result is at most four times the granted cost.
    pub(super) fn demand(&self, now: u64, span_micros: u64) -> PerCharge<u64> {
        // A chunk without unspent cost admits no more calls. So the time after its last use must
        // not lower the rate.
        let is_used_up = self.unspent().any(|unspent| unspent == 0);
        let until = if is_used_up { self.last_used } else { now };
        let elapsed = u128::from(until.saturating_sub(self.installed).max(1));
        let half_span = u128::from(span_micros / 2);
        let demand = |part: &Part| {
            let used = u128::from(part.granted.saturating_sub(part.unspent));
            let max = part.granted.saturating_mul(4);
            u64::try_from(used * half_span / elapsed).unwrap_or(max).min(max)
        };
        self.parts.iter().map(demand).collect()
    }
}

impl Part {
    fn verdict(&self, policy: &Policy, now: u64) -> Verdict {
        let remaining =
            self.remaining.saturating_add(self.unspent).min(max_remaining(policy, self.limit));
        let reset = self.resets_at.saturating_sub(now);
        let verdict =
            Verdict::from_micros(Outcome::Allowed, self.limit, remaining, Wait::ZERO, reset)
                .with_settings_of(policy);
        if self.warns { verdict.with_warning(true) } else { verdict }
    }
}

/// Returns the maximum of the remaining amount together with unspent cost. If a chunk was fetched
/// after the store's answer, its cost counts twice, and the maximum bounds the error. A quota with
/// grants or rolled-over quota can have more than its limit.
pub(super) fn max_remaining(policy: &Policy, limit: u64) -> u64 {
    if policy.is_quota() { MAX_EXACT } else { limit }
}

/// Returns the time in microseconds for which a chunk can be used, counted from the moment at which
/// its hold was sent.
///
/// A chunk must not be used after the end of a fixed window or of the window of a quota. The window
/// ends `reset_after` after the store has answered, so not earlier than `reset_after` after the
/// hold was sent. The returned time is 0.1 % shorter, because the clock of the layer can be slower
/// than the store's clock by up to 0.1 %.
fn life<'p>(span_micros: u64, verdicts: impl Iterator<Item = (&'p Policy, &'p Verdict)>) -> u64 {
    let windows = verdicts
        .filter(|(policy, _)| matches!(policy.rule(), Rule::FixedWindow(_) | Rule::Quota(_)));
    let life = windows.map(|(_, verdict)| verdict.reset_micros()).fold(span_micros, u64::min);
    life.saturating_sub(life.div_ceil(1_000))
}
