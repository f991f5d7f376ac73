//! Policies: a name, an algorithm, its numbers, and what a refusal leads to.
//!
//! A policy that exists works: numbers that could overflow, divide by zero or round wrongly are rejected when it is
//! built, with an error that names the value and the bound.

mod closest;
#[cfg(feature = "tokio")]
mod delayed;
mod error;
mod parse;
mod print;
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
pub(crate) use crate::algorithm::shape::StateShape;
pub use error::PolicyError;
pub use shards::{MAX_SHARDS, Shard, Shards};
pub use share::Share;
pub use spec::{Algorithm, FixedWindow, SlidingCounter, SlidingLog, TokenBucket};
pub use state_name::StateName;

use crate::hash::{mix, stable_hash};
use crate::time::{micros_of, micros_of_ceil};

/// The default maximum of open [holds](crate::Hold) on one state of a policy with
/// [`Policy::refund_lapsed`].
///
/// 1,000 open holds take about 600 kB in Redis, with their records. If all of them lapse together,
/// the next call refunds all of them.
pub const DEFAULT_MAX_OPEN_HOLDS: u32 = 1_000;

/// The maximum that a policy can allow with [`Policy::max_open_holds_of`]. It bounds how long one
/// script call blocks Redis when all holds lapse together.
pub const MAX_OPEN_HOLDS: u32 = 100_000;

/// The longest name of a policy, in bytes.
pub const MAX_NAME: usize = 64;

/// A rate-limit policy. Cheap to clone: clones share one allocation.
///
/// # What happens to what was used when a policy changes
///
/// A store keeps states under the policy's name and the **shape** of its states: the algorithm and its
/// window (and grain, period, start). [`state_name`](Self::state_name) shows both.
///
/// | what changes | what was used |
/// |---|---|
/// | the limit, a bucket's capacity or rate, `block`, `shadow` | stays used; the next decision goes by the new numbers |
/// | the window, the grain, the period of `by-interval` | is left under the old shape; the new one starts fresh |
/// | the algorithm | the same; `token-bucket` and `gcra` are one algorithm |
/// | `shards` | keeps its old states; the new shards start fresh |
/// | the name | is left under the old name; the new one starts fresh |
///
/// So two settings of one name that take turns on one store (a rolling deploy, plans with different
/// windows) never admit more than both limits together, and each keeps its own count. A block belongs
/// to the state: it survives a changed number, and does not reach another shape. States of a shape that
/// is no longer used expire by themselves.
///
/// A bucket whose rate is lowered counts as full from the time at which it would have been full at the
/// rate that it was last charged under.
///
/// # Names
///
/// A policy without a name ([`unnamed`](Self::unnamed), or text without `name:`) is named by its whole
/// text, `fixed-window 100/1m`. So two of them share states only if they are equal, and any change
/// starts fresh. Name a policy whose numbers may change.
///
/// ```
/// use std::time::Duration;
/// use tidegate_core::{Policy, SlidingLog, TokenBucket};
///
/// // At most 5 in any 15 minutes; a refusal blocks the subject for 15 minutes.
/// let login = Policy::new("login", SlidingLog::new(5, Duration::from_secs(900)))?
///     .block_for(Duration::from_secs(900))?;
///
/// // 10 a second on average, up to 100 at once after a rest.
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
    /// As given; the whole text of a policy without a name.
    name: Box<str>,
    is_named: bool,
    algorithm: Algorithm,
    rule: Rule,
    state_hash: u64,
    settings_hash: u64,
    /// Microseconds; 0 for none.
    block_for: u64,
    shadow: bool,
    max_hold: Option<Share>,
    refunds_lapsed: bool,
    max_open_holds: u32,
    split: Option<Box<split::Split>>,
    /// The shard whose share this is.
    shard: Option<Shard>,
}

impl Policy {
    /// A policy.
    ///
    /// # Errors
    ///
    /// If the name is not 1 to [`MAX_NAME`] ASCII letters, digits, `_`, `-` or `.`; or if the
    /// algorithm's numbers are outside of the bounds under which every decision is exact.
    pub fn new(name: &str, algorithm: impl Into<Algorithm>) -> Result<Self, PolicyError> {
        check_name(name).map_err(|error| error.about(error::Part::Name))?;
        Self::with_name(Some(name), algorithm.into())
    }

