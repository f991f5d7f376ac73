//! Shards: limits that are split over several slots of a cluster.

use std::fmt;

use super::Policy;
use super::error::{Part, PolicyError};
use crate::hash::stable_hash;

/// The maximum number of shards of a policy.
pub const MAX_SHARDS: u32 = 256;

/// The number of shards of a policy, and the rule that chooses the shard for a request. See
/// [`Policy::sharded`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shards {
    count: u32,
    by: By,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum By {
    /// Any request can be routed to any shard.
    Any,
    /// Each subject has one shard. The limit applies to the tenant, and is split over the shards.
    Subject,
    /// Each subject has one shard. The limit applies to the subject, and is not split.
    Whole,
}

impl Shards {
    /// Splits the limit of each subject over `count` shards. A request can be routed to any shard.
    /// If this shard refuses the request, the request is routed to a second shard. This kind is for
    /// a subject with more requests than one node can decide.
    #[must_use]
    pub fn any(count: u32) -> Self {
        Self { count, by: By::Any }
    }

    /// Applies the limit to the tenant, for all subjects of the tenant together. The limit is split
    /// over `count` shards. Each subject is always routed to the same shard.
    #[must_use]
    pub fn by_subject(count: u32) -> Self {
        Self { count, by: By::Subject }
    }

    /// Keeps the limit of each subject whole, as without shards. The subjects of a tenant are
    /// distributed over `count` shards, and each subject is always routed to the same shard. This
    /// kind is for a tenant with more requests than one node can decide. The requests of each
    /// single subject must be few enough for one node.
    #[must_use]
    pub fn whole(count: u32) -> Self {
        Self { count, by: By::Whole }
    }

    /// Returns the number of shards.
    #[must_use]
    pub fn count(self) -> u32 {
        self.count
    }

    /// Returns `true` if a limit is split over several shards.
    #[must_use]
    pub fn split(self) -> bool {
        self.by != By::Whole && self.count > 1
    }
}

/// Prints the shards in the syntax of the policy grammar: `shards 8`, `shards 8 by-subject`,
/// `shards 8 whole`.
impl fmt::Display for Shards {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = match self.by {
            By::Any => "",
            By::Subject => " by-subject",
            By::Whole => " whole",
        };
        write!(f, "shards {}{how}", self.count)
    }
}

/// The index of a shard, and the number of shards. Each share of a policy with shards has such a
/// value: see [`Policy::shard`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shard {
    pub(super) index: u32,
    pub(super) count: u32,
}

impl Shard {
    /// Returns the index of the shard, from 0.
    #[must_use]
    pub fn index(self) -> u32 {
        self.index
    }

    /// Returns the number of shards, at most [`MAX_SHARDS`].
    #[must_use]
    pub fn count(self) -> u32 {
        self.count
    }
}

