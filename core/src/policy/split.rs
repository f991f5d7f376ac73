//! Splits a limit into shares. The shares are whole numbers, and the rates of buckets stay exact.

use std::sync::Arc;

use super::error::PolicyError;
use super::shards::{MAX_SHARDS, Shard, Shards};
use super::share::{Rate, Share};
use super::spec::{self, Algorithm};
use super::{Policy, Rule};

#[derive(Debug, Clone)]
pub(super) struct Split {
    pub(super) shards: Shards,
    /// One share per shard, without shards whose share would be 0. The slice is empty if the policy
    /// has only one shard.
    pub(super) shares: Box<[Policy]>,
}

/// Compares only the shards, because the shares follow from the shards and the policy.
impl PartialEq for Split {
    fn eq(&self, other: &Self) -> bool {
        self.shards == other.shards
    }
}

impl Eq for Split {}

impl Policy {
    pub(super) fn split(mut self, shards: Shards) -> Result<Self, PolicyError> {
        let count = shards.count();
        if count == 0 || count > MAX_SHARDS {
            return Err(PolicyError::new(format!(
                "the number of shards is {count}; it must be 1 to {MAX_SHARDS}"
            )));
        }
        if self.is_fair_pool() {
            let message = "a fair pool cannot have shards, because one state knows all its members";
            return Err(PolicyError::new(message));
        }
        if shards.split() && self.block_duration().is_some() {
            return Err(block_excludes_shards());
        }
        if shards.split() && matches!(self.rule(), Rule::Quota(quota) if quota.is_pro_rated()) {
            let message = "a pro-rated quota cannot be split over shards, because each shard would \
                           admit at least 1";
            return Err(PolicyError::new(message));
        }
        let shares = match count {
            1 => [].into(),
            _ => self.shares_in(shards)?,
        };
        Arc::make_mut(&mut self.0).split = Some(Box::new(Split { shards, shares }));
        self.refresh_identity();
        Ok(self)
    }

    fn shares_in(&self, shards: Shards) -> Result<Box<[Self]>, PolicyError> {
        let count = shards.count();
        if !shards.split() {
            return Ok((0..count).map(|index| self.in_shard(Shard { index, count })).collect());
        }
        let used = self.used_of(count);
        let share = |index| {
            let mut share = share(self, index, used)?;
            let (max_hold, lapse) = (self.max_hold_share(), self.0.lapse);
            let (max_open_holds, leased) = (self.0.max_open_holds, self.is_leased());
            share.change(&|inner| {
                inner.max_hold = max_hold;
                inner.lapse = lapse;
                inner.max_open_holds = max_open_holds;
                inner.leased = leased;
            });
            if let Some(percent) = self.warn_percent() {
                share = share.warn_at(percent)?;
            }
            let share = if self.is_shadow() { share.shadow() } else { share };
            Ok(share.in_shard(Shard { index, count }))
        };
        (0..used).map(share).collect()
    }

    /// Returns the number of shards whose share is above 0. For a limit of 0, which refuses
    /// everything, the result is 1.
    fn used_of(&self, count: u32) -> u32 {
        let mut max = self.limit();
        if let Algorithm::TokenBucket(spec) = self.algorithm()
            && spec.is_by_interval()
        {
            max = max.min(spec.refill);
        }
        count.min(u32::try_from(max).unwrap_or(u32::MAX)).max(1)
    }

    /// Returns a copy of this policy for one shard. The copy has the name and the hashes of this
    /// policy. `split` later computes them again for each share.
    fn in_shard(&self, shard: Shard) -> Self {
        let mut inner = (*self.0).clone();
        inner.split = None;
        inner.shard = Some(shard);
        Self(Arc::new(inner))
    }
}

/// Returns the share of a policy in the shard `index` of `of` shards. The limits of all shares add
/// up to the whole limit, and differ by at most 1.
fn share(policy: &Policy, index: u32, of: u32) -> Result<Policy, PolicyError> {
    let part = |whole: u64| {
        let (index, of) = (u64::from(index), u64::from(of));
        whole / of + u64::from(index < whole % of)
    };
    let limit = part(policy.limit());
    if let Algorithm::TokenBucket(spec) = policy.algorithm()
        && spec.is_by_interval()
    {
        let refill = part(spec.refill);
        return policy.with_algorithm(spec::TokenBucket { refill, burst: limit, ..spec.clone() });
    }
    let share = Share::new(1, of)?;
    policy.with_limit(limit, |spec| Rate::new(spec.refill, spec.period).scaled_to(share))
}

pub(super) fn block_excludes_shards() -> PolicyError {
    PolicyError::new(
        "`block` and a limit that is split over shards exclude each other: a refusal by one shard must \
         not block the subject; `shards` with `whole` splits nothing",
    )
}
