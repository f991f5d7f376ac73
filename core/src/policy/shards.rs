//! Limits that are split over several slots of a cluster.

use std::fmt;

use super::error::Part;
use super::{Policy, PolicyError};
use crate::hash::stable_hash;

/// The maximum number of shards of a policy.
pub const MAX_SHARDS: u32 = 256;

/// How a policy is split over slots of a cluster for one tenant: see [`Policy::sharded`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shards {
    count: u32,
    by: By,
}

/// How requests are routed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum By {
    /// Any request to any shard.
    Any,
    /// A subject to its own shard; the limit is the tenant's, and split.
    Subject,
    /// A subject to its own shard; the limit is the subject's, and whole.
    Whole,
}

impl Shards {
    /// Splits each subject's limit over `count` shards. A request goes to any of them and, before it is refused, to a
    /// second one. For a subject with more requests than one node can decide on.
    #[must_use]
    pub fn any(count: u32) -> Self {
        Self { count, by: By::Any }
    }

    /// Makes the limit one of the tenant, for all its subjects together, split over `count` shards. A subject always
    /// goes to the same one.
    #[must_use]
    pub fn by_subject(count: u32) -> Self {
        Self { count, by: By::Subject }
    }

    /// Keeps each subject's limit whole, as without shards. The subjects of a tenant are spread over `count` shards,
    /// each always going to the same one. For a tenant, but no single subject, with more requests than one node can
    /// decide on.
    #[must_use]
    pub fn whole(count: u32) -> Self {
        Self { count, by: By::Whole }
    }

    /// The number of shards.
    #[must_use]
    pub fn count(self) -> u32 {
        self.count
    }

    /// Whether a limit is split over several shards.
    #[must_use]
    pub fn split(self) -> bool {
        self.by != By::Whole && self.count > 1
    }
}

/// As in the policy grammar: `shards 8`, `shards 8 by-subject`, `shards 8 whole`.
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

/// The shard of a share: see [`Policy::shard`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shard {
    pub(super) index: u32,
    pub(super) count: u32,
}

impl Shard {
    /// The index, from 0.
    #[must_use]
    pub fn index(self) -> u32 {
        self.index
    }

    /// The number of shards, at most [`MAX_SHARDS`].
    #[must_use]
    pub fn count(self) -> u32 {
        self.count
    }
}

impl Policy {
    /// The same policy, split over several slots of a cluster, so that several nodes decide on one tenant.
    ///
    /// A store on one node (in memory, on one Redis) keeps the limit whole. On a cluster:
    ///
    /// | | [`any`](Shards::any) | [`by_subject`](Shards::by_subject) | [`whole`](Shards::whole) |
    /// |---|---|---|---|
    /// | the limit is of | tenant and subject | **the tenant**, on every store | tenant and subject |
    /// | and is | split | split | whole in each shard |
    /// | a request goes to | any shard; before it is refused, a second one | its subject's | its subject's |
    /// | refused too early | rarely | where a subject has more than its shard | never |
    /// | largest cost | the largest share | the subject's share | the limit |
    ///
    /// **Never more than the limit is admitted**: the shares are whole numbers whose sum is the limit (11 over 10: one
    /// share of 2 and nine of 1), and a bucket's rate is split into equal, exact shares. If there is less than 1 for
    /// each shard (limit 3 over 10, or a bucket by intervals with 3 tokens per period), shards without a share are not
    /// used. Anchored windows and buckets by intervals begin in each shard when it is first used.
    ///
    /// Another number of shards has other states: if it is changed while requests run, both settings together are
    /// admitted at most, until the older states have recovered. The same holds for a change between a policy with and
    /// one without shards.
    ///
    /// Verdicts on a limit that is split: `remaining` and `reset_after` are those of the shard that was called last, so
    /// `remaining` is a lower bound; `retry_after` is the time at which one of the shards that were called admits the
    /// cost. A cost above the largest share is never admitted, even if it is below the limit. A
    /// [deny cache](crate::DenyCache) keeps a refusal that was too early until its `retry_after`.
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
    /// If there are 0 shards or more than [`MAX_SHARDS`]; if the limit is split and the policy
    /// [blocks](Self::block_for), as one shard's refusal is not the limit's; or if a share of the
    /// rate is outside of the bounds within which every decision is exact.
    pub fn sharded(self, shards: Shards) -> Result<Self, PolicyError> {
        self.split(shards).map_err(|error| error.about(Part::Shards))
    }

    /// The shards that the policy is spread over, if it is.
    #[must_use]
    pub fn shards(&self) -> Option<Shards> {
        self.0.split.as_deref().map(|split| split.shards)
    }

    /// The policy's share in each shard, the largest first, as policies with states of their own. Shards whose share
    /// would be 0 are omitted. Empty without shards, and with a single one.
    #[must_use]
    pub fn shares(&self) -> &[Self] {
        self.0.split.as_deref().map_or(&[], |split| &split.shares)
    }

    /// The shard of this policy, if it is one of another's [`shares`](Self::shares).
    #[must_use]
    pub fn shard(&self) -> Option<Shard> {
        self.0.shard
    }

    /// Returns the index of the share that all charges of this subject are made to: see
    /// [`Charge::share_of_subject`](crate::Charge::share_of_subject).
    pub(crate) fn share_of(&self, tenant: &[u8], subject: &[u8]) -> Option<usize> {
        let shares = u64::try_from(self.shares().len()).ok().filter(|&shares| shares > 0)?;
        let Shards { count, .. } = self.shards().filter(|shards| shards.by != By::Any)?;
        // The number of shards is applied first, so that the shares of two policies with equally
        // many shards are in one slot.
        let index = stable_hash([tenant, subject]) % u64::from(count);
        usize::try_from(index % shares).ok()
    }

    /// Whether any request may go to any shard.
    pub(crate) fn can_use_any_shard(&self) -> bool {
        self.shards().is_some_and(|shards| shards.by == By::Any && shards.count > 1)
    }

    /// Whether the limit is one of a tenant, whatever the subject: see [`Shards::by_subject`].
    #[must_use]
    pub fn is_per_tenant(&self) -> bool {
        self.0.split.as_deref().is_some_and(|split| split.shards.by == By::Subject)
    }
}
