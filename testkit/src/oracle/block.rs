//! The block of a subject, and the offenses that make the next block longer.

use tidegate_core::Policy;

use super::rules::micros;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Block {
    pub(super) until: u64,
    /// The number of offenses so far, at most the number after which the block has its maximum
    /// length.
    offenses: u32,
    /// The time at which all offenses are forgotten.
    forgotten_at: u64,
}

impl Block {
    /// Returns the number of offenses that are not forgotten.
    pub(super) fn level(&self, now: u64) -> u32 {
        if now < self.forgotten_at { self.offenses } else { 0 }
    }

    /// Returns the block after a denial.
    pub(super) fn after_denial(&self, policy: &Policy, now: u64) -> Self {
        let Some(block) = policy.block() else { return *self };
        let offenses = self.level(now) + 1;
        let until = now + length(policy, offenses);
        if block.forget_after().is_none() {
            return self.ending_at(until, policy, now);
        }
        let longest = (1..=offenses).find(|&n| length(policy, n) == micros(block.max_span()));
        let offenses = longest.unwrap_or(offenses);
        Self { offenses, forgotten_at: u64::MAX, ..*self }.ending_at(until, policy, now)
    }

    /// Returns the block after a refusal during the block.
    pub(super) fn after_refusal(&self, policy: &Policy, now: u64) -> Self {
        if !policy.block().is_some_and(|block| block.restarts()) {
            return *self;
        }
        let until = now + length(policy, self.level(now).max(1));
        if until > self.until { self.ending_at(until, policy, now) } else { *self }
    }

    /// Returns the block after its end was set. An end of 0 removes the block and the offenses.
    pub(super) fn ending_at(&self, until: u64, policy: &Policy, now: u64) -> Self {
        let offenses = self.level(now);
        if until == 0 || offenses == 0 {
            return Self { until, ..Self::default() };
        }
        let forget = policy.block().and_then(|block| block.forget_after());
        let forgotten_at = match forget {
            Some(forget) => until + micros(forget),
            None => self.forgotten_at.max(until),
        };
        Self { until, offenses, forgotten_at }
    }

    /// Returns the blocks that are possible after the store's clock has shown `now`.
    pub(super) fn possibly_forgotten(&self, now: u64) -> Vec<Self> {
        let mut possible = vec![*self];
        if self.until <= now {
            possible.push(Self { until: 0, ..*self });
        }
        if self.forgotten_at <= now {
            let without = |block: &Self| Self { offenses: 0, forgotten_at: 0, ..*block };
            possible.extend(possible.clone().iter().map(without));
        }
        possible
    }
}

/// Returns the length of the block after this number of offenses.
fn length(policy: &Policy, offenses: u32) -> u64 {
    let Some(block) = policy.block() else { return 0 };
    let longest = u128::from(micros(block.max_span()));
    let factor = u128::from(block.factor()).checked_pow(offenses - 1);
    let length = factor.and_then(|factor| factor.checked_mul(micros(block.span()).into()));
    let length = length.map_or(longest, |length| length.min(longest));
    u64::try_from(length).unwrap_or(u64::MAX)
}
