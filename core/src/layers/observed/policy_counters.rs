//! The counters of each policy, in a table of bounded size. A look-up needs no lock.

use std::sync::{Mutex, OnceLock, PoisonError};

use metrics::{Counter, counter};

use crate::telemetry::names::{DECISIONS, HELD, MAX_POLICIES, NEAR_LIMIT, OTHER_POLICIES, SETTLED};
use crate::{Outcome, Policy, Verdict};

/// The number of slots of the table. At most half of the slots are used, so that a search is short.
const SLOTS: usize = 2 * MAX_POLICIES;

/// The counters of all policies, in an insert-only hash table with linear probing.
#[derive(Debug)]
pub(super) struct PolicyTable {
    slots: Box<[OnceLock<Box<PolicyCounters>>]>,
    /// The number of used slots. An insertion locks this mutex, and a look-up locks nothing.
    used: Mutex<usize>,
    /// The counters of all policies that have no slot: the first element is for enforced policies,
    /// and the second for shadows.
    overflow: [OnceLock<PolicyCounters>; 2],
}

#[derive(Debug)]
pub(super) struct PolicyCounters {
    name: Box<str>,
    state_hash: u64,
    is_shadow: bool,
    allowed: Counter,
    denied: Counter,
    blocked: Counter,
    other_denied: Counter,
    near_limit: Counter,
    /// The counter of skipped charges, created at the first such charge.
    skipped: OnceLock<Counter>,
    /// The counters for holds, created at the first hold.
    holds: OnceLock<HoldCounters>,
}

#[derive(Debug)]
pub(super) struct HoldCounters {
    pub(super) held: Counter,
    pub(super) settled: Counter,
}

impl Default for PolicyTable {
    fn default() -> Self {
        let slots = (0..SLOTS).map(|_| OnceLock::new()).collect();
        Self { slots, used: Mutex::new(0), overflow: [OnceLock::new(), OnceLock::new()] }
    }
}

impl PolicyTable {
    pub(super) fn counters(&self, policy: &Policy) -> &PolicyCounters {
        self.find(policy).unwrap_or_else(|| self.add(policy))
    }

    fn find(&self, policy: &Policy) -> Option<&PolicyCounters> {
        let known = self.probe(policy).map_while(|slot| slot.get());
        known.map(|counters| &**counters).find(|counters| counters.belongs_to(policy))
    }

    /// Returns the slots that can contain the counters of a policy, in the order of the search.
    fn probe(&self, policy: &Policy) -> impl Iterator<Item = &OnceLock<Box<PolicyCounters>>> {
        #[expect(clippy::cast_possible_truncation, reason = "any bits of a hash will do")]
        let start = policy.state_hash() as usize % SLOTS;
        let (before, after) = self.slots.split_at(start);
        after.iter().chain(before)
    }

    #[cold]
    fn add(&self, policy: &Policy) -> &PolicyCounters {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        // Another thread has possibly inserted the policy after the look-up of this thread, so this
        // thread repeats the look-up under the lock.
        if let Some(counters) = self.find(policy) {
            return counters;
        }
        let free = self.probe(policy).find(|slot| slot.get().is_none());
        match free.filter(|_| *used < MAX_POLICIES) {
            Some(slot) => {
                *used += 1;
                slot.get_or_init(|| Box::new(PolicyCounters::new(policy.name(), policy)))
            }
            None => self.overflow[usize::from(policy.is_shadow())]
                .get_or_init(|| PolicyCounters::new(OTHER_POLICIES, policy)),
        }
    }
}

