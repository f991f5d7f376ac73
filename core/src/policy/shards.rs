//! Limits that are split over several slots of a cluster.

use std::fmt;

use super::Policy;
use super::error::{Part, PolicyError};
use crate::hash::stable_hash;

/// The maximum number of shards of a policy.
pub const MAX_SHARDS: u32 = 256;

/// The way in which a policy is split over slots of a cluster for one tenant: see
/// [`Policy::sharded`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shards {
    count: u32,
    by: By,
}

/// The routing of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum By {
    /// Any request may be routed to any shard.
    Any,
    /// Each subject has its own shard. The limit applies to the tenant, and is split.
    Subject,
    /// Each subject has its own shard. The limit applies to the subject, and is whole.
    Whole,
}

impl Shards {
    /// Splits the limit of each subject over `count` shards. A request is routed to any shard, and
    /// to a second shard before it is refused. This is for a subject with more requests than one
    /// node can decide.
    #[must_use]
    pub fn any(count: u32) -> Self {
        Self { count, by: By::Any }
    }

    /// Applies the limit to the tenant, for all its subjects together, and splits it over `count`
    /// shards. Each subject is always routed to the same shard.
    #[must_use]
    pub fn by_subject(count: u32) -> Self {
        Self { count, by: By::Subject }
    }

    /// Keeps the limit of each subject whole, as without shards. The subjects of a tenant are
    /// distributed over `count` shards, and each subject is always routed to the same shard. This
    /// is for a tenant with more requests than one node can decide, if no single subject has that
    /// many.
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

/// The shard to which a share belongs: see [`Policy::shard`].
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
    /// A store on one node (in memory or on one Redis) keeps the limit whole. On a cluster, it
    /// depends on the kind of shards:
    ///
    /// | | [`any`](Shards::any) | [`by_subject`](Shards::by_subject) | [`whole`](Shards::whole) |
    /// |---|---|---|---|
    /// | the limit applies to | tenant and subject | **the tenant**, on every store | tenant and subject |
    /// | the limit is | split | split | whole in each shard |
    /// | a request is routed to | any shard, and a second one before it is refused | the shard of its subject | the shard of its subject |
    /// | refused too early | rarely | if a subject needs more than its shard has | never |
    /// | largest cost | the largest share | the share of the subject's shard | the limit |
    ///
    /// **Never more than the limit is admitted.** The shares are whole numbers whose sum is the
    /// limit: 11 over 10 shards gives one share of 2 and nine shares of 1. The rate of a bucket is
    /// split into equal, exact shares. If there is less than 1 for each shard (limit 3 over 10
    /// shards, or a bucket by intervals with 3 tokens per period), the shards without a share are
    /// not used. Anchored windows and buckets by intervals begin in each shard when that shard is
    /// first used.
    ///
    /// Another number of shards has other states. If it is changed while requests run, the old and
    /// the new setting each admit at most the limit, until the old states have recovered. The same
    /// holds for a change between a policy with shards and one without.
    ///
    /// A verdict on a split limit describes only the shards that were called:
    ///
    /// * `remaining` and `reset_after` describe the shard that was called last, so `remaining` is a
    ///   lower bound.
    /// * `retry_after` is the time at which one of the called shards admits the cost. A cost above
    ///   the largest share is never admitted, even if it is below the limit.
    /// * A [deny cache](crate::DenyCache) keeps a refusal that was too early until its
    ///   `retry_after`.
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
    /// if the limit is split and the policy [blocks](Self::block_for), because the refusal of one
    /// shard is not a refusal of the limit. Finally, returns an error if a share of the rate is
    /// outside of the bounds within which every decision is exact.
    pub fn sharded(self, shards: Shards) -> Result<Self, PolicyError> {
        self.split(shards).map_err(|error| error.about(Part::Shards))
    }

    /// Returns the shards over which the policy is distributed, if there are any.
    #[must_use]
    pub fn shards(&self) -> Option<Shards> {
        self.0.split.as_deref().map(|split| split.shards)
    }

    /// Returns the policy's share in each shard, the largest first. Each share is a policy with its
    /// own states. Shards whose share would be 0 are omitted. Empty if the policy has no shards or
    /// only one.
    #[must_use]
    pub fn shares(&self) -> &[Self] {
        self.0.split.as_deref().map_or(&[], |split| &split.shares)
    }

    /// Returns the shard of this policy if it is one of the [`shares`](Self::shares) of another
    /// policy.
    #[must_use]
    pub fn shard(&self) -> Option<Shard> {
        self.0.shard
    }

    /// Returns `true` if any request may be routed to any shard.
    pub(crate) fn can_use_any_shard(&self) -> bool {
        self.shards().is_some_and(|shards| shards.by == By::Any && shards.count > 1)
    }

    /// Returns `true` if the limit applies to a tenant, regardless of the subject: see
    /// [`Shards::by_subject`].
    #[must_use]
    pub fn is_per_tenant(&self) -> bool {
        self.0.split.as_deref().is_some_and(|split| split.shards.by == By::Subject)
    }

    /// Returns the index of the share for all charges of a subject. The hash is the same on every
    /// machine. Returns `None` if any share may be charged, or if there are no shards.
    pub(crate) fn share_of(&self, tenant: &[u8], subject: &[u8]) -> Option<usize> {
        let shares = u64::try_from(self.shares().len()).ok().filter(|&shares| shares > 0)?;
        let Shards { count, .. } = self.shards().filter(|shards| shards.by != By::Any)?;
        // The hash is reduced by the number of shards first, so that the shares of two policies
        // with equally many shards are in one slot.
        let index = stable_hash([tenant, subject]) % u64::from(count);
        usize::try_from(index % shares).ok()
    }
}
