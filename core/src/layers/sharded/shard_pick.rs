//! Picks the shards for a request.

use crate::split_mix::nth_split_mix;

/// The shards to choose from: of several limits that are charged together, the minimum of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShardWeights {
    shares: u64,
    limit: u64,
}

impl ShardWeights {
    /// The first `shares` shares of a limit, which are the largest.
    #[must_use]
    pub fn new(shares: usize, limit: u64) -> Self {
        Self { shares: u64::try_from(shares).unwrap_or(u64::MAX), limit }
    }

    /// The minimum of both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self { shares: self.shares.min(other.shares), limit: self.limit.min(other.limit) }
    }
}

/// The shard for a request, and the one for a second try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShardPick {
    /// The index of the first among the shares.
    pub first: usize,
    /// The index of the second, another one; `None` if there is no other.
    pub second: Option<usize>,
}

impl ShardPick {
    /// Picks the shards for a turn.
    ///
    /// Consecutive turns visit all shards in a circle, and those with one more than the others once more often: so a
    /// single client is never refused too early. Clients begin at random turns. The second shard is pseudo-random,
    /// but the same for the same turn, so that a peek has the result of the acquire that follows.
    ///
    /// ```
    /// use tidegate_core::no_semver::{ShardPick, ShardWeights};
    ///
    /// let of_eleven_over_ten = ShardWeights::new(10, 11);
    /// let first = |turn| ShardPick::new(turn, of_eleven_over_ten).first;
    /// let visited: Vec<usize> = (0..12).map(first).collect();
    /// assert_eq!(visited, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, /* and again */ 0]);
    /// ```
    #[must_use]
    pub fn new(turn: u32, ShardWeights { shares, limit }: ShardWeights) -> Self {
        // A cost above all shares is refused by the largest one.
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
