//! Policies and overrides that replace the policies of a program while it runs.

mod current;
mod parse;
mod print;

use std::collections::HashMap;
use std::sync::Arc;

pub use current::CurrentLimits;
pub(crate) use current::Versions;
pub use parse::LimitSetError;

use crate::call::Charge;
use crate::error::Error;
use crate::hash::stable_hash;
use crate::policy::{Policy, PolicyError};
use crate::store::Store;
use crate::time::Timestamp;

/// Limits that replace the policies of a program: policies, and overrides for subjects and tenants.
///
/// A policy of the set replaces the policy of the program that has the same name. An override
/// replaces it for one subject or for one tenant, forever or until a time. The most specific limit
/// applies: the override for the subject, then the override for its tenant, then the policy of the
/// set, then the policy of the program.
///
/// ```
/// use tidegate_core::LimitSet;
///
/// let set: LimitSet = "\
///     plan: fixed-window 100/1m
///     plan: fixed-window 500/1m for subject alice
///     plan: fixed-window 900/1m until 2026-12-04T18:00:00Z for tenant acme # a promise
///     plan: fixed-window 50/1m for tenant acme subject mallory
/// "
/// .parse()?;
/// assert_eq!((set.policies().count(), set.overrides()), (1, 3));
/// # Ok::<(), tidegate_core::LimitSetError>(())
/// ```
///
/// # The format
///
/// A line has a policy with a name, then optionally `until` and a time (RFC 3339), and then
/// optionally `for` and the subject or the tenant. An override for a `subject` applies to charges
/// without a tenant. An override for a `tenant` applies to all its subjects, and an override for a
/// `tenant` and a `subject` to this subject of the tenant.
///
/// A subject extends to the end of the line, and a tenant to the next space. A subject or a tenant
/// in double quotes can have any bytes. `"a\x00b"` has the escapes `\\`, `\"`, `\'`, `\n`, `\r`,
/// `\t`, and `\x` with two hexadecimal digits. A `#` at the start of a line, or after a space,
/// begins a comment.
///
/// # What a change keeps
///
/// The table of [`Policy`] shows which changes keep the usage so far. A new limit or rate keeps it.
/// A set never replaces [slots](crate::Concurrent) or a [fair pool](crate::FairPool) by another
/// algorithm, or another algorithm by one of these: such a limit of a set has no effect.
///
/// [`CurrentLimits`] holds the set that is in force, and [`StoreExt::adjusted`] applies it.
///
/// [`StoreExt::adjusted`]: crate::StoreExt::adjusted
#[derive(Clone, Default)]
pub struct LimitSet {
    by_name: HashMap<Box<str>, Limits>,
    known: KnownPolicies,
}

/// The limits with one name.
///
/// A process replaces a set by a changed copy of the set. So the overrides are divided into shards,
/// and a copy shares all shards that it does not change.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Limits {
    policy: Option<Policy>,
    /// The overrides for all subjects of a tenant, by tenant.
    tenants: Arc<HashMap<Box<[u8]>, Override>>,
    /// The overrides for a subject. Either empty, or [`SHARDS`] shards.
    shards: Box<[Arc<Shard>]>,
}

/// Overrides by tenant and subject. The tenant is empty for a subject without a tenant.
type Shard = HashMap<Box<[u8]>, HashMap<Box<[u8]>, Override>>;

/// The number of shards. A set of a million overrides has 4,000 in each shard.
const SHARDS: u64 = 256;

#[derive(Debug, Clone, PartialEq, Eq)]
struct Override {
    policy: Policy,
    ends_at: Option<Timestamp>,
}

