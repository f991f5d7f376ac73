//! The limits with one name.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, OnceLock};

use crate::hash::stable_hash;
use crate::policy::Policy;
use crate::time::Timestamp;

/// The limits with one name.
///
/// A process replaces a set by a changed copy of the set. So the overrides are divided into shards,
/// and a copy shares all shards that it does not change.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Limits {
    pub(super) policy: Option<Policy>,
    /// Either empty, or [`SHARDS`] shards.
    shards: Box<[Arc<Shard>]>,
    /// The number of overrides in memory.
    loaded: usize,
    /// The number of overrides that are not in memory.
    absent: usize,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Shard {
    /// Overrides by tenant, which is empty for a subject without a tenant.
    tenants: HashMap<Box<[u8]>, OfTenant>,
    /// The [hashes](Target::hash) of the overrides that are not in memory.
    absent: HashSet<u64>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct OfTenant {
    /// The override for all subjects.
    all: Option<Override>,
    subjects: HashMap<Box<[u8]>, Override>,
}

/// The number of shards. A set of a million overrides has 4,000 in each shard.
const SHARDS: u64 = 256;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Override {
    pub(super) policy: Policy,
    pub(super) ends_at: Option<Timestamp>,
}

impl Override {
    pub(super) fn is_active(&self, now: Timestamp) -> bool {
        self.ends_at.is_none_or(|end| now < end)
    }
}

/// The tenant, which is empty for a subject without a tenant, and the subject of an override. An
/// override without a subject applies to all subjects of the tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Target<'a> {
    pub(super) tenant: &'a [u8],
    pub(super) subject: Option<&'a [u8]>,
}

impl Target<'_> {
    /// Returns the index of the shard. All processes could use other shards, but equal sets must
    /// have equal shards.
    fn shard(self) -> usize {
        let hash = stable_hash([self.tenant, self.subject.unwrap_or_default()]);
        usize::try_from(hash % SHARDS).unwrap_or(0)
    }

    /// Returns a hash with a key of this process, so that no author of overrides can find two
    /// targets with the same hash.
    fn hash(self) -> u64 {
        static KEY: OnceLock<RandomState> = OnceLock::new();
        KEY.get_or_init(RandomState::new).hash_one((self.tenant, self.subject))
    }
}

impl Limits {
    pub(super) fn is_empty(&self) -> bool {
        self.policy.is_none() && self.shards.is_empty()
    }

    /// Returns the number of overrides.
    pub(super) fn count(&self) -> usize {
        self.loaded + self.absent
    }

    /// Returns `true` if an override is not in memory.
    pub(super) fn is_partial(&self) -> bool {
        self.absent > 0
    }

    fn shard(&self, target: Target<'_>) -> Option<&Shard> {
        // Most sets have no overrides, and then the hash is not needed.
        if self.shards.is_empty() { None } else { Some(self.shards.get(target.shard())?) }
    }

    /// Returns the override for exactly this target, if it is in memory.
    pub(super) fn get(&self, target: Target<'_>) -> Option<&Override> {
        self.shard(target)?.get(target)
    }

    /// Returns `true` if the set has an override for exactly this target that is not in memory.
    pub(super) fn is_absent(&self, target: Target<'_>) -> bool {
        self.is_partial()
            && self.shard(target).is_some_and(|shard| shard.absent.contains(&target.hash()))
    }

    /// Adds or replaces an override. If more than `max` overrides would be in memory, the new one
    /// is not.
    pub(super) fn set(&mut self, target: Target<'_>, limit: Override, max: usize) {
        if self.shards.is_empty() {
            let empty = Arc::default();
            self.shards = (0..SHARDS).map(|_| Arc::clone(&empty)).collect();
        }
        let is_loaded = self.get(target).is_some();
        let Some(shard) = self.shards.get_mut(target.shard()).map(Arc::make_mut) else { return };
        if is_loaded {
            shard.insert(target, limit);
        } else if self.loaded < max {
            self.absent -= usize::from(shard.absent.remove(&target.hash()));
            shard.insert(target, limit);
            self.loaded += 1;
        } else {
            self.absent += usize::from(shard.absent.insert(target.hash()));
        }
    }

    /// Loads an override that was not in memory. Does nothing if the override already is in memory,
    /// or is not in the set.
    pub(super) fn load(&mut self, target: Target<'_>, limit: Override) {
        if !self.is_absent(target) {
            return;
        }
        let Some(shard) = self.shards.get_mut(target.shard()).map(Arc::make_mut) else { return };
        self.absent -= usize::from(shard.absent.remove(&target.hash()));
        self.loaded += 1;
        shard.insert(target, limit);
    }

