//! The part of a decision that belongs to one policy.

use std::fmt;
use std::time::Duration;

use super::earliest_lapse::EarliestLapse;
use crate::lists::ListAction;
use crate::policy::Policy;
use crate::time::{Wait, micros_of_ceil};

/// The answer of one policy to one charge of a call.
///
/// A store that does not use [`engine::decide`](crate::engine::decide) builds its verdicts as in
/// this example:
///
/// ```
/// use std::time::Duration;
/// use tidegate_core::{Outcome, Verdict};
///
/// let verdict = Verdict::new(Outcome::Denied, 100)
///     .with_remaining(2)
///     .with_retry_after(Some(Duration::from_secs(3)))
///     .with_reset_after(Duration::from_secs(60));
/// assert_eq!(verdict.limit(), 100);
/// assert_eq!(verdict.retry_after(), Some(Duration::from_secs(3)));
/// ```
// A verdict consists of five words without niches. So a copy moves whole words, and an enum that
// contains a verdict stores its tag outside the verdict. `flags` is the first field, because every
// caller reads it.
#[derive(Clone, Copy)]
pub struct Verdict {
    flags: Flags,
    pub(super) limit: u64,
    /// The remaining amount. If the subject is blocked, this field contains the microseconds until
    /// the block ends instead, because the remaining amount of a blocked subject is 0.
    remaining_or_block: u64,
    pub(crate) retry: Wait,
    reset: u64,
}

/// The outcome of a verdict, whether the subject has a block, the level of the block, whether the
/// policy is a shadow, and whether the verdict warns.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Flags(u64);

impl Flags {
    const DENIED: u64 = 1;
    const BLOCKED: u64 = 2;
    const SHADOW: u64 = 4;
    const BLOCK: u64 = 8;
    /// This flag is set, together with `DENIED`, if the hold is too large.
    const TOO_LARGE: u64 = 16;
    /// One of these flags is set if an entry of a list matches the subject.
    const ALLOW_LISTED: u64 = 32;
    const DENY_LISTED: u64 = 64;
    const WARNS: u64 = 128;
    const SKIPPED: u64 = 1 << 24;
    /// The level of the block follows these bits, and then the percentage from which the policy
    /// warns, or 0.
    const LEVEL_SHIFT: u32 = 8;
    const PERCENT_SHIFT: u32 = 16;

    #[inline]
    const fn new(outcome: Outcome) -> Self {
        Self(match outcome {
            Outcome::Allowed => 0,
            Outcome::Denied => Self::DENIED,
            Outcome::Blocked => Self::BLOCKED,
            Outcome::TooLarge => Self::DENIED | Self::TOO_LARGE,
            Outcome::DenyListed => Self::DENIED | Self::DENY_LISTED,
            Outcome::Skipped => Self::SKIPPED,
        })
    }

    #[inline]
    const fn has(self, flag: u64) -> bool {
        self.0 & flag != 0
    }

    #[inline]
    const fn with(self, flag: u64, is_set: bool) -> Self {
        Self(if is_set { self.0 | flag } else { self.0 & !flag })
    }

    #[inline]
    const fn with_level(self, level: u8) -> Self {
        Self(self.0 & !(0xff << Self::LEVEL_SHIFT) | (level as u64) << Self::LEVEL_SHIFT)
    }

    #[inline]
    const fn level(self) -> u8 {
        self.0.to_le_bytes()[1]
    }

    #[inline]
    const fn with_percent(self, percent: u8) -> Self {
        Self(self.0 & !(0xff << Self::PERCENT_SHIFT) | (percent as u64) << Self::PERCENT_SHIFT)
    }

    fn with_warning_of(self, other: Self) -> Self {
        self.with(Self::WARNS, other.has(Self::WARNS)).with_percent(other.percent())
    }

    #[inline]
    const fn percent(self) -> u8 {
        self.0.to_le_bytes()[2]
    }

    #[inline]
    const fn outcome(self) -> Outcome {
        match (self.has(Self::BLOCKED), self.has(Self::DENIED)) {
            (true, _) => Outcome::Blocked,
            (_, true) if self.has(Self::TOO_LARGE) => Outcome::TooLarge,
            (_, true) if self.has(Self::DENY_LISTED) && !self.has(Self::SHADOW) => {
                Outcome::DenyListed
            }
            (_, true) => Outcome::Denied,
            _ if self.has(Self::SKIPPED) => Outcome::Skipped,
            _ => Outcome::Allowed,
        }
    }

