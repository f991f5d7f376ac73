//! A refusal that is remembered: to what it was said, until when it holds, and what is said meanwhile.

use smallvec::SmallVec;

use super::asked::Asked;
use super::generations::{Counts, Generations};
use super::moment::Moment;
use crate::policy::Rule;
use crate::{Call, Charge, Charges, Decision, Operation, Outcome, Policy, Verdict};

/// A refusal, with all that the same call is answered until it ends.
#[derive(Debug)]
pub(super) struct Refusal {
    sent: Moment,
    /// Microseconds since 1970.
    until: u64,
    /// The tenants and subjects of all charges, one after the other.
    names: SmallVec<[u8; 24]>,
    charges: SmallVec<[Held; 1]>,
}

/// One charge of the call, and what was said to it.
#[derive(Debug)]
struct Held {
    policy: Policy,
    cost: u64,
    tenant_len: u16,
    subject_len: u16,
    /// The count of the charge's key before the store was asked.
    generation: u64,
    verdict: Verdict,
}

impl Refusal {
    /// What there is to remember of a decision; `None` if it refuses nothing, or for ever, or if the
    /// same call might be answered otherwise in a moment.
    pub(super) fn of(
        call: &Call<'_>,
        decision: &Decision,
        sent: Moment,
        counts: &Counts,
        only_exact: bool,
    ) -> Option<Self> {
        // Who can never be admitted is refused for longer than anybody should believe a cache.
        if decision.is_allowed() || decision.degraded().is_some() {
            return None;
        }
        let _ends = decision.retry_after()?;
        let verdicts = decision.verdicts();
        if verdicts.len() != call.charges.len() || counts.len() != call.charges.len() {
            return None;
        }
        let mut stays = u64::MAX;
        let mut charges = SmallVec::with_capacity(call.charges.len());
        let len = call.charges.iter().map(|charge| charge.tenant.len() + charge.subject.len());
        let mut names = SmallVec::with_capacity(len.sum());
        for ((charge, verdict), generation) in call.charges.iter().zip(verdicts).zip(counts) {
            let verdict = verdict.to_the_next();
            if leaves_a_penalty_to_write(&charge, &verdict) {
                return None;
            }
            stays = stays.min(verdict.stays_for());
            if only_exact {
                stays = stays.min(remaining_stays_for(call.charges, &charge, &verdict));
            }
            names.extend_from_slice(charge.tenant);
            names.extend_from_slice(charge.subject);
            charges.push(Held {
                policy: charge.policy.clone(),
                cost: charge.cost,
                tenant_len: u16::try_from(charge.tenant.len()).ok()?,
                subject_len: u16::try_from(charge.subject.len()).ok()?,
                generation: *generation,
                verdict,
            });
        }
        let until = sent.now.saturating_add(stays);
        (stays > 0).then(|| Self { sent, until, names, charges })
    }

    /// Whether this was said to just these charges.
    pub(super) fn is_to(&self, charges: Charges<'_>) -> bool {
        let mut names = &*self.names;
        let mut next = |len: u16| {
            let (name, rest) = names.split_at_checked(usize::from(len)).unwrap_or_default();
            names = rest;
            name
        };
        self.charges.len() == charges.len()
            && self.charges.iter().zip(charges.iter()).all(|(held, charge)| {
                held.cost == charge.cost
                    && next(held.tenant_len) == charge.tenant
                    && next(held.subject_len) == charge.subject
                    && (held.policy.is_same_object(charge.policy) || held.policy == *charge.policy)
            })
    }

    /// Whether it still is what the store would say, as far as anybody here knows.
    pub(super) fn holds(&self, asked: &Asked<'_>, at: Moment, generations: &Generations) -> bool {
        let mut counts = self.charges.iter().zip(&asked.keys);
        !self.is_over(at) && counts.all(|(held, key)| generations.is_current(*key, held.generation))
    }

