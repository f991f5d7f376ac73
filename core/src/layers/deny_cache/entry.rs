//! A denied call in the cache: its key, its answer, and the end of the time for which the answer is
//! valid.

use std::hash::{BuildHasher, Hasher};

use smallvec::SmallVec;

use super::staleness::ClockReading;
use crate::call::MAX_CHARGES;
use crate::layers::generations::{Generations, KeyGenerations, Keys};
use crate::policy::Rule;
use crate::sync::hash::RandomState;
use crate::{Call, Charge, Charges, Decision, Operation, Outcome, Policy, Verdict};

pub(super) const MAX_NAME_BYTES: usize = 4096;

#[derive(Debug)]
pub(super) struct CallKey<'a> {
    pub(super) call: Call<'a>,
    /// For each charge, in the order of the call: the hash of its state. The list omits a charge
    /// whose state has a tenant and a subject that are too long to be cached.
    pub(super) keys: Keys,
    /// The hash of all charges with their costs. It is `None` if the call is too large to be
    /// cached, or if the store's answer has data that a cached denial does not contain.
    pub(super) hash: Option<u64>,
}

impl<'a> CallKey<'a> {
    pub(super) fn new(call: Call<'a>, hasher: &RandomState) -> Self {
        let mut keys = Keys::new();
        let mut call_hash = hasher.build_hasher();
        let (mut names, mut last) = (0, None);
        for charge in call.charges.iter() {
            let bytes = |subject: &[u8]| charge.tenant.len().saturating_add(subject.len());
            names = bytes(charge.subject).saturating_add(names);
            if bytes(charge.state_subject()) > MAX_NAME_BYTES {
                continue;
            }
            let name = name_hash(&charge, last, hasher);
            last = Some((charge, name));
            let key = key_hash(&charge, name, hasher);
            call_hash.write_u64(key);
            // All subjects of a tenant share the state of a limit per tenant. So the key contains
            // only the tenant, and a charge for one subject invalidates the denials of all
            // subjects. But with shards, the store can answer differently for two subjects, so the
            // hash of the call contains the subject.
            keys.push(if charge.policy.is_per_tenant() {
                let tenant = Charge { subject: charge.state_subject(), ..charge };
                key_hash(&charge, name_hash(&tenant, None, hasher), hasher)
            } else {
                key
            });
            call_hash.write_u64(charge.cost);
        }
        let fits = names <= MAX_NAME_BYTES && keys.len() <= MAX_CHARGES;
        // If a state stores its holds, the answer to a peek also contains their unspent costs,
        // which a cached denial does not contain. A denial of a policy that counts failures is
        // possibly no offense, but the next one is.
        let needs_store = call.charges.iter().any(|charge| {
            charge.policy.counts_failures()
                || call.operation == Operation::Peek && charge.policy.stores_holds()
        });
        Self { call, keys, hash: (fits && !needs_store).then(|| call_hash.finish()) }
    }
}

/// Returns the hash of the tenant and the subject of a charge. Usually, all charges of a call have
/// the same tenant and subject. Then the function returns the hash of the previous charge (`last`)
/// again.
fn name_hash(charge: &Charge<'_>, last: Option<(Charge<'_>, u64)>, hasher: &RandomState) -> u64 {
    if let Some((last, hash)) = last
        && std::ptr::eq(last.tenant, charge.tenant)
        && std::ptr::eq(last.subject, charge.subject)
    {
        return hash;
    }
    let mut hasher = hasher.build_hasher();
    hasher.write_usize(charge.tenant.len());
    hasher.write(charge.tenant);
    hasher.write(charge.subject);
    hasher.finish()
}

fn key_hash(charge: &Charge<'_>, name: u64, hasher: &RandomState) -> u64 {
    let mut hasher = hasher.build_hasher();
    hasher.write_u64(charge.policy.state_hash());
    hasher.write_u64(name);
    hasher.finish()
}

