//! The counters of each policy: found without a lock, and bounded.

use std::sync::{Mutex, OnceLock, PoisonError};

use metrics::{Counter, counter};

use super::names::{DECISIONS, MOST_POLICIES, NEAR_LIMIT, OTHER_POLICIES};
use crate::{Outcome, Policy, Verdict};

/// Twice as many as are ever taken, so that what is sought lies near its place.
const SLOTS: usize = 2 * MOST_POLICIES;

/// A table that only grows: slots by the policy's hash, the next free one if it is taken.
#[derive(Debug)]
pub(super) struct Policies {
    slots: Box<[OnceLock<Box<OfPolicy>>]>,
    /// How many slots are taken. Held to take one; to find one no lock is needed.
    taken: Mutex<usize>,
    /// For all that come too late, in force and in shadow.
    others: [OnceLock<OfPolicy>; 2],
}

/// The counters of one policy.
#[derive(Debug)]
pub(super) struct OfPolicy {
    name: Box<str>,
    state_hash: u64,
    is_shadow: bool,
    allowed: Counter,
    denied: Counter,
    blocked: Counter,
    near_limit: Counter,
}

impl Default for Policies {
    fn default() -> Self {
        let slots = (0..SLOTS).map(|_| OnceLock::new()).collect();
        Self { slots, taken: Mutex::new(0), others: [OnceLock::new(), OnceLock::new()] }
    }
}

impl Policies {
    /// The counters of `policy`.
    pub(super) fn of(&self, policy: &Policy) -> &OfPolicy {
        self.find(policy).unwrap_or_else(|| self.add(policy))
    }

    fn find(&self, policy: &Policy) -> Option<&OfPolicy> {
        let known = self.places(policy).map_while(|slot| slot.get());
        known.map(|counters| &**counters).find(|counters| counters.is_of(policy))
    }

    /// Where to look for a policy: from its place on, once around.
    fn places(&self, policy: &Policy) -> impl Iterator<Item = &OnceLock<Box<OfPolicy>>> {
        #[expect(clippy::cast_possible_truncation, reason = "any bits of a hash will do")]
        let start = policy.state_hash() as usize % SLOTS;
        let (before, after) = self.slots.split_at(start);
        after.iter().chain(before)
    }

    #[cold]
    fn add(&self, policy: &Policy) -> &OfPolicy {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        // Somebody else may have been faster.
        if let Some(counters) = self.find(policy) {
            return counters;
        }
        let free = self.places(policy).find(|slot| slot.get().is_none());
        match free.filter(|_| *taken < MOST_POLICIES) {
            Some(slot) => {
                *taken += 1;
                slot.get_or_init(|| Box::new(OfPolicy::new(policy.name(), policy)))
            }
            None => self.others[usize::from(policy.is_shadow())]
                .get_or_init(|| OfPolicy::new(OTHER_POLICIES, policy)),
        }
    }
}

impl OfPolicy {
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
            near_limit: counter!(NEAR_LIMIT.name, "policy" => name.to_owned(), "shadow" => shadow),
        }
    }

    fn is_of(&self, policy: &Policy) -> bool {
        self.state_hash == policy.state_hash()
            && self.is_shadow == policy.is_shadow()
            && *self.name == *policy.name()
    }

    pub(super) fn count(&self, verdict: &Verdict) {
        match verdict.outcome() {
            Outcome::Allowed => {
                self.allowed.increment(1);
                if verdict.remaining().saturating_mul(5) < verdict.limit() {
                    self.near_limit.increment(1);
                }
            }
            Outcome::Denied => self.denied.increment(1),
            Outcome::Blocked => self.blocked.increment(1),
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
    fn every_policy_has_counters_of_its_own_and_finds_them_again() {
        let policies = Policies::default();
        let all: Vec<Policy> = (0..MOST_POLICIES).map(policy).collect();
        for policy in &all {
            assert_eq!(*policies.of(policy).name, *policy.name());
        }
        for policy in &all {
            assert!(policies.find(policy).is_some_and(|counters| counters.is_of(policy)));
        }
    }

    #[test]
    fn policies_beyond_the_bound_share_their_counters_and_take_no_room() {
        let policies = Policies::default();
        for number in 0..2 * MOST_POLICIES {
            policies.of(&policy(number));
        }
        let taken = policies.slots.iter().filter(|slot| slot.get().is_some()).count();
        assert_eq!(taken, MOST_POLICIES);
        let (one, other) = (policy(MOST_POLICIES + 1), policy(MOST_POLICIES + 2));
        assert!(std::ptr::eq(policies.of(&one), policies.of(&other)));
        // What is in shadow stays apart, as it refuses nobody.
        assert!(!std::ptr::eq(policies.of(&one), policies.of(&other.shadow())));
    }

    #[test]
    fn a_policy_in_shadow_is_told_from_one_of_its_name_in_force() {
        let policies = Policies::default();
        let (in_force, in_shadow) = (policy(1), policy(1).shadow());
        assert!(!std::ptr::eq(policies.of(&in_force), policies.of(&in_shadow)));
        assert!(std::ptr::eq(policies.of(&in_shadow), policies.of(&policy(1).shadow())));
    }
}