    /// A policy without a name: its [`name`](Self::name) is its whole text, so that it shares states
    /// with equal policies only.
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
    /// If the algorithm's numbers are outside of the bounds under which every decision is exact.
    pub fn unnamed(algorithm: impl Into<Algorithm>) -> Result<Self, PolicyError> {
        Self::with_name(None, algorithm.into())
    }

    /// A policy with a name that was checked, or without one.
    fn with_name(name: Option<&str>, algorithm: Algorithm) -> Result<Self, PolicyError> {
        let rule = Rule::new(&algorithm)?;
        let mut policy = Self(Arc::new(Inner {
            name: name.unwrap_or_default().into(),
            is_named: name.is_some(),
            algorithm,
            rule,
            state_hash: 0,
            settings_hash: 0,
            block_for: 0,
            shadow: false,
            max_hold: None,
            refunds_lapsed: false,
            max_open_holds: DEFAULT_MAX_OPEN_HOLDS,
            split: None,
            shard: None,
        }));
        policy.refresh_identity();
        Ok(policy)
    }

    /// A policy of the same name, or without one as this one, with another algorithm.
    fn with_algorithm(&self, algorithm: impl Into<Algorithm>) -> Result<Self, PolicyError> {
        Self::with_name(self.is_named().then(|| self.name()), algorithm.into())
    }

    /// The same policy, but a refusal blocks the subject for `span`. Refusals during a block do not extend it. A cost
    /// that can never be admitted does not block.
    ///
    /// # Errors
    ///
    /// If `span` is shorter than a microsecond or longer than 2^51 µs (71 years); or if the limit is
    /// split over [shards](Self::sharded).
    pub fn block_for(mut self, span: Duration) -> Result<Self, PolicyError> {
        let micros = span::check("block", span)?;
        if self.shards().is_some_and(Shards::split) {
            return Err(split::block_excludes_shards());
        }
        self.change(&|inner| inner.block_for = micros);
        Ok(self)
    }

    /// The same policy as a shadow: counted and reported as if it were in force, never refusing.
    #[must_use]
    pub fn shadow(mut self) -> Self {
        self.change(&|inner| inner.shadow = true);
        self
    }

    /// The same policy, of which one [hold](crate::Hold) takes at most a share of the limit: one caller with a large
    /// estimate does not reserve all of it. The text is `max-hold 1/4`.
    ///
    /// # Errors
    ///
    /// If the share is 0.
    pub fn max_hold_of(mut self, share: Share) -> Result<Self, PolicyError> {
        if share.min_whole().is_none() {
            let message = format!("a maximum hold of {share} of the limit allows none");
            return Err(PolicyError::new(message).about(error::Part::MaxHold));
        }
        self.change(&|inner| inner.max_hold = Some(share));
        Ok(self)
    }

    /// Returns the same policy, which refunds the unspent part of a [hold](crate::Hold) immediately
    /// when the hold lapses. No job sweeps. Without this option, a hold stays charged until it is
    /// settled. The text is `refund-lapsed`.
    ///
    /// A settlement after that charges the actual cost, less the part that was not refunded.
    ///
    /// Each state of such a policy records its holds, so their number is bounded: see
    /// [`max_open_holds_of`](Self::max_open_holds_of).
    #[must_use]
    pub fn refund_lapsed(mut self) -> Self {
        self.change(&|inner| inner.refunds_lapsed = true);
        self
    }

