//! The choice of the shards for a request.

use crate::split_mix::nth_split_mix;

/// The data from which shards are picked: the number of shares that are not smaller than the cost,
/// and the whole limit. If a request charges several limits, each number is the minimum over these
/// limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShardWeights {
    shares: u64,
    limit: u64,
}

impl ShardWeights {
    /// Creates the data to pick one of the `shares` largest shares of a limit.
    #[must_use]
    pub fn new(shares: usize, limit: u64) -> Self {
        Self { shares: u64::try_from(shares).unwrap_or(u64::MAX), limit }
    }

    /// Returns the minimum of `self` and `other`, field by field.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self { shares: self.shares.min(other.shares), limit: self.limit.min(other.limit) }
    }
}

/// The shard for a request, and the shard for a second attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShardPick {
    /// The index of the share for the first attempt.
    pub first: usize,
    /// The index of another share for the second attempt, or `None` if there is no other share.
    pub second: Option<usize>,
}

impl ShardPick {
    /// Picks the shards for a turn of round-robin routing.
    ///
    /// The shares of a limit differ by at most one. For example, a limit of 11 over 10 shards has
    /// one share of 2 and nine shares of 1. Consecutive turns visit all shards in a circle, from a
    /// random start. In 11 turns (the whole limit), they visit the larger share twice, and each
    /// other share once. So a single client is never refused too early.
    ///
    /// The shard for the second attempt is pseudo-random, and always the same for the same turn, so
    /// a peek has the same result as the next acquire.
    ///
    /// ```
    /// use tidegate_core::no_semver::{ShardPick, ShardWeights};
    ///
    /// let weights = ShardWeights::new(10, 11); // a limit of 11 over 10 shards
    /// let first = |turn| ShardPick::new(turn, weights).first;
    /// let visited: Vec<usize> = (0..12).map(first).collect();
    /// assert_eq!(visited, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, /* and again */ 0]);
    /// ```
    #[must_use]
    pub fn new(turn: u32, ShardWeights { shares, limit }: ShardWeights) -> Self {
        // `shares` counts the shares that admit the cost. If even the largest share is too small,
        // `shares` is 0. Then the request is sent to the largest share, which refuses it.
        let (shares, limit) = (shares.max(1), limit.max(1));
        let first = u64::from(turn) % limit % shares;
        let second = (shares > 1).then(|| {
            let steps = 1 + nth_split_mix(u64::from(turn)) % (shares - 1);
            (first + steps) % shares
        });
        let index = |shard| usize::try_from(shard).unwrap_or_default();
        Self { first: index(first), second: second.map(index) }
    }
}
