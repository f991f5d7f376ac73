//! Policies. A policy has a name, an algorithm with its numbers, and the effect of a denial.
//!
//! Every `Policy` value is valid. A policy cannot be built if its numbers could overflow, divide by
//! zero or round wrongly. The error then names the wrong value and its bound.

mod beyond_limit;
mod block;
mod closest;
#[cfg(feature = "tokio")]
mod delayed;
mod error;
mod parse;
mod print;
mod quota;
mod rule;
#[cfg(feature = "serde")]
mod serde;
mod shards;
mod share;
mod span;
mod spec;
mod split;
mod state_name;

use std::fmt;
use std::hash::{Hash, Hasher};
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

pub(crate) use crate::algorithm::rule::Rule;
pub use block::Block;
pub use error::PolicyError;
pub(crate) use error::shown;
pub use quota::Quota;
pub use shards::{MAX_SHARDS, Shard, Shards};
pub use share::Share;
pub use spec::{
    Algorithm, Concurrent, FairPool, FixedWindow, SlidingCounter, SlidingLog, TokenBucket,
};
pub use state_name::StateName;

use crate::hash::{mix, stable_hash};
use crate::time::micros_of_ceil;

/// The default maximum of open [holds](crate::Hold) on one state of a policy with
/// [`Policy::refund_lapsed`].
///
/// 1,000 open holds and their remembered calls take about 600 kB in Redis. If all of these holds
/// lapse together, the next call to the state refunds all of them.
pub const DEFAULT_MAX_OPEN_HOLDS: u32 = 1_000;

/// The largest number that [`Policy::max_open_holds_of`] accepts. If all holds of a state lapse
/// together, one script call refunds all of them and blocks Redis during this time. The maximum
/// bounds this time.
pub const MAX_OPEN_HOLDS: u32 = 100_000;

/// The maximum length of a policy's name, in bytes.
pub const MAX_NAME: usize = 64;

/// A rate-limit policy. It is cheap to clone, because clones share one allocation.
///
/// # Changing a policy
///
/// A store keeps states under the policy's name and the **shape** of its states. The shape is the
/// algorithm with its window, grain, period and start. [`state_name`](Self::state_name) shows the
/// name and the shape. The next table shows how a change affects the usage that was charged before:
///
/// | change | usage so far |
/// |---|---|
/// | the limit, a bucket's capacity or rate, a weight, `block`, `shadow`, `leased`, `warn` | is kept; the new numbers apply to the next decision |
/// | the window, the grain, the period of `by-interval` | stays in the old state; the new state starts without usage |
/// | the algorithm | stays in the old state; the new state starts without usage (`token-bucket` and `gcra` are one algorithm) |
/// | `shards` | stays in the old states; the new shards start without usage |
/// | the name | stays under the old name; the new name starts without usage |
///
/// Requests to one store can alternate between two policies with the same name and different
/// settings, for example during a rolling deploy. If the shapes of the two policies differ, each
/// policy keeps its own count. So together they never admit more than the sum of their limits.
///
/// A block belongs to a state. So it stays in effect if only the limit or the rate changes, and has
/// no effect under another shape. States of a shape that is no longer used expire.
///
/// If the rate of a bucket is lowered, a bucket that is not full still becomes full at the same
/// time as before. This time is computed from the rate at the bucket's last charge.
///
/// # Names
///
/// A policy without a name uses its whole text as its name, for example `fixed-window 100/1m`. Such
/// a policy is created by [`unnamed`](Self::unnamed), or from text without `name:`. Two unnamed
/// policies share states only if they are equal, so after any change the usage starts at zero. Give
/// a name to a policy if its numbers can change.
///
/// ```
/// use std::time::Duration;
/// use tidegate_core::{Policy, SlidingLog, TokenBucket};
///
/// // At most 5 in any 15 minutes. A denial blocks the subject for 15 minutes.
/// let login = Policy::new("login", SlidingLog::new(5, Duration::from_secs(900)))?
///     .block_for(Duration::from_secs(900))?;
///
/// // 10 a second on average, and up to 100 at one instant after an idle period.
/// let api = Policy::new("api", TokenBucket::new(10, Duration::from_secs(1)).burst(100))?;
///
/// // The same, as text.
/// assert_eq!(login, "login: sliding-log 5/15m block 15m".parse()?);
/// assert_eq!(api.to_string(), "api: token-bucket 10/1s burst 100");
/// # Ok::<(), tidegate_core::PolicyError>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Policy(Arc<Inner>);