    /// Returns the same policy with another maximum of open [holds](crate::Hold) on one state, so
    /// on one subject. A hold is open until it is settled or lapses. The text is
    /// `max-open-holds 200`.
    ///
    /// One more hold fails with [`ErrorKind::TooManyHolds`](crate::ErrorKind::TooManyHolds), and
    /// nothing is charged. The bound applies to policies with
    /// [`refund_lapsed`](Self::refund_lapsed) only, because other states do not record their holds.
    /// The default is [`DEFAULT_MAX_OPEN_HOLDS`].
    ///
    /// # Errors
    ///
    /// Returns an error if `count` is 0 or above [`MAX_OPEN_HOLDS`], or if the policy does not
    /// refund lapsed holds.
    pub fn max_open_holds_of(mut self, count: u32) -> Result<Self, PolicyError> {
        let problem = if !self.refunds_lapsed() {
            "`max-open-holds` needs `refund-lapsed`: other policies do not count their holds"
                .to_owned()
        } else if !(1..=MAX_OPEN_HOLDS).contains(&count) {
            format!("max-open-holds is {count}; it must be from 1 to {MAX_OPEN_HOLDS}")
        } else {
            self.change(&|inner| inner.max_open_holds = count);
            return Ok(self);
        };
        Err(PolicyError::new(problem).about(error::Part::MaxOpenHolds))
    }

    /// Changes the policy and its shares.
    fn change(&mut self, change: &dyn Fn(&mut Inner)) {
        let inner = Arc::make_mut(&mut self.0);
        change(inner);
        for share in inner.shares_mut() {
            change(Arc::make_mut(&mut share.0));
        }
        self.refresh_identity();
    }

    /// Computes the name of a policy without one, and the hashes.
    fn refresh_identity(&mut self) {
        let text = print::Unnamed(self).to_string();
        let inner = Arc::make_mut(&mut self.0);
        inner.set_identity(&text, &text);
        for share in inner.shares_mut() {
            let settings = print::Unnamed(share).to_string();
            Arc::make_mut(&mut share.0).set_identity(&text, &settings);
        }
    }

    /// The name in metrics, messages and settings: as given, or the whole text of a policy
    /// [without a name](Self::unnamed).
    #[must_use]
    #[inline]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Whether the policy was given a name.
    #[must_use]
    #[inline]
    pub fn is_named(&self) -> bool {
        self.0.is_named
    }

    /// The policy's text without its name.
    pub(crate) fn text_without_name(&self) -> impl fmt::Display + '_ {
        print::Unnamed(self)
    }

    /// The name under which a store keeps the policy's states, besides the tenant and the subject.
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

    /// A hash of the [`state_name`](Self::state_name), computed once per policy.
    #[doc(hidden)]
    #[must_use]
    #[inline]
    pub fn state_hash(&self) -> u64 {
        self.0.state_hash
    }

    /// Returns a hash of the name and all settings, computed once per policy. Unlike the
    /// [`state_hash`](Self::state_hash), it changes with each number.
    #[cfg(feature = "tokio")]
    #[inline]
    pub(crate) fn settings_hash(&self) -> u64 {
        self.0.settings_hash
    }

    /// Whether both policies have the same states: equal [`state_name`](Self::state_name)s, compared without building
    /// the text.
    #[must_use]
    #[inline]
    pub fn shares_state_with(&self, other: &Self) -> bool {
        self.is_same_object(other)
            || self.0.state_hash == other.0.state_hash
                && self.0.name == other.0.name
                && self.0.shard == other.0.shard
                && self.rule().shape() == other.rule().shape()
    }

    /// The algorithm, as it was configured.
    #[must_use]
    pub fn algorithm(&self) -> &Algorithm {
        &self.0.algorithm
    }

    /// The algorithm, compiled into exact integers.
    #[must_use]
    #[inline]
    pub fn rule(&self) -> &Rule {
        &self.0.rule
    }

    /// The maximum that is ever admitted at one instant: the limit of a window, the capacity of a bucket.
    #[must_use]
    #[inline]
    pub fn limit(&self) -> u64 {
        self.0.rule.limit()
    }

    /// The time in which the [limit](Self::limit) counts: the window, or the time in which an empty bucket
    /// fills.
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

    /// How long a refusal blocks the subject, if it does.
    #[must_use]
    pub fn block_duration(&self) -> Option<Duration> {
        (self.0.block_for > 0).then(|| Duration::from_micros(self.0.block_for))
    }

    /// The maximum that one [hold](crate::Hold) may take, if it is less than the limit: at least 1.
    #[must_use]
    pub fn max_hold(&self) -> Option<u64> {
        self.0.max_hold.map(|share| share.apply(self.limit()).max(1))
    }

    /// Whether what a hold has not spent is [given back](Self::refund_lapsed) once its time is over.
    #[must_use]
    pub fn refunds_lapsed(&self) -> bool {
        self.0.refunds_lapsed
    }

    /// Returns the [maximum of open holds](Self::max_open_holds_of) on one state of a policy that
    /// [refunds lapsed holds](Self::refund_lapsed).
    #[must_use]
    pub fn max_open_holds(&self) -> u32 {
        self.0.max_open_holds
    }

    /// The share of the limit that one hold may take, if it is bounded.
    pub(crate) fn max_hold_share(&self) -> Option<Share> {
        self.0.max_hold
    }

    /// Whether the policy only reports what it would refuse.
    #[must_use]
    #[inline]
    pub fn is_shadow(&self) -> bool {
        self.0.shadow
    }

    /// The maximum time for which a state of this policy matters after it was last charged, unless a reservation, a
    /// block or an earlier limit made it last longer.
    #[must_use]
    pub fn max_retention(&self) -> Duration {
        Duration::from_micros(self.0.rule.max_retention())
    }

    /// Returns `true` if both are clones of one policy object. This is faster than `==`. Two
    /// different objects may still be equal.
    #[must_use]
    #[inline]
    pub fn is_same_object(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The address of the policy object: equal for two policies iff they are [one object](Self::is_same_object).
    #[doc(hidden)]
    #[must_use]
    #[inline]
    pub fn address(&self) -> NonNull<()> {
        NonNull::from(&*self.0).cast()
    }

    /// Bytes of the policy object, with its reference counts.
    pub(crate) fn heap_bytes(&self) -> usize {
        let shares: usize =
            self.shares().iter().map(|it| size_of::<Self>() + it.heap_bytes()).sum();
        let split = if self.0.split.is_some() { size_of::<split::Split>() } else { 0 };
        2 * size_of::<usize>() + size_of::<Inner>() + self.0.name.len() + split + shares
    }

    #[inline]
    pub(crate) fn block_micros(&self) -> u64 {
        self.0.block_for
    }
}

