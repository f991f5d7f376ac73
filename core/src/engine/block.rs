//! The block of a subject, and the offenses that make the next block longer.

use crate::policy::{self, Policy};

/// The block and the offenses in a record. Times are in microseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Block {
    /// The end of the block, or 0 for no block.
    pub(super) until: u64,
    /// The number of offenses, at most the level at which the block has its maximum length.
    level: u8,
    /// The time at which the offenses are forgotten, or 0 for no offenses. It is not before the end
    /// of the block.
    forgotten_at: u64,
}

impl Block {
    pub(super) const NONE: Self = Self { until: 0, level: 0, forgotten_at: 0 };

    /// Creates a block from stored values. Returns `None` if there can be no such block.
    pub(super) fn restore(until: u64, level: u8, forgotten_at: u64) -> Option<Self> {
        let is_valid = (1..=policy::Block::MAX_LEVEL).contains(&level) && until <= forgotten_at;
        is_valid.then_some(Self { until, level, forgotten_at })
    }

    pub(super) const fn ending_at(until: u64) -> Self {
        Self { until, ..Self::NONE }
    }

    /// Returns the level and the time at which it is forgotten, or `None` if there are no offenses.
    pub(super) fn offenses(&self) -> Option<(u8, u64)> {
        (self.level > 0).then_some((self.level, self.forgotten_at))
    }

    pub(super) fn level(&self, now: u64) -> u8 {
        if now < self.forgotten_at { self.level } else { 0 }
    }

    pub(super) fn is_over(&self, now: u64) -> bool {
        self.until <= now
    }

    /// Returns the time from which decisions do not depend on the block or on the offenses.
    pub(super) fn recovers_at(&self) -> u64 {
        self.until.max(self.forgotten_at)
    }

    /// Blocks the subject after a denial by `policy`. If the block of the policy grows, the denial
    /// is an offense.
    pub(super) fn offend(&mut self, policy: &Policy, now: u64) {
        let Some(block) = policy.block() else { return };
        let (mut level, micros) = block.at(self.level(now) + 1);
        if block.forget_micros().is_none() {
            level = self.level(now);
        }
        self.set(level, now.saturating_add(micros), policy);
    }

    /// Restarts the block at the same level. A block that ends later does not change.
    pub(super) fn restart(&mut self, policy: &Policy, now: u64) {
        let Some(block) = policy.block() else { return };
        let (_, micros) = block.at(self.level(now).max(1));
        let until = now.saturating_add(micros);
        if until > self.until {
            self.set_end(until, policy, now);
        }
    }

    pub(super) fn set_end(&mut self, until: u64, policy: &Policy, now: u64) {
        self.set(self.level(now), until, policy);
    }

    /// Sets the level and the end of the block. `policy` determines when the offenses are
    /// forgotten. If its block does not grow, they are not forgotten before the end of the block.
    fn set(&mut self, level: u8, until: u64, policy: &Policy) {
        let forget = policy.block().and_then(policy::Block::forget_micros);
        self.forgotten_at = match (level, forget) {
            (0, _) => 0,
            (_, None) => self.forgotten_at.max(until),
            (_, Some(forget)) => until.saturating_add(forget),
        };
        (self.level, self.until) = (level, until);
    }

    /// Removes a block that is over, and offenses that are forgotten.
    pub(super) fn forget_past(&mut self, now: u64) {
        let until = if self.is_over(now) { 0 } else { self.until };
        *self = match self.level(now) {
            0 => Self::ending_at(until),
            _ => Self { until, ..*self },
        };
    }
}