#[derive(Clone, PartialEq, Eq)]
struct Inner {
    /// The given name. For a policy without a name, this is the whole text of the policy.
    name: Box<str>,
    is_named: bool,
    algorithm: Algorithm,
    rule: Rule,
    state_hash: u64,
    settings_hash: u64,
    /// Boxed, because most policies have no block.
    block: Option<Box<Block>>,
    shadow: bool,
    leased: bool,
    /// The percentage of the limit from which decisions warn.
    warn: Option<u8>,
    /// The percentage that verdicts contain: 0 if no decision warns, or if the policy is a quota.
    /// The total of a quota can differ from its limit, so the engine computes its warnings.
    warn_in_verdicts: u8,
    max_hold: Option<Share>,
    lapse: Lapse,
    max_open_holds: u32,
    split: Option<Box<split::Split>>,
    /// The shard to which this policy belongs, if this policy is a share of another policy.
    shard: Option<Shard>,
    /// The amount by which the limit of the rule is above the limit of the algorithm: see
    /// [`Policy::beyond_limit`].
    raise: Option<u64>,
}

/// The effect of a lapse on the unspent part of the hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lapse {
    /// It stays charged, and the state does not store the hold.
    Stays,
    /// It is [refunded](Policy::refund_lapsed).
    Refunds,
    /// It stays charged, as a [failure](Policy::count_failures).
    IsFailure,
}

impl Policy {
    /// Creates a policy.
    ///
    /// # Errors
    ///
    /// Returns an error if the name is not 1 to [`MAX_NAME`] ASCII letters, digits, `_`, `-` or
    /// `.`. Also returns an error if the numbers of the algorithm are outside of the bounds within
    /// which every decision is exact.
    pub fn new(name: &str, algorithm: impl Into<Algorithm>) -> Result<Self, PolicyError> {
        check_name(name).map_err(|error| error.about(error::Part::Name))?;
        Self::with_name(Some(name), algorithm.into())
    }

    /// Creates a policy without a name. Its [`name`](Self::name) is the whole text of the policy,
    /// so that the policy shares states only with equal policies.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate_core::{FixedWindow, Policy};
    ///
    /// let policy = Policy::unnamed(FixedWindow::new(100, Duration::from_secs(60)))?;
    /// assert_eq!(policy.name(), "fixed-window 100/1m");
    /// assert_eq!(policy, "fixed-window 100/1m".parse()?);
    /// # Ok::<(), tidegate_core::PolicyError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error if the numbers of the algorithm are outside of the bounds within which
    /// every decision is exact.
    pub fn unnamed(algorithm: impl Into<Algorithm>) -> Result<Self, PolicyError> {
        Self::with_name(None, algorithm.into())
    }

    fn with_name(name: Option<&str>, algorithm: Algorithm) -> Result<Self, PolicyError> {
        let rule = Rule::new(&algorithm)?;
        let mut policy = Self(Arc::new(Inner {
            name: name.unwrap_or_default().into(),
            is_named: name.is_some(),
            algorithm,
            rule,
            state_hash: 0,
            settings_hash: 0,
            block: None,
            shadow: false,
            leased: false,
            warn: None,
            warn_in_verdicts: 0,
            max_hold: None,
            lapse: Lapse::Stays,
            max_open_holds: DEFAULT_MAX_OPEN_HOLDS,
            split: None,
            shard: None,
            raise: None,
        }));
        policy.refresh_identity();
        Ok(policy)
    }

    /// Creates a policy with this policy's name and another algorithm. All other settings have
    /// their default values.
    fn with_algorithm(&self, algorithm: impl Into<Algorithm>) -> Result<Self, PolicyError> {
        Self::with_name(self.is_named().then(|| self.name()), algorithm.into())
    }

    /// Sets a block: a denial blocks the subject for `span`. Denials during a block do not extend
    /// the block. A cost that is larger than the limit is denied, but does not block the subject.
    ///
    /// # Errors
    ///
    /// Returns an error if `span` is shorter than a microsecond or longer than 2^51 µs (71 years).
    /// Also returns an error if the limit is split over [shards](Self::sharded), or if the policy
    /// is a [fair pool](FairPool).
    pub fn block_for(self, span: Duration) -> Result<Self, PolicyError> {
        self.block_with(Block::new(span))
    }