    #[inline]
    const fn refuses(self) -> bool {
        // `SHADOW` is a higher bit than `DENIED` and `BLOCKED`. So `these` is less than `SHADOW` if
        // and only if the policy is not a shadow.
        let these = self.0 & (Self::DENIED | Self::BLOCKED | Self::SHADOW);
        these != 0 && these < Self::SHADOW
    }
}

/// The outcome of a charge under one policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Outcome {
    /// The charge is admitted.
    Allowed,
    /// The limit is exceeded, or the cost is larger than the maximum that the policy ever admits.
    Denied,
    /// The subject is blocked, regardless of its usage.
    Blocked,
    /// The cost is larger than the maximum size of one [hold](crate::Operation::Hold): see
    /// [`Policy::max_hold`]. A smaller hold can be admitted. A [hold up
    /// to](crate::Operation::HoldUpTo) this cost can be admitted too.
    TooLarge,
    /// An entry of a [list](crate::Lists) denies the subject, regardless of its usage.
    DenyListed,
    /// The charge is not made, and does not refuse the call, because it is in a [list of
    /// alternatives](crate::Charge::in_list): another charge of the list pays, or has a shorter
    /// wait.
    Skipped,
}

impl Outcome {
    /// Returns the name of the outcome that logs and metrics contain.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Denied => "denied",
            Self::Blocked => "blocked",
            Self::TooLarge => "too-large",
            Self::DenyListed => "deny-listed",
            Self::Skipped => "skipped",
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Verdict {
    /// Creates a verdict of a policy with this limit. The remaining amount, the waits and the block
    /// are 0 until other methods set them.
    #[must_use]
    pub const fn new(outcome: Outcome, limit: u64) -> Self {
        Self::from_micros(outcome, limit, 0, Wait::ZERO, 0)
    }

    /// Sets the maximum cost that the policy would still admit.
    #[must_use]
    pub const fn with_remaining(self, remaining: u64) -> Self {
        Self { remaining_or_block: remaining, ..self }
    }

    /// Sets the wait until this charge is admitted if nothing else is charged. The wait is rounded
    /// up to microseconds. `None` means that the charge is never admitted.
    #[must_use]
    pub fn with_retry_after(self, wait: Option<Duration>) -> Self {
        Self { retry: wait.map_or(Wait::NEVER, Wait::from), ..self }
    }

    /// Sets the time until the state has recovered fully. The time is rounded up to microseconds.
    #[must_use]
    pub fn with_reset_after(self, span: Duration) -> Self {
        Self { reset: micros_of_ceil(span), ..self }
    }

    /// Sets a block of the subject for `span` from now, rounded up to microseconds. Zero means no
    /// block. Call this method after [`with_remaining`](Self::with_remaining), because a block
    /// replaces the remaining amount: nothing remains for a blocked subject.
    #[must_use]
    pub fn with_block(self, span: Duration) -> Self {
        self.blocked_for_micros(micros_of_ceil(span))
    }

    /// Sets the [level](Self::block_level) of the subject.
    #[must_use]
    pub const fn with_block_level(self, level: u8) -> Self {
        Self { flags: self.flags.with_level(level), ..self }
    }

    /// Sets whether the verdict [warns](Self::warns).
    #[must_use]
    #[inline]
    pub const fn with_warning(self, warns: bool) -> Self {
        Self { flags: self.flags.with_percent(0).with(Flags::WARNS, warns), ..self }
    }

    /// Turns the verdict into the verdict of a shadow policy, which only reports.
    #[must_use]
    pub const fn in_shadow(self) -> Self {
        Self { flags: self.flags.with(Flags::SHADOW, true), ..self }
    }

    #[inline]
    pub(crate) const fn from_micros(
        outcome: Outcome,
        limit: u64,
        remaining: u64,
        retry: Wait,
        reset: u64,
    ) -> Self {
        Self { limit, remaining_or_block: remaining, retry, reset, flags: Flags::new(outcome) }
    }

    #[inline]
    pub(crate) fn with_settings_of(self, policy: &Policy) -> Self {
        let flags = self.flags.with(Flags::SHADOW, policy.is_shadow());
        Self { flags: flags.with_percent(policy.warn_in_verdicts()), ..self }
    }

    /// Returns the verdict on a charge of a list of alternatives that does not pay. The wait of the
    /// charge stays.
    pub(super) fn skipped(self) -> Self {
        let flags = Flags::new(Outcome::Skipped)
            .with(Flags::BLOCK, self.has_block())
            .with_warning_of(self.flags)
            .with_level(self.block_level());
        Self { flags, ..self }
    }

    /// Returns the verdict on a charge whose policy waits only for the end of the subject's block.
    pub(super) fn waiting_for_block(self) -> Self {
        Self { retry: Wait::from_micros(self.blocked_micros()), ..self }
    }

    /// Computes the warning now, so that a later change of the limit does not change it.
    pub(crate) fn with_fixed_warning(self) -> Self {
        self.with_warning(self.warns())
    }

    #[inline]
    pub(crate) fn blocked_for_micros(self, micros: u64) -> Self {
        let remaining_or_block = if micros > 0 { micros } else { self.remaining() };
        let flags = self.flags.with(Flags::BLOCK, micros > 0);
        Self { remaining_or_block, flags, ..self }
    }

    #[inline]
    pub(crate) fn passes(&self) -> bool {
        !self.flags.refuses()
    }

    /// Returns the outcome. A [shadow](Self::is_shadow) can deny the charge without refusing the
    /// request.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        self.flags.outcome()
    }

