//! Policies and overrides that replace the policies of a program while it runs.

mod current;
mod limits;
mod parse;
mod print;

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::Arc;

pub(crate) use current::Versions;
pub use current::{CurrentLimits, OverrideSource};
use limits::{Limits, Override, Target};
pub use parse::LimitSetError;

use crate::call::Charge;
use crate::error::Error;
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
/// begins a comment, also in quotes, where `\x23` is a `#`.
///
/// # What a change keeps
///
/// The table of [`Policy`] shows which changes keep the usage so far. A new limit or rate keeps it.
/// A set never replaces [slots](crate::Concurrent) or a [fair pool](crate::FairPool) by another
/// algorithm, or another algorithm by one of these, and an [alternative](Charge::in_list) by a
/// policy that [cannot be an alternative](Policy::can_be_alternative): such a limit of a set has no
/// effect.
///
/// [`CurrentLimits`] holds the set that is in force, and [`StoreExt::adjusted`] applies it.
///
/// # A set that is partly in memory
///
/// A set with a [maximum](Self::with_max_loaded) has only a part of its overrides in memory, and a
/// hash of each other override. [`CurrentLimits`] loads an override when a call needs it. Methods
/// that return overrides, such as [`find`](Self::find) and [`lines`](Self::lines), do not return
/// those that are not in memory.
///
/// [`StoreExt::adjusted`]: crate::StoreExt::adjusted
#[derive(Clone, Default)]
pub struct LimitSet {
    by_name: HashMap<Box<str>, Limits>,
    known: KnownPolicies,
    /// The maximum number of overrides in memory of each policy. `None` means no maximum.
    max_loaded: Option<NonZeroUsize>,
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
    fn target(self) -> Target<'a> {
        let (tenant, subject): (&[u8], _) = match self {
            Self::Subject(subject) => (b"", Some(subject)),
            Self::Tenant(tenant) => (tenant, None),
            Self::SubjectOfTenant { tenant, subject } => (tenant, Some(subject)),
        };
        Target { tenant, subject }
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
        if matches!(
            target,
            OverrideFor::Tenant(b"") | OverrideFor::SubjectOfTenant { tenant: b"", .. }
        ) {
            return Err(LimitSetError::new("the tenant of an override is empty".to_owned()));
        }
        let max = self.max_loaded();
        self.limits_of(&policy)?.set(target.target(), Override { policy, ends_at }, max);
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
        let Some(limits) = self.by_name.get_mut(name) else { return false };
        let is_removed = limits.remove(target.target());
        self.by_name.retain(|_, limits| !limits.is_empty());
        is_removed
    }

    /// Sets the maximum number of overrides of each policy that the set has in memory: see [a set
    /// that is partly in memory](Self#a-set-that-is-partly-in-memory). A further override is added
    /// to the set, but not in memory. Only the overrides of one call or batch can exceed the
    /// maximum. Call this method before any override is set.
    #[must_use]
    pub fn with_max_loaded(self, max: NonZeroUsize) -> Self {
        Self { max_loaded: Some(max), ..self }
    }

    /// Removes overrides from memory, so that `count` can be loaded without exceeding the maximum.
    fn make_room(&mut self, count: usize) {
        let max = self.max_loaded().saturating_sub(count);
        self.by_name.values_mut().for_each(|limits| limits.unload(max));
    }

    fn max_loaded(&self) -> usize {
        self.max_loaded.map_or(usize::MAX, NonZeroUsize::get)
    }

    /// Returns the keys of the overrides for a policy, a tenant and a subject that are not in
    /// memory.
    fn absent(&self, look_up: LookUp<'_>) -> impl Iterator<Item = String> {
        let (name, tenant, subject) = look_up;
        let limits = self.by_name.get(name);
        let is_absent = move |target: &_| limits.is_some_and(|limits| limits.is_absent(*target));
        let absent = targets(tenant, subject).into_iter().filter(is_absent);
        absent.map(move |target| print::key(name, Some(target)))
    }

    /// Returns `true` if an override is not in memory.
    fn is_partial(&self) -> bool {
        self.by_name.values().any(Limits::is_partial)
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
        self.by_name.values().map(Limits::count).sum()
    }

    /// Removes the overrides that have ended at `now`.
    pub fn remove_ended(&mut self, now: Timestamp) {
        self.by_name.values_mut().for_each(|limits| limits.remove_ended(now));
        self.by_name.retain(|_, limits| !limits.is_empty());
    }

    /// Checks that `store` can keep the states of all policies of the set. A program should check a
    /// set before the set is in force.
    ///
    /// # Errors
    ///
    /// Returns the first error of [`Store::supports`].
    pub fn check(&self, store: &(impl Store + ?Sized)) -> Result<(), Error> {
        self.by_name
            .values()
            .flat_map(Limits::policies)
            .try_for_each(|policy| store.supports(policy))
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
        let found_for = targets(tenant, subject).map(|target| found.get(target));
        let overrides = || found_for.into_iter().flatten();
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
        if self.by_name.is_empty() {
            return None;
        }
        let (own, (name, tenant, subject)) = (charge.policy, look_up(charge)?);
        let found = self.find_lazily(name, tenant, subject, now)?;
        let is_same_kind = found.is_concurrent() == own.is_concurrent()
            && found.is_fair_pool() == own.is_fair_pool();
        let is_possible = charge.list == 0 || found.can_be_alternative();
        (is_same_kind && is_possible && found != own).then_some(found)
    }
}

/// The name of a policy, a tenant and a subject, whose limit a call needs. The tenant is empty for
/// a subject without a tenant.
pub(crate) type LookUp<'a> = (&'a str, &'a [u8], &'a [u8]);

/// Returns what a set is searched for to find the limit of a charge. Returns `None` if no set
/// replaces the policy of the charge.
pub(crate) fn look_up<'a>(charge: &Charge<'a>) -> Option<LookUp<'a>> {
    let policy = charge.policy;
    if !policy.is_named() || policy.shard().is_some() {
        return None;
    }
    let subject = if policy.is_fair_pool() { charge.subject } else { charge.state_subject() };
    Some((policy.name(), charge.tenant, subject))
}

/// Returns the targets of the overrides for a subject, the most specific first.
fn targets<'a>(tenant: &'a [u8], subject: &'a [u8]) -> [Target<'a>; 2] {
    [Some(subject), None].map(|subject| Target { tenant, subject })
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

    /// Like [`parse`](Self::parse), but adds nothing, because this would copy all policies that
    /// another set shares.
    fn find_or_parse(&self, text: &str) -> Result<Policy, PolicyError> {
        self.0.get(text).cloned().map_or_else(|| text.parse(), Ok)
    }
}

impl PartialEq for LimitSet {
    fn eq(&self, other: &Self) -> bool {
        self.by_name == other.by_name
    }
}

impl Eq for LimitSet {}
