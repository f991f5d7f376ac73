//! Policies: a name, an algorithm, its numbers, and what a refusal leads to.
//!
//! A policy that exists is a policy that works: whatever could overflow, divide by zero or round
//! wrongly later is refused when it is built, with the value and the bound that it broke.

mod closest;
mod error;
mod parse;
mod print;
mod rule;
mod shards;
mod share;
mod span;
mod spec;
mod split;

use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

pub use error::PolicyError;
pub use rule::{Rule, Shape};
pub use shards::{MAX_SHARDS, Shard, Shards};
pub use share::Share;
pub use spec::{Algorithm, FixedWindow, Gcra, SlidingCounter, SlidingLog, TokenBucket};

use crate::hash::stable_hash;
use crate::time::micros_of;

/// The longest name of a policy, in bytes.
pub const MAX_NAME: usize = 64;

/// A rate-limit policy. Cheap to clone: clones share one allocation.
///
/// Two policies of one name share their states: build `login` anew with another limit, and what was
/// used stays used.
///
/// ```
/// use std::time::Duration;
/// use tidegate_core::{Policy, SlidingLog, TokenBucket};
///
/// // At most 5 in any 15 minutes; who overruns is shut out for 15 minutes.
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
    name: Box<str>,
    algorithm: Algorithm,
    rule: Rule,
    name_hash: u64,
    /// Microseconds; 0 for none.
    block_for: u64,
    shadow: bool,
    split: Option<Box<split::Split>>,
    /// Which shard this is the share of, and the length of the name without that.
    shard: Option<(Shard, usize)>,
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
        let algorithm = algorithm.into();
        let rule = Rule::new(&algorithm)?;
        let name_hash = stable_hash([name.as_bytes()]);
        Ok(Self(Arc::new(Inner {
            name: name.into(),
            algorithm,
            rule,
            name_hash,
            block_for: 0,
            shadow: false,
            split: None,
            shard: None,
        })))
    }

    /// The same policy, but a refusal shuts the subject out for `span`. Refusals while it is shut
    /// out do not extend it. A cost that could never pass does not shut out.
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

    /// Changes the policy and its shares.
    fn change(&mut self, change: &dyn Fn(&mut Inner)) {
        let inner = Arc::make_mut(&mut self.0);
        change(inner);
        let shares = inner.split.as_deref_mut().map(|split| &mut split.shares);
        shares.into_iter().flatten().for_each(|share| share.change(change));
    }

    /// The name, under which a store keeps the states.
    #[must_use]
    #[inline]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// A hash of the name, the same on every machine: worked out once, so that a store need not.
    #[must_use]
    #[inline]
    pub fn name_hash(&self) -> u64 {
        self.0.name_hash
    }

    /// The algorithm, as it was asked for.
    #[must_use]
    pub fn algorithm(&self) -> &Algorithm {
        &self.0.algorithm
    }

    /// The algorithm, worked out into exact integers: what a store computes with.
    #[must_use]
    #[inline]
    pub fn rule(&self) -> &Rule {
        &self.0.rule
    }

    /// The most that is ever admitted at one instant: the limit of a window, the capacity of a
    /// bucket.
    #[must_use]
    #[inline]
    pub fn limit(&self) -> u64 {
        self.0.rule.limit()
    }

    /// How long a refusal shuts the subject out, if it does.
    #[must_use]
    pub fn blocks_for(&self) -> Option<Duration> {
        (self.0.block_for > 0).then(|| Duration::from_micros(self.0.block_for))
    }

    /// Whether the policy only reports what it would refuse.
    #[must_use]
    #[inline]
    pub fn is_shadow(&self) -> bool {
        self.0.shadow
    }

    /// The longest that a state of this policy matters after it was last charged, unless a
    /// reservation, a block or an earlier limit made it last longer.
    #[must_use]
    pub fn longest_memory(&self) -> Duration {
        Duration::from_micros(self.0.rule.longest_memory())
    }

    /// Whether both are one and the same policy object: a shortcut for `==`.
    #[must_use]
    #[inline]
    pub fn is_same_object(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Where the policy object lies: of two policies the same just if both are
    /// [one object](Self::is_same_object). For stores, which compare it with what may be there or not.
    #[must_use]
    #[inline]
    pub fn address(&self) -> NonNull<()> {
        NonNull::from(&*self.0).cast()
    }

    /// Bytes that the policy object takes, with the two counts of its clones.
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

/// Reads a span of time as the policy grammar writes it: `250ms`, `90s`, `1m`, `1h30m`, `7d`.
///
/// # Errors
///
/// If the text is no such span, or one of 0 or of more than 2^51 µs (71 years).
///
/// ```
/// use std::time::Duration;
/// use tidegate_core::policy::parse_span;
///
/// assert_eq!(parse_span("1h30m")?, Duration::from_secs(5400));
/// # Ok::<(), tidegate_core::PolicyError>(())
/// ```
pub fn parse_span(text: &str) -> Result<Duration, PolicyError> {
    span::parse(text).map_err(|message| PolicyError::new(message).at(text, 0..text.len()))
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

/// Rejects a number outside of what is exact.
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