    /// Returns `true` if the policy is a shadow. The outcome of a shadow is reported, and never
    /// refuses the request.
    #[must_use]
    pub fn is_shadow(&self) -> bool {
        self.flags.has(Flags::SHADOW)
    }

    /// Returns `true` if the usage after the decision is at least the percentage of the limit from
    /// which the policy [warns](Policy::warn_at).
    #[must_use]
    #[inline]
    pub fn warns(&self) -> bool {
        // The engine computes only the warnings of quotas. If it computed all warnings, it would
        // need the remaining amount of each call, also for a caller that reads only the outcome.
        let used = || self.limit.saturating_sub(self.remaining_or_block);
        let percent = self.flags.percent().into();
        self.flags.has(Flags::WARNS)
            || percent > 0 && !self.has_block() && reaches(percent, used(), self.limit)
    }

    /// Returns the limit of the policy, which is the maximum that it admits at one instant, without
    /// [grants](crate::Operation::Grant) and rolled-over quota.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Returns the maximum cost that the policy would still admit, rounded down. With grants or
    /// rolled-over quota, this cost can exceed [`limit`](Self::limit).
    #[must_use]
    #[inline]
    pub fn remaining(&self) -> u64 {
        if self.has_block() { 0 } else { self.remaining_or_block }
    }