    /// Sets a block like [`block_for`](Self::block_for), which can also grow with each offense or
    /// restart with each refusal: see [`Block`].
    ///
    /// # Errors
    ///
    /// Returns an error if a span of the block is shorter than a microsecond or longer than 2^51 µs
    /// (71 years), if the maximum length is not more than the length of the first block, or if the
    /// factor is not from 2 to [`Block::MAX_FACTOR`]. Also returns an error if the limit is split
    /// over [shards](Self::sharded), or if the policy is a [fair pool](FairPool).
    pub fn block_with(mut self, block: Block) -> Result<Self, PolicyError> {
        block.check()?;
        if self.is_fair_pool() {
            let message = "a fair pool cannot block: its state belongs to all its members";
            return Err(PolicyError::new(message).about(error::Part::Block));
        }
        if self.shards().is_some_and(Shards::split) {
            return Err(split::block_excludes_shards());
        }
        self.change(&|inner| inner.block = Some(Box::new(block)));
        Ok(self)
    }

    /// Makes the policy a shadow: the store counts and reports its verdicts, but the policy never
    /// refuses a call.
    #[must_use]
    pub fn shadow(mut self) -> Self {
        self.change(&|inner| inner.shadow = true);
        self
    }

    /// Marks the policy for leases. A store that leases only marked policies (`Lease::only_marked`)
    /// then leases this policy. Other stores ignore the mark. In the text of a policy, this setting
    /// is `leased`.
    #[must_use]
    pub fn leased(mut self) -> Self {
        self.change(&|inner| inner.leased = true);
        self
    }

    /// Sets the percentage of the limit from which each decision
    /// [warns](crate::Decision::warnings). A warning refuses nothing. In the text of a policy, this
    /// setting is `warn 80%`.
    ///
    /// The percentage counts on the limit, the open grants and the rolled-over quota together. With
    /// [shards](Self::sharded), it counts on the limit of the shard that decides. An amount that
    /// another process has [leased](Self::leased) counts as used. A blocked subject does not warn.
    ///
    /// ```
    /// use tidegate_core::{Call, Charge, Policy};
    /// use tidegate_memory::MemoryStore;
    ///
    /// let policy = "api: fixed-window 10/1h".parse::<Policy>()?.warn_at(80)?;
    /// assert_eq!(policy, "api: fixed-window 10/1h warn 80%".parse()?);
    ///
    /// let store = MemoryStore::new();
    /// for (cost, warns) in [(7, false), (1, true), (9, true)] {
    ///     let charges = [Charge::new(&policy, "alice").cost(cost)];
    ///     let decision = store.decide_now(&Call::acquire(&charges))?;
    ///     assert_eq!(decision.warnings().count() > 0, warns);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error if the percentage is not from 1 to 100.
    pub fn warn_at(mut self, percent: u8) -> Result<Self, PolicyError> {
        if !(1..=100).contains(&percent) {
            let message = format!("the percentage of `warn` is {percent}; it must be 1 to 100");
            return Err(PolicyError::new(message).about(error::Part::Warn));
        }
        let in_verdicts = if self.is_quota() { 0 } else { percent };
        self.change(&|inner| {
            inner.warn = Some(percent);
            inner.warn_in_verdicts = in_verdicts;
        });
        Ok(self)
    }

    /// Bounds the size of one [hold](crate::Hold) by a share of the limit, so that one caller with
    /// a large estimate does not reserve the whole limit. In the text of a policy, this setting is
    /// `max-hold 1/4`.
    ///
    /// # Errors
    ///
    /// Returns an error if the share is 0.
    pub fn max_hold_of(mut self, share: Share) -> Result<Self, PolicyError> {
        if share.min_whole().is_none() {
            let message = format!("a maximum hold of {share} of the limit allows none");
            return Err(PolicyError::new(message).about(error::Part::MaxHold));
        }
        self.change(&|inner| inner.max_hold = Some(share));
        Ok(self)
    }