/// A cached denial, with all data that is needed to answer equal calls until the denial ends.
#[derive(Debug)]
pub(super) struct CachedDenial {
    sent: ClockReading,
    until: u64,
    names: SmallVec<[u8; 24]>,
    charges: SmallVec<[DeniedCharge; 1]>,
}

#[derive(Debug)]
struct DeniedCharge {
    policy: Policy,
    cost: u64,
    tenant_len: u16,
    subject_len: u16,
    /// The generation of the charge's key, read before the call was sent. If the key then gets a
    /// new generation, the denial is invalid.
    generation: u64,
    verdict: Verdict,
}

impl CachedDenial {
    /// Creates the denial to cache. Returns `None` if the decision allows the call or denies it
    /// forever, or if an equal call can immediately get another answer.
    pub(super) fn new(
        call: &Call<'_>,
        decision: &Decision,
        sent: ClockReading,
        counts: &KeyGenerations,
        only_exact: bool,
        max_age: u64,
    ) -> Option<Self> {
        if decision.is_allowed() || decision.degraded().is_some() {
            return None;
        }
        // The denial of a cost above the limit has no `retry_after`. It is not cached, because it
        // would be valid forever.
        let _ends = decision.retry_after()?;
        let verdicts = decision.verdicts();
        if verdicts.len() != call.charges.len() || counts.len() != call.charges.len() {
            return None;
        }
        let mut stays = max_age;
        let mut charges = SmallVec::with_capacity(call.charges.len());
        let len = call.charges.iter().map(|charge| charge.tenant.len() + charge.subject.len());
        let mut names = SmallVec::with_capacity(len.sum());
        for ((charge, verdict), generation) in call.charges.iter().zip(verdicts).zip(counts) {
            let verdict = verdict.for_next_charge();
            let may_forget_offenses =
                verdict.block_level() > 0 && verdict.outcome() != Outcome::Blocked;
            if has_block_to_write(&charge, &verdict) || may_forget_offenses {
                return None;
            }
            stays = stays.min(verdict.valid_for());
            if only_exact {
                stays = stays.min(remaining_stays_for(call.charges, &charge, &verdict));
            }
            names.extend_from_slice(charge.tenant);
            names.extend_from_slice(charge.subject);
            charges.push(DeniedCharge {
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

    pub(super) fn matches(&self, charges: Charges<'_>) -> bool {
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

    /// Returns `true` if the denial has not ended, and if no call through this cache can have
    /// changed the states of the denial.
    pub(super) fn is_valid(
        &self,
        key: &CallKey<'_>,
        at: ClockReading,
        generations: &Generations,
    ) -> bool {
        let mut counts = self.charges.iter().zip(&key.keys);
        !self.is_over(at) && counts.all(|(held, key)| generations.is_current(*key, held.generation))
    }

    /// Returns `true` if the denial has ended, or if the clock has stepped back.
    pub(super) fn is_over(&self, at: ClockReading) -> bool {
        at.epoch != self.sent.epoch || at.now < self.sent.now || at.now >= self.until
    }

    pub(super) fn until(&self) -> u64 {
        self.until
    }

    /// Returns the decision for an equal call at the time `at`. The denial must be valid at that
    /// time.
    pub(super) fn decision(&self, at: ClockReading) -> Decision {
        let since = at.now.saturating_sub(self.sent.now);
        Decision::new(self.charges.iter().map(|held| held.verdict.later(since)))
    }

    /// Returns the number of bytes that the denial uses on the heap. The policies count too,
    /// because the denial possibly has the last reference to a policy.
    pub(super) fn heap_bytes(&self) -> usize {
        let names = if self.names.spilled() { self.names.capacity() } else { 0 };
        let spilled = if self.charges.spilled() { self.charges.capacity() } else { 0 };
        let policies = self.charges.iter().map(|held| held.policy.heap_bytes());
        names + spilled * size_of::<DeniedCharge>() + policies.sum::<usize>()
    }
}

/// Returns `true` if an acquire of this charge would write a block. Such an acquire must reach the
/// store.
fn has_block_to_write(charge: &Charge<'_>, verdict: &Verdict) -> bool {
    match verdict.outcome() {
        Outcome::Denied => charge.policy.blocks(),
        Outcome::Blocked => charge.policy.restarts_block(),
        _ => false,
    }
}

/// Returns the number of microseconds for which the remaining amount of a charge certainly does not
/// change.
fn remaining_stays_for(all: Charges<'_>, charge: &Charge<'_>, verdict: &Verdict) -> u64 {
    let cost = all.total_cost_for(charge);
    match (verdict.outcome(), charge.policy.rule()) {
        (Outcome::Blocked, _) => verdict.valid_for(),
        // If a cost of 1 is denied, nothing remains until the denial ends.
        (Outcome::Denied, _) if cost <= 1 => verdict.valid_for(),
        // A remaining amount equal to the limit cannot grow, because the subject has no usage.
        _ if verdict.remaining() == verdict.limit() && !charge.policy.is_quota() => u64::MAX,
        // In a window, the remaining amount grows only at the end of the window.
        (_, Rule::FixedWindow(_)) => verdict.reset_micros(),
        // More quota can roll over into the next window. A grant can end before.
        (_, Rule::Quota(quota))
            if quota.rollover().is_some() || verdict.remaining() > verdict.limit() =>
        {
            0
        }
        (_, Rule::Quota(_)) if verdict.reset_micros() == 0 => u64::MAX, // no usage
        (_, Rule::Quota(_)) => verdict.reset_micros(),
        _ => 0,
    }
}

/// Returns `true` if the cache is allowed to store the denial of this call, and to answer this
/// call.
pub(super) fn is_cacheable(call: &Call<'_>) -> bool {
    // A check-only charge has the same key as a charge that is made, so the cache ignores calls
    // with check-only charges. If an admitted call with an id is sent again, the store admits it
    // again, so the cache must not refuse it.
    matches!(call.operation, Operation::Acquire | Operation::Peek)
        && call.id.is_none()
        && !call.charges.any_check_only()
        // A denial of a list depends on several states.
        && !call.charges.has_lists()
        // The store adds a denied cost to the demand.
        && !call.charges.any_policy(Policy::is_fair_pool)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn policy(text: &str) -> Policy {
        text.parse().unwrap()
    }

    #[test]
    fn a_denial_matches_exactly_the_charges_that_were_denied() {
        let (api, day) = (policy("api: fixed-window 5/1s"), policy("day: fixed-window 9/1d"));
        let first = Charge::new(&api, "alice").tenant("acme").cost(2);
        let second = Charge::new(&day, "alice");
        let refused = [first, second];
        let wait = Duration::from_micros(5);
        let verdict =
            Verdict::new(Outcome::Denied, 5).with_retry_after(Some(wait)).with_reset_after(wait);
        let (sent, counts) =
            (ClockReading { now: 4, epoch: 0 }, KeyGenerations::from_slice(&[0, 0]));
        let denial = CachedDenial::new(
            &Call::acquire(&refused),
            &Decision::new([verdict, verdict]),
            sent,
            &counts,
            false,
            u64::MAX,
        )
        .unwrap();
        let matches = |charges: &[Charge<'_>]| denial.matches(charges.into());

        assert!(matches(&refused));
        let (same, other) = (policy("api: fixed-window 5/1s"), policy("api: fixed-window 6/1s"));
        assert!(matches(&[Charge { policy: &same, ..first }, second]));
        for changed in [
            Charge { policy: &other, ..first },
            first.cost(3),
            first.tenant("acm"),
            // Tenant and subject of the next two charges form the same bytes `acmealice` as in the
            // denied charge. The charges must not match.
            Charge::new(&api, "ealice").tenant("acm").cost(2),
            Charge::new(&api, "acmealice").cost(2),
            Charge { subject: b"bob", ..first },
        ] {
            assert!(!matches(&[changed, second]), "{changed:?}");
        }
        assert!(!matches(&[second, first]));
        assert!(!matches(&[first]));
        assert!(!matches(&[first, second, second]));
    }
}