    /// Returns the wait until this charge is admitted, if nothing else is charged. It is zero if
    /// the charge is admitted now, and `None` if the charge is never admitted.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry.as_duration()
    }

    /// Returns the earliest lapse of the slots that deny the charge. Returns `None` if
    /// [slots](crate::Concurrent) do not deny the charge, or if no hold has a slot, so that only
    /// another call waits for it.
    #[must_use]
    pub fn earliest_lapse(&self) -> Option<EarliestLapse> {
        self.retry.earliest_lapse().map(|micros| EarliestLapse::new(Duration::from_micros(micros)))
    }

    /// Returns the time until the subject's state has recovered fully, if nothing more is charged.
    /// Credits never recover by themselves, so the time for them ends after [`Timestamp::MAX`], in
    /// the year 2112.
    ///
    /// [`Timestamp::MAX`]: crate::Timestamp::MAX
    #[must_use]
    pub fn reset_after(&self) -> Duration {
        Duration::from_micros(self.reset)
    }

    /// Returns how much longer the subject is blocked, regardless of its usage. Returns zero if the
    /// subject is not blocked. A subject is blocked by
    /// [`Operation::Block`](crate::Operation::Block), or by a denial of a policy with
    /// [`block_for`](crate::Policy::block_for), such as the denial that this verdict reports.
    #[must_use]
    pub fn blocked_for(&self) -> Duration {
        Duration::from_micros(self.blocked_micros())
    }

    /// Returns the number of offenses of the subject that the store remembers, at most the level at
    /// which the block has its maximum length. Returns zero if there are no offenses, or if the
    /// block of the policy does not [grow](crate::Block::growing). A denial that causes a block
    /// counts too.
    ///
    /// The store remembers the offenses after the end of the block, so the level can be above zero
    /// although the subject is not blocked.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// use std::time::Duration;
    /// use tidegate_core::{Limiter, ManualClock};
    /// use tidegate_memory::MemoryStore;
    ///
    /// let clock = ManualClock::default();
    /// let policy = "login: fixed-window 1/1d block 1m x4 up to 1d forget 7d".parse()?;
    /// let store = MemoryStore::builder().clock(clock.clone()).build();
    /// let limiter = Limiter::new(store, [policy])?;
    ///
    /// limiter.acquire("mallory").await?;
    /// for (level, minutes) in [(1, 1), (2, 4), (3, 16)] {
    ///     let denied = limiter.acquire("mallory").await?;
    ///     let verdict = denied.verdicts()[0];
    ///     assert_eq!(verdict.block_level(), level);
    ///     assert_eq!(verdict.blocked_for(), Duration::from_secs(60 * minutes));
    ///     clock.advance(verdict.blocked_for());
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn block_level(&self) -> u8 {
        self.flags.level()
    }

    #[inline]
    fn has_block(&self) -> bool {
        self.flags.has(Flags::BLOCK)
    }

    fn blocked_micros(&self) -> u64 {
        if self.has_block() { self.remaining_or_block } else { 0 }
    }

    /// Returns the action of the [list entry](crate::Lists) that matches the subject, or `None` if
    /// no entry matches. An entry that denies does not change the outcome under a
    /// [shadow](Self::is_shadow).
    #[must_use]
    pub fn list_action(&self) -> Option<ListAction> {
        match self.flags {
            flags if flags.has(Flags::ALLOW_LISTED) => Some(ListAction::Allow),
            flags if flags.has(Flags::DENY_LISTED) => Some(ListAction::Deny),
            _ => None,
        }
    }

    /// Creates the verdict for a subject that a list denies.
    #[doc(hidden)]
    #[must_use]
    pub fn deny_listed(policy: &Policy) -> Self {
        Self::from_micros(Outcome::DenyListed, policy.limit(), 0, Wait::NEVER, 0)
    }

    /// Reports an entry that denies, in the verdict of a shadow.
    pub(crate) fn with_deny_entry(self) -> Self {
        Self { flags: self.flags.with(Flags::DENY_LISTED, true), ..self }
    }

    /// Converts the verdict of [`Policy::beyond_limit`], whose limit is higher by `raise`, into the
    /// verdict of the policy. The charge is denied only if the state cannot count it. It then
    /// passes too, unless `keeps_denial` is `true`.
    pub(crate) fn counted_beyond(self, raise: u64, keeps_denial: bool) -> Self {
        let is_denied = self.outcome() == Outcome::Denied && !keeps_denial;
        let flags = self
            .flags
            .with(Flags::ALLOW_LISTED, true)
            .with(Flags::DENIED, self.flags.has(Flags::DENIED) && !is_denied);
        let limit = self.limit.saturating_sub(raise);
        let verdict =
            Self { flags, limit, retry: if is_denied { Wait::ZERO } else { self.retry }, ..self };
        if verdict.has_block() {
            return verdict;
        }
        verdict.with_remaining(self.remaining().saturating_sub(raise).min(limit))
    }

    /// Merges the verdicts of two shards of one limit into one verdict. The outcome is the outcome
    /// of `self`.
    pub(crate) fn merge(self, other: Self) -> Self {
        let both = Self {
            remaining_or_block: self.remaining().saturating_add(other.remaining()),
            retry: self.retry.max(other.retry),
            reset: self.reset.max(other.reset),
            // The whole limit warns only if both shards warn. So a warning is never too early.
            flags: self
                .flags
                .with(Flags::BLOCK, false)
                .with(Flags::WARNS, self.warns() && other.warns())
                .with_percent(0),
            ..self
        }
        .with_block_level(self.block_level().max(other.block_level()));
        both.blocked_for_micros(self.blocked_micros().max(other.blocked_micros()))
    }

    /// Returns the number of microseconds for which the outcome stays the same, if nothing is
    /// charged or refunded.
    pub(crate) fn valid_for(&self) -> u64 {
        match self.outcome() {
            Outcome::Allowed | Outcome::Skipped => u64::MAX,
            Outcome::Denied => self.retry.as_micros().unwrap_or(u64::MAX),
            Outcome::Blocked => self.blocked_micros(),
            Outcome::TooLarge | Outcome::DenyListed => u64::MAX,
        }
    }

    pub(crate) fn reset_micros(&self) -> u64 {
        self.reset
    }

    /// Returns the verdict that the same charge would get `micros` later. This assumes that the
    /// outcome stays the same, and that nothing is charged or refunded. The remaining amount is a
    /// lower bound.
    pub(crate) fn later(self, micros: u64) -> Self {
        let reset = self.reset.saturating_sub(micros);
        let later = Self {
            retry: self.retry.after(micros),
            reset,
            ..self.blocked_for_micros(self.blocked_micros().saturating_sub(micros))
        };
        if reset > 0 || later.has_block() {
            return later;
        }
        // The state has recovered, so the whole limit remains.
        Self { remaining_or_block: self.limit, ..later.with_warning(false) }
    }

    /// Adds `more` to the remaining amount, up to `max`. If the charge of `cost` was denied and the
    /// sum is enough, admits the charge. `more` is an amount that remains in addition to the amount
    /// that the store reported, such as the unspent part of this node's chunks.
    #[cfg(feature = "tokio")]
    pub(crate) fn with_more_remaining(self, more: u64, max: u64, cost: u64) -> Self {
        if more == 0 || self.has_block() {
            return self;
        }
        let remaining = self.remaining().saturating_add(more).min(max);
        let verdict = self.with_remaining(remaining);
        if verdict.outcome() != Outcome::Denied || cost > remaining {
            return verdict;
        }
        let flags = Flags::new(Outcome::Allowed)
            .with(Flags::SHADOW, verdict.is_shadow())
            .with_warning_of(verdict.flags)
            .with_level(verdict.block_level());
        Self { flags, retry: Wait::ZERO, ..verdict }
    }

    pub(crate) fn too_large(self) -> Self {
        if self.outcome() == Outcome::DenyListed {
            return self;
        }
        let flags = Flags::new(Outcome::TooLarge)
            .with(Flags::SHADOW, self.is_shadow())
            .with(Flags::BLOCK, self.has_block())
            .with_warning_of(self.flags)
            .with_level(self.block_level());
        Self { flags, retry: Wait::NEVER, ..self }
    }

    /// Returns the verdict that the next charge would get. If the outcome is a denial that blocked
    /// the subject, the outcome for the next charge is [`Outcome::Blocked`].
    pub(crate) fn for_next_charge(self) -> Self {
        if self.outcome() != Outcome::Denied || !self.has_block() {
            return self;
        }
        let flags = self.flags.with(Flags::DENIED, false).with(Flags::BLOCKED, true);
        Self { flags, ..self }
    }
}

