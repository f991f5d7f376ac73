//! The block after a denial.

use std::fmt;
use std::time::Duration;

use super::error::{Part, PolicyError};
use super::span::{self, Micros};
use crate::time::micros_of;

/// The block after a denial: its length, its growth, and the effect of refusals during the block.
///
/// Without growth, each block has the same length. With [growth](Self::growing), the first block is
/// short for honest users, and the blocks of a subject that continues become long.
///
/// ```
/// use std::time::Duration;
/// use tidegate_core::{Block, Policy, SlidingLog};
///
/// let minute = Duration::from_secs(60);
/// let day = Duration::from_secs(86_400);
///
/// // The first block lasts a minute, the next 4, 16, 64, 256 and 1024 minutes, and then a day each.
/// let block = Block::new(minute).growing(4, day, 7 * day);
/// let login = Policy::new("login", SlidingLog::new(5, 15 * minute))?.block_with(block)?;
///
/// assert_eq!(login, "login: sliding-log 5/15m block 1m x4 up to 1d forget 7d".parse()?);
/// # Ok::<(), tidegate_core::PolicyError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Block {
    span: Duration,
    growth: Option<Growth>,
    restarts: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Growth {
    factor: u32,
    up_to: Duration,
    forget: Duration,
}

impl Block {
    /// The maximum factor of a block that [grows](Self::growing).
    pub const MAX_FACTOR: u32 = 100;

    /// The maximum [level](crate::Verdict::block_level) of a block. At a factor of 2, a block of a
    /// microsecond grows to 2^51 µs in this number of levels.
    pub const MAX_LEVEL: u8 = 52;

    /// Creates a block that lasts for `span`.
    #[must_use]
    pub const fn new(span: Duration) -> Self {
        Self { span, growth: None, restarts: false }
    }

    /// Makes the block `factor` times as long with each offense, up to `up_to`. The store forgets
    /// the offenses of a subject together, `forget` after the end of the last block. In the text of
    /// a policy, this setting is `x4 up to 1d forget 7d`.
    ///
    /// An offense is a denial of a subject that is not blocked. The end of a block restores no
    /// budget. So after a block, the next request is another offense if the limit still denies it.
    #[must_use]
    pub const fn growing(self, factor: u32, up_to: Duration, forget: Duration) -> Self {
        Self { growth: Some(Growth { factor, up_to, forget }), ..self }
    }

    /// Restarts the block with each refusal during the block: the block then lasts for its whole
    /// length again. The length does not grow, and a block that ends later is not shortened. In the
    /// text of a policy, this setting is `restart`.
    ///
    /// A [`DenyCache`](crate::DenyCache) does not answer the calls of such a policy, because the
    /// store must restart the block.
    #[must_use]
    pub const fn restarting(self) -> Self {
        Self { restarts: true, ..self }
    }

    /// Returns the length of the first block.
    #[must_use]
    pub const fn span(&self) -> Duration {
        self.span
    }

    /// Returns the factor by which a block grows, or 1 if it does not grow.
    #[must_use]
    pub fn factor(&self) -> u32 {
        self.growth.map_or(1, |growth| growth.factor)
    }

    /// Returns the maximum length of a block.
    #[must_use]
    pub fn max_span(&self) -> Duration {
        self.growth.map_or(self.span, |growth| growth.up_to)
    }

    /// Returns the time from the end of a block until the store forgets the offenses. Returns
    /// `None` if the block does not grow, because the store then remembers no offenses.
    #[must_use]
    pub fn forget_after(&self) -> Option<Duration> {
        self.growth.map(|growth| growth.forget)
    }

    /// Returns `true` if a refusal during the block [restarts](Self::restarting) the block.
    #[must_use]
    pub const fn restarts(&self) -> bool {
        self.restarts
    }

    /// Returns the length of the block at a level, from 1.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate_core::Policy;
    ///
    /// let policy: Policy = "login: sliding-log 5/15m block 1m x4 up to 1d forget 7d".parse()?;
    /// let block = policy.block().unwrap();
    /// let minutes = [1, 2, 3, 6, 7, 8].map(|level| block.span_at(level).as_secs() / 60);
    /// assert_eq!(minutes, [1, 4, 16, 1024, 1440, 1440]);
    /// # Ok::<(), tidegate_core::PolicyError>(())
    /// ```
    #[must_use]
    pub fn span_at(&self, level: u8) -> Duration {
        Duration::from_micros(self.at(level).1)
    }

    /// Returns a level and the length of its block in microseconds. The level is `level`, or the
    /// first level at which the block has its maximum length if that is less.
    pub(crate) fn at(&self, level: u8) -> (u8, u64) {
        let max = micros_of(self.max_span());
        let (mut reached, mut micros) = (1, micros_of(self.span));
        while reached < level && micros < max {
            reached += 1;
            micros = micros.saturating_mul(self.factor().into()).min(max);
        }
        (reached, micros)
    }

    /// Returns the time of [`forget_after`](Self::forget_after) in microseconds.
    pub(crate) fn forget_micros(&self) -> Option<u64> {
        self.growth.map(|growth| micros_of(growth.forget))
    }

    pub(super) fn check(&self) -> Result<(), PolicyError> {
        span::check("block", self.span).map_err(|error| error.about(Part::Block))?;
        let Some(Growth { factor, up_to, forget }) = self.growth else { return Ok(()) };
        if !(2..=Self::MAX_FACTOR).contains(&factor) {
            let message = format!(
                "the factor of the block is {factor}; it must be from 2 to {}",
                Self::MAX_FACTOR
            );
            return Err(PolicyError::new(message).about(Part::BlockFactor));
        }
        span::check("maximum of the block", up_to).map_err(|error| error.about(Part::BlockMax))?;
        if up_to <= self.span {
            let [up_to, span] = [up_to, self.span].map(|span| Micros(micros_of(span)));
            let message = format!("the block grows up to {up_to}; it must be more than {span}");
            return Err(PolicyError::new(message).about(Part::BlockMax));
        }
        span::check("time to forget", forget).map_err(|error| error.about(Part::BlockForget))?;
        Ok(())
    }
}

impl fmt::Display for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "block {}", Micros(micros_of(self.span)))?;
        if let Some(Growth { factor, up_to, forget }) = self.growth {
            let [up_to, forget] = [up_to, forget].map(|span| Micros(micros_of(span)));
            write!(f, " x{factor} up to {up_to} forget {forget}")?;
        }
        f.write_str(if self.restarts { " restart" } else { "" })
    }
}