    /// Refunds the unspent part of a [hold](crate::Hold) immediately when the hold lapses, without
    /// a background job. Without this setting, a hold stays charged until it is settled. In the
    /// text of a policy, this setting is `refund-lapsed`.
    ///
    /// If a hold is settled after its lapse, the settlement charges the actual cost, less the part
    /// of the hold that was not refunded.
    ///
    /// [Slots](Concurrent) are always refunded, so the setting does not change a policy of slots.
    /// It does not change a [fair pool](FairPool) either, whose states store no holds.
    ///
    /// Each state of a policy with this setting stores its open holds. Therefore the number of open
    /// holds is bounded: see [`max_open_holds_of`](Self::max_open_holds_of).
    #[must_use]
    pub fn refund_lapsed(mut self) -> Self {
        if !self.is_concurrent() && !self.is_fair_pool() {
            self.change(&|inner| inner.lapse = Lapse::Refunds);
        }
        self
    }

    /// Counts failures, such as wrong passwords: each [hold](crate::Hold) of the policy is an
    /// attempt, which is settled at zero if it succeeds. In the text of a policy, this setting is
    /// `count-failures`. `attempt` of a request makes such holds.
    ///
    /// * An attempt that lapses without a settlement stays charged, because it counts as a failure.
    /// * A denial is not an offense if the policy would admit the request without the open
    ///   attempts. So six correct logins at the same time do not block an account with a limit of
    ///   five.
    ///
    /// The last hold on a state determines whether these rules apply to the state. Each state
    /// stores its open attempts, so their number is bounded like the number of open holds of
    /// [`refund_lapsed`](Self::refund_lapsed), which this setting replaces. The setting does not
    /// change a policy of [slots](Concurrent) or a [fair pool](FairPool).
    #[must_use]
    pub fn count_failures(mut self) -> Self {
        if !self.is_concurrent() && !self.is_fair_pool() {
            self.change(&|inner| inner.lapse = Lapse::IsFailure);
        }
        self
    }

    /// Sets the maximum number of open [holds](crate::Hold) on one state, which usually belongs to
    /// one subject. A hold is open until it is settled or lapses. In the text of a policy, this
    /// setting is `max-open-holds 200`.
    ///
    /// If a state has the maximum number of open holds, the next hold fails with
    /// [`ErrorKind::TooManyHolds`](crate::ErrorKind::TooManyHolds), and nothing is charged. Only
    /// policies that [store their holds](Self::stores_holds) have this bound. The default is
    /// [`DEFAULT_MAX_OPEN_HOLDS`].
    ///
    /// # Errors
    ///
    /// Returns an error if `count` is 0 or above [`MAX_OPEN_HOLDS`], or if the policy has neither
    /// [`refund_lapsed`](Self::refund_lapsed) nor [`count_failures`](Self::count_failures).
    pub fn max_open_holds_of(mut self, count: u32) -> Result<Self, PolicyError> {
        let problem = if self.0.lapse == Lapse::Stays {
            "`max-open-holds` needs `refund-lapsed` or `count-failures`: other policies do not count their holds"
                .to_owned()
        } else if !(1..=MAX_OPEN_HOLDS).contains(&count) {
            format!("max-open-holds is {count}; it must be from 1 to {MAX_OPEN_HOLDS}")
        } else {
            self.change(&|inner| inner.max_open_holds = count);
            return Ok(self);
        };
        Err(PolicyError::new(problem).about(error::Part::MaxOpenHolds))
    }

    fn change(&mut self, change: &dyn Fn(&mut Inner)) {
        let inner = Arc::make_mut(&mut self.0);
        change(inner);
        for share in inner.shares_mut() {
            change(Arc::make_mut(&mut share.0));
        }
        self.refresh_identity();
    }

    /// Updates the hashes after a change of the settings. If the policy has no given name, also
    /// updates the name, because the name is the text of the policy.
    fn refresh_identity(&mut self) {
        let text = print::Unnamed(self).to_string();
        let inner = Arc::make_mut(&mut self.0);
        inner.set_identity(&text, &text);
        for share in inner.shares_mut() {
            let settings = print::Unnamed(share).to_string();
            Arc::make_mut(&mut share.0).set_identity(&text, &settings);
        }
    }