impl Policy {
    /// Splits the policy over several slots of a cluster, so that several nodes decide for one
    /// tenant.
    ///
    /// A store on one node (in memory or on one Redis) never splits the limit. On a cluster, the
    /// kind of the shards determines how the limit is split:
    ///
    /// | | [`any`](Shards::any) | [`by_subject`](Shards::by_subject) | [`whole`](Shards::whole) |
    /// |---|---|---|---|
    /// | the limit applies to | tenant and subject | **the tenant**, on every store | tenant and subject |
    /// | the limit is | split | split | whole in each shard |
    /// | a request is routed to | any shard, and a second one before it is refused | the shard of its subject | the shard of its subject |
    /// | refused too early | rarely | if a subject needs more than its shard has | never |
    /// | largest cost | the largest share | the share of the subject's shard | the limit |
    ///
    /// **Together, the shards never admit more than the limit.** The shares are whole numbers, and
    /// their sum is the limit: of a limit of 11, one shard gets 2 and nine shards get 1 each. The
    /// rate of a bucket is split into equal, exact shares.
    ///
    /// If the limit is too small for all shards, some shards are not used. For example, a limit of
    /// 3 over 10 shards uses 3 shards. The same is true for a bucket by intervals with 3 tokens per
    /// period. An anchored window, or a bucket by intervals, begins in each shard when that shard
    /// is first used.
    ///
    /// A policy with another number of shards has other states. If the number of shards is changed
    /// while requests run, the old setting and the new setting each admit at most the limit, until
    /// the old states have recovered. The same is true if a policy gets shards for the first time,
    /// or no longer has shards.
    ///
    /// A verdict on a split limit describes only the shards that were called:
    ///
    /// * `remaining` and `reset_after` describe the shard that was called last, so `remaining` is a
    ///   lower bound for the whole limit.
    /// * `retry_after` is the wait until one of the called shards admits the cost. A cost above the
    ///   largest share is never admitted, even if the cost is below the limit.
    /// * One shard can refuse although another shard would admit the request. A [deny
    ///   cache](crate::DenyCache) keeps such a refusal until its `retry_after` is over.
    ///
    /// ```
    /// use tidegate_core::{Policy, Shards};
    ///
    /// let all: Policy = "all: sliding-log 11/1m".parse()?;
    /// let all = all.sharded(Shards::any(10))?;
    /// let shares: Vec<u64> = all.shares().iter().map(Policy::limit).collect();
    /// assert_eq!(shares, [2, 1, 1, 1, 1, 1, 1, 1, 1, 1]);
    /// assert_eq!(all.to_string(), "all: sliding-log 11/1m shards 10");
    /// # Ok::<(), tidegate_core::PolicyError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error if the number of shards is 0 or above [`MAX_SHARDS`]. Also returns an error
    /// if the policy is a [fair pool](crate::FairPool), or if the limit is split and the policy
    /// [blocks](Self::block_for), because a refusal by a single shard would then block the subject.
    /// Also returns an error if a limit that is split is [pro-rated](crate::Quota::since), or if a
    /// share of the rate is outside of the bounds within which every decision is exact.
    pub fn sharded(self, shards: Shards) -> Result<Self, PolicyError> {
        self.split(shards).map_err(|error| error.about(Part::Shards))
    }

    /// Returns the shards of the policy, or `None` if the policy has no shards.
    #[must_use]
    pub fn shards(&self) -> Option<Shards> {
        self.0.split.as_deref().map(|split| split.shards)
    }

    /// Returns the policy's shares, one for each shard, the largest share first. Each share is a
    /// policy with its own states. Shards with a share of 0 are omitted. The slice is empty if the
    /// policy has no shards or only one shard.
    #[must_use]
    pub fn shares(&self) -> &[Self] {
        self.0.split.as_deref().map_or(&[], |split| &split.shares)
    }

    /// Returns the shard to which this policy belongs, if this policy is one of the
    /// [`shares`](Self::shares) of another policy.
    #[must_use]
    pub fn shard(&self) -> Option<Shard> {
        self.0.shard
    }

    pub(crate) fn can_use_any_shard(&self) -> bool {
        self.shards().is_some_and(|shards| shards.by == By::Any && shards.count > 1)
    }

    /// Returns `true` if the limit applies to a tenant, regardless of the subject: see
    /// [`Shards::by_subject`] and [`FairPool`](crate::FairPool).
    #[must_use]
    pub fn is_per_tenant(&self) -> bool {
        self.is_fair_pool()
            || self.0.split.as_deref().is_some_and(|split| split.shards.by == By::Subject)
    }

    /// Returns the index of the only share that requests of a subject can charge. The index is
    /// computed by a hash that is the same on every machine. Returns `None` if the requests can
    /// charge any share, or if the policy has no shards.
    pub(crate) fn share_of(&self, tenant: &[u8], subject: &[u8]) -> Option<usize> {
        let shares = u64::try_from(self.shares().len()).ok().filter(|&shares| shares > 0)?;
        let Shards { count, .. } = self.shards().filter(|shards| shards.by != By::Any)?;
        // The shard is computed from the number of shards, not from the number of shares. So
        // policies with the same number of shards use the same shard for a subject, except if one
        // of them has no share in this shard.
        let index = stable_hash([tenant, subject]) % u64::from(count);
        usize::try_from(index % shares).ok()
    }
}