    /// Removes overrides from memory, shard by shard from a random one, until at most `max` are in
    /// memory.
    pub(super) fn unload(&mut self, max: usize) {
        if self.loaded <= max {
            return;
        }
        let start = usize::try_from(RandomState::new().hash_one(()) % SHARDS).unwrap_or(0);
        self.shards.rotate_left(start);
        for shard in &mut self.shards {
            if self.loaded <= max {
                break;
            }
            let hashes: Vec<u64> = shard.overrides().map(|(target, _)| target.hash()).collect();
            if !hashes.is_empty() {
                self.loaded -= hashes.len();
                self.absent += hashes.len();
                let shard = Arc::make_mut(shard);
                shard.absent.extend(hashes);
                shard.tenants.clear();
            }
        }
        self.shards.rotate_right(start);
    }

    /// Removes the override for exactly this target. Returns `false` if there is none.
    pub(super) fn remove(&mut self, target: Target<'_>) -> bool {
        let is_loaded = self.get(target).is_some();
        if !is_loaded && !self.is_absent(target) {
            return false;
        }
        let Some(shard) = self.shards.get_mut(target.shard()).map(Arc::make_mut) else {
            return false;
        };
        if is_loaded {
            shard.remove(target);
            self.loaded -= 1;
        } else {
            shard.absent.remove(&target.hash());
            self.absent -= 1;
        }
        self.drop_empty_shards();
        true
    }

    /// Removes the overrides in memory that have ended at `now`.
    pub(super) fn remove_ended(&mut self, now: Timestamp) {
        for shard in &mut self.shards {
            let ended = shard.overrides().filter(|(_, limit)| !limit.is_active(now)).count();
            if ended > 0 {
                self.loaded -= ended;
                Arc::make_mut(shard).retain(|limit| limit.is_active(now));
            }
        }
        self.drop_empty_shards();
    }

    fn drop_empty_shards(&mut self) {
        if self.count() == 0 {
            self.shards = Box::default();
        }
    }

    /// Returns the overrides in memory.
    pub(super) fn overrides(&self) -> impl Iterator<Item = (Target<'_>, &Override)> {
        self.shards.iter().flat_map(|shard| shard.overrides())
    }

    /// Returns the policies in memory.
    pub(super) fn policies(&self) -> impl Iterator<Item = &Policy> {
        self.policy.iter().chain(self.overrides().map(|(_, limit)| &limit.policy))
    }
}

impl Shard {
    fn get(&self, Target { tenant, subject }: Target<'_>) -> Option<&Override> {
        let found = self.tenants.get(tenant)?;
        match subject {
            None => found.all.as_ref(),
            Some(subject) => found.subjects.get(subject),
        }
    }

    fn insert(&mut self, Target { tenant, subject }: Target<'_>, limit: Override) {
        let found = self.tenants.entry(tenant.into()).or_default();
        match subject {
            None => found.all = Some(limit),
            Some(subject) => drop(found.subjects.insert(subject.into(), limit)),
        }
    }

    fn remove(&mut self, Target { tenant, subject }: Target<'_>) {
        let Some(found) = self.tenants.get_mut(tenant) else { return };
        match subject {
            None => found.all = None,
            Some(subject) => drop(found.subjects.remove(subject)),
        }
        if found.is_empty() {
            self.tenants.remove(tenant);
        }
    }

    fn retain(&mut self, stays: impl Fn(&Override) -> bool) {
        self.tenants.retain(|_, found| {
            found.all.take_if(|limit| !stays(limit));
            found.subjects.retain(|_, limit| stays(limit));
            !found.is_empty()
        });
    }

    fn overrides(&self) -> impl Iterator<Item = (Target<'_>, &Override)> {
        self.tenants.iter().flat_map(|(tenant, found)| {
            let all = found.all.iter().map(|limit| (Target { tenant, subject: None }, limit));
            let subjects = found
                .subjects
                .iter()
                .map(move |(subject, limit)| (Target { tenant, subject: Some(subject) }, limit));
            all.chain(subjects)
        })
    }
}

impl OfTenant {
    fn is_empty(&self) -> bool {
        self.all.is_none() && self.subjects.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overrides_of_one_shard_that_are_not_in_memory_are_distinguished() {
        let mut limits = Limits::default();
        let limit = Override { policy: "p: gcra 1/s".parse().unwrap(), ends_at: None };
        let tenants: Vec<String> = (0..2_000).map(|number| format!("tenant {number}")).collect();
        let targets = || {
            let subjects = [None, Some(&b"alice"[..]), Some(b"bob")];
            tenants.iter().flat_map(move |tenant| {
                subjects.map(|subject| Target { tenant: tenant.as_bytes(), subject })
            })
        };
        for target in targets() {
            limits.set(target, limit.clone(), 1);
        }
        assert_eq!((limits.count(), limits.overrides().count()), (6_000, 1));
        for (removed, target) in targets().enumerate() {
            assert_eq!(limits.count(), 6_000 - removed);
            assert!(limits.remove(target) && !limits.remove(target));
        }
        assert!(limits.is_empty());
    }
}