/// The subjects for which an override applies: see [`LimitSet::set_override`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum OverrideFor<'a> {
    /// A subject without a tenant.
    Subject(&'a [u8]),
    /// All subjects of a tenant.
    Tenant(&'a [u8]),
    /// One subject of a tenant.
    SubjectOfTenant {
        /// The tenant.
        tenant: &'a [u8],
        /// The subject.
        subject: &'a [u8],
    },
}

impl<'a> OverrideFor<'a> {
    /// Returns the tenant, which is empty for a subject without a tenant, and the subject.
    fn parts(self) -> (&'a [u8], Option<&'a [u8]>) {
        match self {
            Self::Subject(subject) => (b"", Some(subject)),
            Self::Tenant(tenant) => (tenant, None),
            Self::SubjectOfTenant { tenant, subject } => (tenant, Some(subject)),
        }
    }
}

impl LimitSet {
    /// Creates a set without limits, which changes nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets a policy, which replaces the policy of the program with the same name.
    ///
    /// # Errors
    ///
    /// Returns an error if the policy has no name.
    pub fn set_policy(&mut self, policy: Policy) -> Result<(), LimitSetError> {
        let limits = self.limits_of(&policy)?;
        limits.policy = Some(policy);
        Ok(())
    }

    /// Sets an override: `policy` replaces the policy with the same name for the subjects of
    /// `target`. If `ends_at` is not `None`, the override has no effect from this time on.
    ///
    /// # Errors
    ///
    /// Returns an error if the policy has no name, or if the tenant is empty.
    pub fn set_override(
        &mut self,
        policy: Policy,
        target: OverrideFor<'_>,
        ends_at: Option<Timestamp>,
    ) -> Result<(), LimitSetError> {
        let (tenant, subject) = target.parts();
        if tenant.is_empty() && !matches!(target, OverrideFor::Subject(_)) {
            return Err(LimitSetError::new("the tenant of an override is empty".to_owned()));
        }
        let limits = self.limits_of(&policy)?;
        let added = Override { policy, ends_at };
        match subject {
            None => Arc::make_mut(&mut limits.tenants).insert(tenant.into(), added),
            Some(subject) => {
                if limits.shards.is_empty() {
                    limits.shards = (0..SHARDS).map(|_| Arc::default()).collect();
                }
                let shard = limits.shards.get_mut(shard_of(tenant, subject)).map(Arc::make_mut);
                let subjects = shard.map(|shard| shard.entry(tenant.into()).or_default());
                subjects.and_then(|subjects| subjects.insert(subject.into(), added))
            }
        };
        Ok(())
    }

    /// Removes the policy with this name, and keeps its overrides. Returns `false` if the set has
    /// no such policy.
    pub fn remove_policy(&mut self, name: &str) -> bool {
        let removed = self.by_name.get_mut(name).and_then(|limits| limits.policy.take());
        self.by_name.retain(|_, limits| !limits.is_empty());
        removed.is_some()
    }

    /// Removes the override of the policy with this name for exactly this target. Returns `false`
    /// if the set has no such override.
    pub fn remove_override(&mut self, name: &str, target: OverrideFor<'_>) -> bool {
        let (tenant, subject) = target.parts();
        let Some(limits) = self.by_name.get_mut(name) else { return false };
        let removed = match subject {
            None => Arc::make_mut(&mut limits.tenants).remove(tenant),
            Some(subject) => {
                let shard = limits.shards.get_mut(shard_of(tenant, subject));
                let shard = shard.filter(|shard| shard.contains_key(tenant)).map(Arc::make_mut);
                shard.and_then(|shard| {
                    let subjects = shard.get_mut(tenant)?;
                    let removed = subjects.remove(subject);
                    if subjects.is_empty() {
                        shard.remove(tenant);
                    }
                    removed
                })
            }
        };
        limits.drop_empty_shards();
        self.by_name.retain(|_, limits| !limits.is_empty());
        removed.is_some()
    }

    fn limits_of(&mut self, policy: &Policy) -> Result<&mut Limits, LimitSetError> {
        if !policy.is_named() {
            let message = format!(
                "the policy `{policy}` has no name; a set needs the name of the policy to replace, \
                 as in `plan: {policy}`"
            );
            return Err(LimitSetError::new(message));
        }
        Ok(self.by_name.entry(policy.name().into()).or_default())
    }

    /// Returns `true` if the set has no limits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Returns the policies of the set, without overrides, in no order.
    pub fn policies(&self) -> impl Iterator<Item = &Policy> {
        self.by_name.values().filter_map(|limits| limits.policy.as_ref())
    }

    /// Returns the number of overrides, including those that have ended.
    #[must_use]
    pub fn overrides(&self) -> usize {
        let subjects = |limits: &Limits| -> usize { limits.subjects().map(HashMap::len).sum() };
        self.by_name.values().map(|limits| limits.tenants.len() + subjects(limits)).sum()
    }

    /// Removes the overrides that have ended at `now`.
    pub fn remove_ended(&mut self, now: Timestamp) {
        for limits in self.by_name.values_mut() {
            if limits.tenants.values().any(|limit| !limit.is_active(now)) {
                Arc::make_mut(&mut limits.tenants).retain(|_, limit| limit.is_active(now));
            }
            for shard in &mut limits.shards {
                let mut all = shard.values().flat_map(HashMap::values);
                if all.any(|limit| !limit.is_active(now)) {
                    Arc::make_mut(shard).retain(|_, subjects| {
                        subjects.retain(|_, limit| limit.is_active(now));
                        !subjects.is_empty()
                    });
                }
            }
            limits.drop_empty_shards();
        }
        self.by_name.retain(|_, limits| !limits.is_empty());
    }

    /// Checks that `store` can keep the states of all policies of the set. A program should check a
    /// set before the set is in force.
    ///
    /// # Errors
    ///
    /// Returns the first error of [`Store::supports`].
    pub fn check(&self, store: &(impl Store + ?Sized)) -> Result<(), Error> {
        self.by_name.values().flat_map(Limits::all).try_for_each(|policy| store.supports(policy))
    }

    /// Returns the policy that replaces the policy with this name at `now`, for a subject of a
    /// tenant. The tenant is empty for a subject without a tenant. Returns `None` if the set has no
    /// limit for them.
    #[must_use]
    pub fn find(
        &self,
        name: &str,
        tenant: &[u8],
        subject: &[u8],
        now: Timestamp,
    ) -> Option<&Policy> {
        self.find_lazily(name, tenant, subject, || Some(now))
    }

    /// Like [`find`](Self::find), but reads the time only if an override has an end. `None` as the
    /// time means that overrides do not end.
    fn find_lazily(
        &self,
        name: &str,
        tenant: &[u8],
        subject: &[u8],
        now: impl FnOnce() -> Option<Timestamp>,
    ) -> Option<&Policy> {
        let found = self.by_name.get(name)?;
        let (exact, all) = (found.exact(tenant, subject), found.tenants.get(tenant));
        let overrides = || [exact, all].into_iter().flatten();
        let now = if overrides().any(|limit| limit.ends_at.is_some()) { now() } else { None };
        let active = overrides().find(|limit| now.is_none_or(|now| limit.is_active(now)));
        active.map(|limit| &limit.policy).or(found.policy.as_ref())
    }

    /// Returns the policy that replaces the policy of a charge: see [`Self::find_lazily`].
    pub(crate) fn find_for(
        &self,
        charge: &Charge<'_>,
        now: impl FnOnce() -> Option<Timestamp>,
    ) -> Option<&Policy> {
        let own = charge.policy;
        if self.by_name.is_empty() || !own.is_named() || own.shard().is_some() {
            return None;
        }
        let subject = if own.is_fair_pool() { charge.subject } else { charge.state_subject() };
        let found = self.find_lazily(own.name(), charge.tenant, subject, now)?;
        let is_same_kind = found.is_concurrent() == own.is_concurrent()
            && found.is_fair_pool() == own.is_fair_pool();
        (is_same_kind && found != own).then_some(found)
    }
}

impl Limits {
    fn is_empty(&self) -> bool {
        self.policy.is_none() && self.tenants.is_empty() && self.shards.is_empty()
    }

    /// Returns the override for exactly this subject.
    fn exact(&self, tenant: &[u8], subject: &[u8]) -> Option<&Override> {
        if self.shards.is_empty() {
            return None;
        }
        self.shards.get(shard_of(tenant, subject))?.get(tenant)?.get(subject)
    }

    fn drop_empty_shards(&mut self) {
        if self.shards.iter().all(|shard| shard.is_empty()) {
            self.shards = Box::default();
        }
    }

    fn subjects(&self) -> impl Iterator<Item = &HashMap<Box<[u8]>, Override>> {
        self.shards.iter().flat_map(|shard| shard.values())
    }

    fn all(&self) -> impl Iterator<Item = &Policy> {
        let overrides = self.tenants.values().chain(self.subjects().flat_map(HashMap::values));
        self.policy.iter().chain(overrides.map(|limit| &limit.policy))
    }
}

/// Returns the index of the shard. All processes could use other shards, but equal sets must have
/// equal shards.
fn shard_of(tenant: &[u8], subject: &[u8]) -> usize {
    usize::try_from(stable_hash([tenant, subject]) % SHARDS).unwrap_or(0)
}

/// Policies by their texts, so that the overrides with one text share one policy. It is only a
/// cache, so all values are equal.
#[derive(Clone, Default)]
struct KnownPolicies(Arc<HashMap<Box<str>, Policy>>);

/// The maximum number of known policies. If there are more, the cache starts again.
const MAX_KNOWN: usize = 10_000;

impl KnownPolicies {
    fn parse(&mut self, text: &str) -> Result<Policy, PolicyError> {
        if let Some(policy) = self.0.get(text) {
            return Ok(policy.clone());
        }
        let policy: Policy = text.parse()?;
        let known = Arc::make_mut(&mut self.0);
        if known.len() >= MAX_KNOWN {
            known.clear();
        }
        known.insert(text.into(), policy.clone());
        Ok(policy)
    }
}

impl PartialEq for LimitSet {
    fn eq(&self, other: &Self) -> bool {
        self.by_name == other.by_name
    }
}

impl Eq for LimitSet {}

impl Override {
    fn is_active(&self, now: Timestamp) -> bool {
        self.ends_at.is_none_or(|end| now < end)
    }
}