    /// Returns the name of the policy in metrics, messages and settings. For a policy [without a
    /// name](Self::unnamed), this is the whole text of the policy.
    #[must_use]
    #[inline]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Returns `true` if the policy has a given name.
    #[must_use]
    #[inline]
    pub fn is_named(&self) -> bool {
        self.0.is_named
    }

    pub(crate) fn text_without_name(&self) -> impl fmt::Display + '_ {
        print::Unnamed(self)
    }

    /// Returns the name of the policy's states. A store keeps a state under this name, the tenant
    /// and the subject.
    ///
    /// ```
    /// use tidegate_core::Policy;
    ///
    /// let login: Policy = "login: sliding-log 5/15m block 1h".parse()?;
    /// assert_eq!(login.state_name().to_string(), "login:log.15m");
    /// let plain: Policy = "sliding-log 5/15m".parse()?;
    /// assert_eq!(plain.state_name().to_string(), "sliding-log 5/15m");
    /// # Ok::<(), tidegate_core::PolicyError>(())
    /// ```
    #[must_use]
    pub fn state_name(&self) -> StateName<'_> {
        StateName::new(self)
    }

    /// Returns a hash of the [`state_name`](Self::state_name). The hash is computed once per
    /// policy.
    #[doc(hidden)]
    #[must_use]
    #[inline]
    pub fn state_hash(&self) -> u64 {
        self.0.state_hash
    }

    /// Returns a hash of the name and all settings. The hash is computed once per policy. Unlike
    /// the [`state_hash`](Self::state_hash), this hash changes if any number of the policy changes.
    #[cfg(feature = "tokio")]
    #[inline]
    pub(crate) fn settings_hash(&self) -> u64 {
        self.0.settings_hash
    }

    /// Returns `true` if both policies have the same states, because their
    /// [`state_name`](Self::state_name)s are equal. The function compares the parts of the names,
    /// which is faster than building the names.
    #[must_use]
    #[inline]
    pub fn shares_state_with(&self, other: &Self) -> bool {
        self.is_same_object(other)
            || self.0.state_hash == other.0.state_hash
                && self.0.name == other.0.name
                && self.0.shard == other.0.shard
                && self.rule().shape() == other.rule().shape()
    }

    /// Returns the algorithm with its numbers, as they were configured.
    #[must_use]
    pub fn algorithm(&self) -> &Algorithm {
        &self.0.algorithm
    }

    /// Returns the algorithm with its numbers, converted to exact integers.
    #[must_use]
    #[inline]
    pub fn rule(&self) -> &Rule {
        &self.0.rule
    }

    /// Returns the maximum that the policy ever admits at one instant: the limit of a window, or
    /// the capacity of a bucket.
    #[must_use]
    #[inline]
    pub fn limit(&self) -> u64 {
        self.0.rule.limit()
    }

    /// Returns the time over which the [limit](Self::limit) counts. This is the window, or for a
    /// bucket the time in which an empty bucket fills.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate_core::Policy;
    ///
    /// for text in ["fixed-window 100/1m", "sliding-log 100/1m", "token-bucket 10/1s burst 600"] {
    ///     assert_eq!(text.parse::<Policy>()?.window(), Duration::from_secs(60));
    /// }
    /// # Ok::<(), tidegate_core::PolicyError>(())
    /// ```
    #[must_use]
    pub fn window(&self) -> Duration {
        Duration::from_micros(self.0.rule.window())
    }

    /// Returns the block after a denial, or `None` if a denial does not block.
    #[must_use]
    #[inline]
    pub fn block(&self) -> Option<&Block> {
        self.0.block.as_deref().filter(|_| self.0.raise.is_none())
    }

    /// Returns how long the first denial blocks the subject, or `None` if a denial does not block.
    #[must_use]
    pub fn block_duration(&self) -> Option<Duration> {
        self.block().map(Block::span)
    }

    /// Returns the maximum size of one [hold](crate::Hold), which is at least 1. Returns `None` if
    /// the size of holds is not bounded.
    #[must_use]
    pub fn max_hold(&self) -> Option<u64> {
        self.0.max_hold.map(|share| share.apply(self.limit()).max(1))
    }

    /// Returns `true` if the unspent part of a hold is [refunded](Self::refund_lapsed) when the
    /// hold lapses. [Slots](Concurrent) are always refunded.
    #[must_use]
    pub fn refunds_lapsed(&self) -> bool {
        self.0.lapse == Lapse::Refunds || self.is_concurrent()
    }

    /// Returns `true` if the policy [counts failures](Self::count_failures).
    #[must_use]
    pub fn counts_failures(&self) -> bool {
        self.0.lapse == Lapse::IsFailure
    }

    /// Returns `true` if each state of the policy stores its open holds. This is the case with
    /// [`refund_lapsed`](Self::refund_lapsed), with [`count_failures`](Self::count_failures), and
    /// for [slots](Concurrent).
    #[must_use]
    pub fn stores_holds(&self) -> bool {
        self.0.lapse != Lapse::Stays || self.is_concurrent()
    }

    /// Returns `true` if the policy limits the number of requests at a time: see [`Concurrent`].
    #[must_use]
    #[inline]
    pub fn is_concurrent(&self) -> bool {
        self.rule().is_concurrent()
    }

    /// Returns `true` if charges under the policy can be [alternatives](crate::Charge::in_list). A
    /// policy that blocks, a shadow, and a policy whose requests can charge any shard cannot be
    /// alternatives.
    #[must_use]
    pub fn can_be_alternative(&self) -> bool {
        !self.blocks() && !self.is_shadow() && !self.can_use_any_shard()
    }

    /// Returns `true` if the policy is a [quota](Quota) or has [credits](Quota::credits).
    #[must_use]
    #[inline]
    pub fn is_quota(&self) -> bool {
        matches!(self.rule(), Rule::Quota(_))
    }

    /// Returns `true` if the policy is a [fair pool](FairPool).
    #[must_use]
    #[inline]
    pub fn is_fair_pool(&self) -> bool {
        matches!(self.rule(), Rule::FairPool(_))
    }

    /// Returns `true` if the policy has [credits](Quota::credits), which are never refilled.
    #[must_use]
    pub fn is_credits(&self) -> bool {
        matches!(self.algorithm(), Algorithm::Quota(quota) if quota.is_credits())
    }

    /// Returns the [maximum number of open holds](Self::max_open_holds_of) on one state. This
    /// maximum applies only to policies that [store their holds](Self::stores_holds). The number of
    /// holds with [slots](Concurrent) has no other bound than the number of slots, so the method
    /// returns `u32::MAX` for such a policy.
    #[must_use]
    pub fn max_open_holds(&self) -> u32 {
        if self.is_concurrent() { u32::MAX } else { self.0.max_open_holds }
    }

    pub(crate) fn max_hold_share(&self) -> Option<Share> {
        self.0.max_hold
    }

    /// Returns the percentage of the limit from which decisions [warn](Self::warn_at), or `None` if
    /// they never warn.
    #[must_use]
    #[inline]
    pub fn warn_percent(&self) -> Option<u8> {
        self.0.warn
    }

    /// Returns the percentage that the verdicts of the policy contain, or 0.
    #[inline]
    pub(crate) fn warn_in_verdicts(&self) -> u8 {
        self.0.warn_in_verdicts
    }

    /// Returns `true` if the policy is [marked](Self::leased) for leases.
    #[must_use]
    #[inline]
    pub fn is_leased(&self) -> bool {
        self.0.leased && self.0.raise.is_none()
    }

    /// Returns `true` if the policy is a shadow, which never refuses a call.
    #[must_use]
    #[inline]
    pub fn is_shadow(&self) -> bool {
        self.0.shadow
    }

    /// Returns the maximum time after the last charge until a state of this policy has recovered.
    /// After a reservation, a block or a change of the policy's numbers, a state can need longer.
    #[must_use]
    pub fn max_retention(&self) -> Duration {
        Duration::from_micros(self.0.rule.max_retention())
    }

    /// Returns `true` if both values are clones of one policy object. This check is faster than
    /// `==`. Two policies that are different objects can still be equal.
    #[must_use]
    #[inline]
    pub fn is_same_object(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Returns the address of the policy object. Two policies have the same address if and only if
    /// they are [the same object](Self::is_same_object).
    #[doc(hidden)]
    #[must_use]
    #[inline]
    pub fn address(&self) -> NonNull<()> {
        NonNull::from(&*self.0).cast()
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        let size = |share: &Self| size_of::<Self>() + share.heap_bytes();
        let shares: usize = self.shares().iter().map(size).sum();
        let split = if self.0.split.is_some() { size_of::<split::Split>() } else { 0 };
        let block = if self.0.block.is_some() { size_of::<Block>() } else { 0 };
        let quota = match &self.0.algorithm {
            Algorithm::Quota(spec) => size_of::<Quota>() + spec.zone.len(),
            _ => 0,
        };
        let own = 2 * size_of::<usize>() + size_of::<Inner>() + self.0.name.len();
        own + block + quota + split + shares
    }

    #[inline]
    pub(crate) fn blocks(&self) -> bool {
        self.block().is_some()
    }

    /// Returns `true` if a refusal during a block restarts the block.
    #[inline]
    pub(crate) fn restarts_block(&self) -> bool {
        self.block().is_some_and(Block::restarts)
    }
}