/// Equal policies have equal hashes. Not the [`state_hash`](Policy::state_hash), which stays the same when a
/// number changes.
impl Hash for Policy {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.0.name.hash(hasher);
        self.0.algorithm.hash(hasher);
        self.0.block_for.hash(hasher);
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

    /// Sets the name, if none was given, and the hashes. `settings` is the text of this policy.
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

/// Reads a span of time as the policy grammar writes it: `250ms`, `90s`, `1m`, `1h30m`, `7d`.
///
/// # Errors
///
/// If the text is not a valid span, or one of 0 or of more than 2^51 µs (71 years).
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

/// Writes a span as the policy grammar does: the shortest text that [`parse_duration`] reads back, in whole
/// microseconds, rounded up. Zero is `0s`, which no policy has.
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
            "the name `{}` has {} bytes; a name has 1 to {MAX_NAME}",
            name.escape_debug().take(MAX_NAME).collect::<String>(),
            name.len(),
        )));
    }
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    match name.chars().find(|&c| !fits(c)) {
        None => Ok(()),
        Some(c) => Err(PolicyError::new(format!(
            "the name `{}` has a {c:?} in it; names are ASCII letters, digits, `_`, `-` and `.`",
            name.escape_debug(),
        ))),
    }
}

/// Rejects a number above the exact range.
fn check_exact(what: &str, value: u64) -> Result<u64, PolicyError> {
    if value <= crate::time::MAX_EXACT {
        return Ok(value);
    }
    Err(PolicyError::new(format!("the {what} {value} is above 2^52 = {}", crate::time::MAX_EXACT)))
}

/// The span that `micros_of` would give, for messages.
fn show_micros(micros: u64) -> String {
    span::Micros(micros).to_string()
}

/// Whole microseconds of a window, a period or a block.
fn whole_micros(what: &str, span: Duration) -> Result<u64, PolicyError> {
    if !span.subsec_nanos().is_multiple_of(1_000) {
        return Err(PolicyError::new(format!(
            "the {what} {span:?} is not a whole number of microseconds"
        )));
    }
    Ok(micros_of(span))
}