    /// Whether it has ended, or the clock does not tell.
    pub(super) fn is_over(&self, at: Moment) -> bool {
        at.turn != self.sent.turn || at.now < self.sent.now || at.now >= self.until
    }

    pub(super) fn until(&self) -> u64 {
        self.until
    }

    /// The answer at a time at which it holds.
    pub(super) fn decision(&self, at: Moment) -> Decision {
        let since = at.now.saturating_sub(self.sent.now);
        Decision::new(self.charges.iter().map(|held| held.verdict.later(since)))
    }

    /// Bytes on the heap, those of the policies included: this may be the last to hold them.
    pub(super) fn heap_bytes(&self) -> usize {
        let names = if self.names.spilled() { self.names.capacity() } else { 0 };
        let spilled = if self.charges.spilled() { self.charges.capacity() } else { 0 };
        let policies = self.charges.iter().map(|held| held.policy.heap_bytes());
        names + spilled * size_of::<Held>() + policies.sum::<usize>()
    }
}

/// Whether the same acquire would have to shut the subject out, and so has to be made: a peek has told
/// so, or a store that did not.
fn leaves_a_penalty_to_write(charge: &Charge<'_>, verdict: &Verdict) -> bool {
    verdict.outcome() == Outcome::Denied && charge.policy.blocks_for().is_some()
}

/// For how many microseconds `remaining` is sure to stay as it was told.
fn remaining_stays_for(all: Charges<'_>, charge: &Charge<'_>, verdict: &Verdict) -> u64 {
    let cost = all.cost_to_the_key_of(charge);
    match (verdict.outcome(), charge.policy.rule()) {
        (Outcome::Blocked, _) => verdict.stays_for(),
        // Not even 1 is admitted.
        (Outcome::Denied, _) if cost <= 1 => verdict.stays_for(),
        // Nothing is taken.
        _ if verdict.remaining() == verdict.limit() => u64::MAX,
        // All comes back at once.
        (_, Rule::FixedWindow(_)) => verdict.reset_micros(),
        _ => 0,
    }
}

/// Whether a decision on this operation may be remembered, or answered from what is.
pub(super) fn is_asking(operation: Operation) -> bool {
    matches!(operation, Operation::Acquire | Operation::Peek)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Wait;

    fn policy(text: &str) -> Policy {
        text.parse().unwrap()
    }

    #[test]
    fn a_refusal_is_to_the_very_charges_that_were_refused_and_to_no_others() {
        let (api, day) = (policy("api: fixed-window 5/1s"), policy("day: fixed-window 9/1d"));
        let first = Charge::new(&api, "alice").tenant("acme").cost(2);
        let second = Charge::new(&day, "alice");
        let refused = [first, second];
        let verdict = Verdict::new(Outcome::Denied, 5, 0, Wait::until(9, 4), 5);
        let (sent, counts) = (Moment { now: 4, turn: 0 }, Counts::from_slice(&[0, 0]));
        let refusal = Refusal::of(
            &Call::acquire(&refused),
            &Decision::new([verdict, verdict]),
            sent,
            &counts,
            false,
        )
        .unwrap();
        let is_to = |charges: &[Charge<'_>]| refusal.is_to(Charges::Each(charges));

        assert!(is_to(&refused));
        let (same, other) = (policy("api: fixed-window 5/1s"), policy("api: fixed-window 6/1s"));
        assert!(is_to(&[Charge { policy: &same, ..first }, second]));
        for changed in [
            Charge { policy: &other, ..first },
            first.cost(3),
            first.tenant("acm"),
            // The same bytes, one after the other.
            Charge::new(&api, "ealice").tenant("acm").cost(2),
            Charge::new(&api, "acmealice").cost(2),
            Charge { subject: b"bob", ..first },
        ] {
            assert!(!is_to(&[changed, second]), "{changed:?}");
        }
        assert!(!is_to(&[second, first]));
        assert!(!is_to(&[first]));
        assert!(!is_to(&[first, second, second]));
    }
}