/// Equal policies have equal hashes. Unlike the [`state_hash`](Policy::state_hash), this hash also
/// depends on the limit and on the block.
impl Hash for Policy {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.0.name.hash(hasher);
        self.0.algorithm.hash(hasher);
        self.0.block.hash(hasher);
    }
}

impl TryFrom<&str> for Policy {
    type Error = PolicyError;

    fn try_from(text: &str) -> Result<Self, PolicyError> {
        text.parse()
    }
}

impl Inner {
    fn shares_mut(&mut self) -> impl Iterator<Item = &mut Policy> {
        self.split.as_deref_mut().into_iter().flat_map(|split| &mut split.shares)
    }

    /// Sets the hashes. If the policy has no given name, also sets its name to `name`, the text of
    /// the whole policy. `settings` is the text of this policy itself. It differs from `name` if
    /// this policy is a share.
    fn set_identity(&mut self, name: &str, settings: &str) {
        if !self.is_named {
            self.name = name.into();
        }
        let shard =
            self.shard.map_or(0, |shard| u64::from(shard.count) << 32 | u64::from(shard.index));
        let hash = mix(stable_hash([self.name.as_bytes()]), shard);
        self.state_hash = self.rule.shape().numbers().into_iter().fold(hash, mix);
        self.settings_hash = mix(self.state_hash, stable_hash([settings.as_bytes()]));
    }
}