/// Returns `true` if the used amount is at least this percentage of the limit, which is above 0.
#[inline]
pub(crate) fn reaches(percent: u64, used: u64, limit: u64) -> bool {
    // Both amounts are at most 2^53, so the products fit. A store of another author can state any
    // amount.
    limit > 0 && used.saturating_mul(100) >= limit.saturating_mul(percent)
}

/// Two verdicts are equal if their numbers and their warnings are equal, regardless of how the
/// warnings are stored.
impl PartialEq for Verdict {
    fn eq(&self, other: &Self) -> bool {
        let fields = |verdict: &Self| {
            let Self { flags, limit, remaining_or_block, retry, reset } =
                verdict.with_fixed_warning();
            (flags, limit, remaining_or_block, retry, reset)
        };
        fields(self) == fields(other)
    }
}

impl Eq for Verdict {}

impl fmt::Debug for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verdict")
            .field("outcome", &self.outcome())
            .field("limit", &self.limit)
            .field("remaining", &self.remaining())
            .field("retry", &self.retry)
            .field("reset", &self.reset)
            .field("blocked", &self.blocked_micros())
            .field("level", &self.block_level())
            .field("shadow", &self.is_shadow())
            .field("warns", &self.warns())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_that_has_recovered_does_not_warn() {
        let verdict = Verdict::new(Outcome::Allowed, 9).with_remaining(1).with_warning(true);
        let verdict = verdict.with_reset_after(Duration::from_micros(5));
        assert_eq!((verdict.later(4).remaining(), verdict.later(4).warns()), (1, true));
        assert_eq!((verdict.later(5).remaining(), verdict.later(5).warns()), (9, false));
    }

    #[cfg(feature = "tokio")]
    #[test]
    fn a_charge_that_the_rest_of_a_chunk_admits_still_warns() {
        let denied = Verdict::new(Outcome::Denied, 9).with_warning(true).with_remaining(1);
        let admitted = denied.with_more_remaining(2, 9, 3);
        assert_eq!((admitted.outcome(), admitted.warns()), (Outcome::Allowed, true));
        assert!(!denied.with_warning(false).with_more_remaining(2, 9, 3).warns());
    }
}