impl PolicyCounters {
    fn new(name: &str, policy: &Policy) -> Self {
        let shadow = if policy.is_shadow() { "true" } else { "false" };
        let decisions = |outcome: &'static str| {
            let policy = name.to_owned();
            counter!(DECISIONS.name, "policy" => policy, "outcome" => outcome, "shadow" => shadow)
        };
        Self {
            name: policy.name().into(),
            state_hash: policy.state_hash(),
            is_shadow: policy.is_shadow(),
            allowed: decisions("allowed"),
            denied: decisions("denied"),
            blocked: decisions("blocked"),
            other_denied: decisions("other-denied"),
            near_limit: counter!(NEAR_LIMIT.name, "policy" => name.to_owned(), "shadow" => shadow),
            skipped: OnceLock::new(),
            holds: OnceLock::new(),
        }
    }

    /// Returns the counters for holds. `policy` is a policy that uses these counters.
    pub(super) fn holds(&self, policy: &Policy) -> &HoldCounters {
        self.holds.get_or_init(|| {
            let shadow = if policy.is_shadow() { "true" } else { "false" };
            let name = if self.belongs_to(policy) { policy.name() } else { OTHER_POLICIES };
            let register = |metric: &'static str| {
                counter!(metric, "policy" => name.to_owned(), "shadow" => shadow)
            };
            HoldCounters { held: register(HELD.name), settled: register(SETTLED.name) }
        })
    }

    /// Returns the counter of charges of lists that do not pay. Only policies in lists have it.
    fn skipped(&self, policy: &Policy) -> &Counter {
        self.skipped.get_or_init(|| {
            let name = if self.belongs_to(policy) { policy.name() } else { OTHER_POLICIES };
            let policy = name.to_owned();
            counter!(DECISIONS.name, "policy" => policy, "outcome" => "skipped", "shadow" => "false")
        })
    }

    fn belongs_to(&self, policy: &Policy) -> bool {
        self.state_hash == policy.state_hash()
            && self.is_shadow == policy.is_shadow()
            && *self.name == *policy.name()
    }

    /// Counts a verdict of a call. `is_admitted` is `true` if the whole call was admitted. If not,
    /// a policy that allows its charge has charged nothing, so the verdict is counted as
    /// `other-denied`.
    pub(super) fn count(&self, policy: &Policy, verdict: &Verdict, is_admitted: bool) {
        match verdict.outcome() {
            Outcome::Allowed if !is_admitted => self.other_denied.increment(1),
            Outcome::Allowed => {
                self.allowed.increment(1);
                let is_near = match policy.warn_percent() {
                    Some(_) => verdict.warns(),
                    None => verdict.remaining().saturating_mul(5) < verdict.limit(),
                };
                if is_near {
                    self.near_limit.increment(1);
                }
            }
            Outcome::Denied | Outcome::TooLarge | Outcome::DenyListed => {
                self.denied.increment(1);
            }
            Outcome::Blocked => self.blocked.increment(1),
            Outcome::Skipped => self.skipped(policy).increment(1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(number: usize) -> Policy {
        format!("p{number}: fixed-window 5/1m").parse().unwrap()
    }

    #[test]
    fn a_policy_finds_its_own_counters_again() {
        let policies = PolicyTable::default();
        let all: Vec<Policy> = (0..MAX_POLICIES).map(policy).collect();
        for policy in &all {
            assert_eq!(*policies.counters(policy).name, *policy.name());
        }
        for policy in &all {
            assert!(policies.find(policy).is_some_and(|counters| counters.belongs_to(policy)));
        }
    }

    #[test]
    fn policies_beyond_the_bound_share_their_counters_and_use_no_slots() {
        let policies = PolicyTable::default();
        for number in 0..2 * MAX_POLICIES {
            policies.counters(&policy(number));
        }
        let used = policies.slots.iter().filter(|slot| slot.get().is_some()).count();
        assert_eq!(used, MAX_POLICIES);
        let (one, other) = (policy(MAX_POLICIES + 1), policy(MAX_POLICIES + 2));
        assert!(std::ptr::eq(policies.counters(&one), policies.counters(&other)));
        // A shadow does not share these counters, because it never refuses.
        assert!(!std::ptr::eq(policies.counters(&one), policies.counters(&other.shadow())));
    }

    #[test]
    fn a_shadow_and_an_enforced_policy_of_one_name_have_different_counters() {
        let policies = PolicyTable::default();
        let (enforced, shadow) = (policy(1), policy(1).shadow());
        assert!(!std::ptr::eq(policies.counters(&enforced), policies.counters(&shadow)));
        assert!(std::ptr::eq(policies.counters(&shadow), policies.counters(&policy(1).shadow())));
    }
}