/// Reads a span of time in the syntax of the policy grammar: `250ms`, `90s`, `1m`, `1h30m`, `7d`.
///
/// # Errors
///
/// Returns an error if the text is not a span, or if the span is 0 or longer than 2^51 µs (71
/// years).
///
/// ```
/// use std::time::Duration;
/// use tidegate_core::parse_duration;
///
/// assert_eq!(parse_duration("1h30m")?, Duration::from_secs(5400));
/// # Ok::<(), tidegate_core::PolicyError>(())
/// ```
pub fn parse_duration(text: &str) -> Result<Duration, PolicyError> {
    span::parse(text).map_err(|message| PolicyError::new(message).at(text, 0..text.len()))
}

/// Writes a span of time in the syntax of the policy grammar. The result is the shortest text that
/// [`parse_duration`] reads as this span. The span is rounded up to whole microseconds. A span of
/// zero is written as `0s`, although a policy cannot contain this span.
///
/// ```
/// use std::time::Duration;
/// use tidegate_core::format_duration;
///
/// assert_eq!(format_duration(Duration::from_secs(90)).to_string(), "90s");
/// assert_eq!(format_duration(Duration::from_secs(5400)).to_string(), "90m");
/// ```
pub fn format_duration(span: Duration) -> impl fmt::Display {
    span::Micros(micros_of_ceil(span))
}

fn check_name(name: &str) -> Result<(), PolicyError> {
    if name.is_empty() || name.len() > MAX_NAME {
        return Err(PolicyError::new(format!(
            "the name `{}` has {} bytes; it must have 1 to {MAX_NAME}",
            name.escape_debug().take(MAX_NAME).collect::<String>(),
            name.len(),
        )));
    }
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    match name.chars().find(|&c| !fits(c)) {
        None => Ok(()),
        Some(c) => Err(PolicyError::new(format!(
            "the name `{}` contains {c:?}; it must consist of ASCII letters, digits, `_`, `-` and `.`",
            name.escape_debug(),
        ))),
    }
}
