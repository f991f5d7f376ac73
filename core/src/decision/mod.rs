//! The answer to a call.

mod already_settled;
mod policy_verdict;

use std::time::Duration;
use std::{fmt, slice};

use smallvec::SmallVec;

pub use already_settled::AlreadySettled;
pub use policy_verdict::PolicyVerdict;

use crate::call::MAX_CHARGES;
use crate::time::{Wait, micros_of_ceil};
use crate::{ErrorKind, Policy};

/// The answer to a call: all of its charges were taken, or none.
///
/// Up to two verdicts are stored inline; up to four need one allocation, and more need two.
// Each layer moves a decision, and most are on one charge.
#[must_use = "a decision that is not checked limits nothing"]
#[derive(Clone)]
pub struct Decision(Repr);

#[derive(Clone)]
enum Repr {
    One(Verdict),
    Two([Verdict; 2]),
    /// More verdicts, or rare parts.
    More(Box<More>),
}

#[derive(Clone, Default)]
struct More {
    verdicts: SmallVec<[Verdict; 4]>,
    reserved_wait: Duration,
    degraded: Option<Degraded>,
    amounts: SmallVec<[u64; 2]>,
    of_operation: OfOperation,
}

/// What the decisions on one operation alone have. A store that remembers calls keeps decisions, so that they must be small.
#[derive(Debug, Clone, PartialEq, Eq)]
enum OfOperation {
    /// A settlement's bits, one for each amount. A bit at an amount above 0 marks a charge, and a
    /// bit at an amount of 0 a hold that is out of reach. All other operations but a peek have no
    /// bits.
    Marked(u64),
    /// Of a peek, for each charge what is held and not spent.
    Unspent(Box<[Option<u64>]>),
}

impl OfOperation {
    const NONE: Self = Self::Marked(0);
}

impl Default for OfOperation {
    fn default() -> Self {
        Self::NONE
    }
}

impl Decision {
    /// A decision of one verdict per charge, in order.
    pub fn new(verdicts: impl IntoIterator<Item = Verdict>) -> Self {
        let mut verdicts = verdicts.into_iter().fuse();
        let first = [verdicts.next(), verdicts.next(), verdicts.next()];
        Self(match first {
            [Some(verdict), None, _] => Repr::One(verdict),
            [Some(one), Some(other), None] => Repr::Two([one, other]),
            _ => {
                let verdicts = first.into_iter().flatten().chain(verdicts).collect();
                Repr::More(Box::new(More { verdicts, ..More::default() }))
            }
        })
    }

    /// A decision on a single charge.
    #[inline]
    pub fn one(verdict: Verdict) -> Self {
        Self(Repr::One(verdict))
    }

    /// The same decision, with a reservation this far in the future.
    pub fn with_wait(self, wait: Duration) -> Self {
        if wait == self.wait() {
            return self;
        }
        let mut more = self.into_more();
        more.reserved_wait = wait;
        Self(Repr::More(more))
    }

    /// The same decision, made without the store.
    pub fn degraded_by(self, degraded: Degraded) -> Self {
        let mut more = self.into_more();
        more.degraded = Some(degraded);
        Self(Repr::More(more))
    }

    /// The same decision, with the amount of each charge, in order: see [`amounts`](Self::amounts).
    pub fn with_amounts(self, amounts: impl IntoIterator<Item = u64>) -> Self {
        let mut more = self.into_more();
        more.amounts = amounts.into_iter().collect();
        Self(Repr::More(more))
    }

    /// Returns the same decision on a settlement that has charged these amounts: see
    /// [`is_charged`](Self::is_charged).
    pub fn with_charged(self, indices: impl IntoIterator<Item = usize>) -> Self {
        self.with_marked(indices)
    }

    /// Returns the same decision on a settlement that did not reach the holds of these charges: see
    /// [`is_out_of_reach`](Self::is_out_of_reach).
    pub fn with_out_of_reach(self, indices: impl IntoIterator<Item = usize>) -> Self {
        self.with_marked(indices)
    }

    fn with_marked(self, indices: impl IntoIterator<Item = usize>) -> Self {
        let marked = indices.into_iter().fold(0, |marked, index| marked | bit_of(index));
        if marked == 0 {
            return self;
        }
        let mut more = self.into_more();
        more.of_operation = match more.of_operation {
            OfOperation::Marked(before) => OfOperation::Marked(before | marked),
            OfOperation::Unspent(_) => OfOperation::Marked(marked),
        };
        Self(Repr::More(more))
    }

    /// The same decision, with what is held and not spent of each charge, in order: see [`unspent`](Self::unspent).
    pub fn with_unspent(self, unspent: impl IntoIterator<Item = Option<u64>>) -> Self {
        let mut more = self.into_more();
        more.of_operation = OfOperation::Unspent(unspent.into_iter().collect());
        Self(Repr::More(more))
    }

    /// Upper bound on the bytes on the heap of a decision on `charges` charges that is neither degraded nor on a peek.
    #[doc(hidden)]
    #[must_use]
    pub const fn max_heap_bytes(charges: usize) -> usize {
        size_of::<More>() + charges * (size_of::<Verdict>() + size_of::<u64>())
    }

    fn into_more(self) -> Box<More> {
        let verdicts = match self.0 {
            Repr::More(more) => return more,
            Repr::One(verdict) => SmallVec::from_slice(&[verdict]),
            Repr::Two(verdicts) => SmallVec::from_slice(&verdicts),
        };
        Box::new(More { verdicts, ..More::default() })
    }

    fn more(&self) -> Option<&More> {
        match &self.0 {
            Repr::More(more) => Some(more),
            _ => None,
        }
    }

    fn of_operation(&self) -> &OfOperation {
        self.more().map_or(&OfOperation::NONE, |more| &more.of_operation)
    }

    /// The same decision, with the limits of whole policies instead of shares.
    pub(crate) fn with_limits(mut self, limits: impl Iterator<Item = u64>) -> Self {
        for (verdict, limit) in self.verdicts_mut().iter_mut().zip(limits) {
            verdict.limit = limit;
        }
        self
    }

    pub(crate) fn verdicts_mut(&mut self) -> &mut [Verdict] {
        match &mut self.0 {
            Repr::One(verdict) => slice::from_mut(verdict),
            Repr::Two(verdicts) => verdicts,
            Repr::More(more) => &mut more.verdicts,
        }
    }

    /// Whether the request is admitted: no policy in force refuses it.
    #[must_use]
    #[inline]
    pub fn is_allowed(&self) -> bool {
        // No loop over the inline verdicts, so that the compiler can drop all other fields of a decision that it
        // has just built.
        match &self.0 {
            Repr::One(verdict) => verdict.passes(),
            Repr::Two([one, other]) => one.passes() && other.passes(),
            Repr::More(more) => more.verdicts.iter().all(Verdict::passes),
        }
    }

    /// Whether the request is refused.
    #[must_use]
    #[inline]
    pub fn is_denied(&self) -> bool {
        !self.is_allowed()
    }

    /// One verdict per charge, in order.
    #[must_use]
    #[inline]
    pub fn verdicts(&self) -> &[Verdict] {
        match &self.0 {
            Repr::One(verdict) => slice::from_ref(verdict),
            Repr::Two(verdicts) => verdicts,
            Repr::More(more) => &more.verdicts,
        }
    }

    /// The verdicts with their policies, which are given in the order of the charges. A
    /// [`Limiter`](crate::Limiter::verdicts) and its requests know theirs.
    pub fn verdicts_of<'d>(
        &'d self,
        policies: impl IntoIterator<Item = &'d Policy>,
    ) -> impl Iterator<Item = PolicyVerdict<'d>> {
        policies
            .into_iter()
            .zip(self.verdicts())
            .zip(self.unspent().iter().copied().chain(std::iter::repeat(None)))
            .map(|((policy, verdict), unspent)| PolicyVerdict::new(policy, verdict, unspent))
    }

    /// How long to wait until the same charges, alone, are admitted: zero if they are, `None` if they never can be.
    /// Waiting exactly that long succeeds; one tick less does not. (If a decision
    /// [failed closed](DegradedAnswer::FailedClosed) it is only a hint.)
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        let in_force = self.verdicts().iter().filter(|verdict| !verdict.is_shadow());
        in_force.map(|verdict| verdict.retry).max().unwrap_or(Wait::ZERO).as_duration()
    }

    /// [`retry_after`](Self::retry_after) for the HTTP header of that name: whole seconds, rounded up; 0 only if the
    /// request is admitted. `None` if it never can be.
    #[must_use]
    pub fn retry_after_secs(&self) -> Option<u64> {
        let wait = self.retry_after()?;
        let secs = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        Some(if self.is_allowed() { 0 } else { secs.max(1) })
    }

    /// The indices of the charges that refuse.
    pub fn refused_by(&self) -> impl Iterator<Item = usize> + '_ {
        let verdicts = self.verdicts().iter().enumerate();
        verdicts.filter(|(_, verdict)| !verdict.passes()).map(|(index, _)| index)
    }

    /// The wait until a reserved place, of [`reserve`](crate::limiter::Request::reserve); the time that the call has
    /// waited, of `acquire_within` and `until_ready`. Zero for all other calls.
    #[must_use]
    pub fn wait(&self) -> Duration {
        self.more().map_or(Duration::ZERO, |more| more.reserved_wait)
    }

    /// How much of each charge was given back by a refund or an undo, recorded by a [charge](crate::Operation::Charge), or
    /// taken by an [`AcquireUpTo`](crate::Operation::AcquireUpTo) or a [`HoldUpTo`](crate::Operation::HoldUpTo); or, when a
    /// hold was [settled](crate::Operation::Settle), given back or [charged](Self::is_charged), whichever of the two it was. One number per
    /// charge, in order, in whole units of cost, rounded down. Empty for all other operations.
    ///
    /// ```
    /// use tidegate_core::{Call, Charge, Operation, Policy};
    /// use tidegate_memory::MemoryStore;
    ///
    /// let (store, policy) = (MemoryStore::new(), "fixed-window 10/1h".parse::<Policy>()?);
    /// let charges = [Charge::new(&policy, "alice").cost(7)];
    /// let _ = store.decide_now(&Call::acquire(&charges))?;
    ///
    /// let up_to = Call::new(Operation::AcquireUpTo { min: 1 }, &charges);
    /// assert_eq!(store.decide_now(&up_to)?.amounts(), [3]);
    /// assert_eq!(store.decide_now(&Call::new(Operation::Charge, &charges))?.amounts(), [7]);
    /// let refund = Call::new(Operation::Refund, &charges);
    /// assert_eq!(store.decide_now(&refund)?.amounts(), [7]);
    /// assert_eq!(store.decide_now(&refund)?.amounts(), [7]);
    /// assert_eq!(store.decide_now(&refund)?.amounts(), [3]); // no more was taken
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn amounts(&self) -> &[u64] {
        self.more().map_or(&[], |more| &more.amounts)
    }

    /// Whether a settlement has charged the [amount](Self::amounts) of the charge at `index`, and not given it back. It may,
    /// although no more was used than was held, if what was held had been given back when its
    /// [time was over](Policy::refund_lapsed).
    #[must_use]
    pub fn is_charged(&self, index: usize) -> bool {
        self.is_marked(index) && self.amounts().get(index).is_some_and(|&amount| amount > 0)
    }

    /// Returns `true` if a settlement refunded nothing of the charge at `index`, because it could
    /// not find the hold in a log: the log has 128 or more newer records. The hold stays charged
    /// in full until its window ends. A log with a [grain](crate::SlidingLog::grain) of at least
    /// 1/126 of its window has no more than 128 records, so that each hold is found.
    #[must_use]
    pub fn is_out_of_reach(&self, index: usize) -> bool {
        self.is_marked(index) && self.amounts().get(index) == Some(&0)
    }

    fn is_marked(&self, index: usize) -> bool {
        matches!(self.of_operation(), OfOperation::Marked(marked) if marked & bit_of(index) != 0)
    }

    /// How much of each charge's subject is held and not yet spent, in order: the sum of what its open
    /// [holds](crate::Operation::Hold) took, each less what was [settled so far](crate::Operation::SettleSoFar). A hold is
    /// open until it is settled or its time is over. It is counted in full, also where a part of it was refilled since, or
    /// was taken in a window that has ended.
    ///
    /// `None` of a policy without [`refund_lapsed`](Policy::refund_lapsed): its states do not know their holds. Such a
    /// policy may know only a part of the holds if others were made before it had that setting. Empty if none of the
    /// policies has it; for all operations but a [peek](crate::Operation::Peek); and if the store was not asked, as for a
    /// denial from a [cache](crate::DenyCache) and a [degraded](Self::degraded) decision.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// use std::time::Duration;
    /// use tidegate_memory::{Limiter, MemoryStore};
    ///
    /// let policies = ["requests: gcra 60/1m burst 60", "tokens: token-bucket 1000/1m refund-lapsed"];
    /// let policies = policies.into_iter().map(str::parse).collect::<Result<Vec<_>, _>>()?;
    /// let limiter = Limiter::new(MemoryStore::new(), policies)?;
    /// let alice = limiter.by("requests", "alice").by("tokens", "alice").cost(600);
    /// let hold = alice.hold("completion 4711", Duration::from_secs(60)).await?;
    /// let Ok(ticket) = hold.into_ticket() else { return Ok(()) }; // refused
    /// limiter.settle_so_far(&ticket, [("requests", 1), ("tokens", 250)]).await?;
    /// assert_eq!(alice.peek().await?.unspent(), [None, Some(350)]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn unspent(&self) -> &[Option<u64>] {
        match self.of_operation() {
            OfOperation::Unspent(unspent) => unspent,
            OfOperation::Marked(_) => &[],
        }
    }

    /// How and why the decision was made without the store; `None` normally.
    #[must_use]
    pub fn degraded(&self) -> Option<&Degraded> {
        self.more()?.degraded.as_ref()
    }
}

/// The bit of a charge, of which a call has at most 64.
const fn bit_of(index: usize) -> u64 {
    const { assert!(MAX_CHARGES <= 64) };
    if index < MAX_CHARGES { 1 << index } else { 0 }
}

impl PartialEq for Decision {
    fn eq(&self, other: &Self) -> bool {
        self.verdicts() == other.verdicts()
            && self.wait() == other.wait()
            && self.degraded() == other.degraded()
            && self.amounts() == other.amounts()
            && self.of_operation() == other.of_operation()
    }
}

impl Eq for Decision {}

impl fmt::Debug for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut all = f.debug_struct("Decision");
        all.field("verdicts", &self.verdicts());
        if let Some(more) = self.more() {
            all.field("reserved_wait", &more.reserved_wait)
                .field("degraded", &more.degraded)
                .field("amounts", &more.amounts)
                .field("of_operation", &more.of_operation);
        }
        all.finish()
    }
}

/// The answer to a refund, a charge, a reset or a block: a [`Decision`] that need not be checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt(Decision);

impl Receipt {
    pub(crate) fn new(decision: Decision) -> Self {
        Self(decision)
    }

    /// The verdicts of a [`peek`](crate::limiter::Request::peek) of the same request afterwards.
    pub fn decision(&self) -> &Decision {
        &self.0
    }

    /// How much of each cost was given back by a refund, or recorded by a charge, in the order of the verdicts: see
    /// [`Decision::amounts`]. Empty for a reset and a block.
    #[must_use]
    pub fn amounts(&self) -> &[u64] {
        self.0.amounts()
    }
}

/// What one policy decides on its charge.
///
/// A store that does not use [`engine::decide`](crate::engine::decide) builds its verdicts by name:
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
// Five words without niches, so that an enclosing enum keeps no tag in them and copies are word-sized. The field that is
// always read comes first.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    flags: Flags,
    limit: u64,
    /// What remains; for a blocked subject, for which nothing does, the microseconds until the block ends.
    remaining_or_block: u64,
    retry: Wait,
    reset: u64,
}

/// The outcome of a verdict, and other bits.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Flags(u64);

impl Flags {
    const DENIED: u64 = 1;
    const BLOCKED: u64 = 2;
    const SHADOW: u64 = 4;
    const BLOCK: u64 = 8;
    /// Beside the flag of a denial.
    const TOO_LARGE: u64 = 16;

    #[inline]
    const fn new(outcome: Outcome) -> Self {
        Self(match outcome {
            Outcome::Allowed => 0,
            Outcome::Denied => Self::DENIED,
            Outcome::Blocked => Self::BLOCKED,
            Outcome::TooLarge => Self::DENIED | Self::TOO_LARGE,
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
    const fn outcome(self) -> Outcome {
        match (self.has(Self::BLOCKED), self.has(Self::DENIED)) {
            (true, _) => Outcome::Blocked,
            (_, true) if self.has(Self::TOO_LARGE) => Outcome::TooLarge,
            (_, true) => Outcome::Denied,
            _ => Outcome::Allowed,
        }
    }

    /// Whether the request is refused: a shadow refuses nothing.
    #[inline]
    const fn refuses(self) -> bool {
        // The flag of a shadow is above the others, so one comparison is enough.
        let these = self.0 & (Self::DENIED | Self::BLOCKED | Self::SHADOW);
        these != 0 && these < Self::SHADOW
    }
}

/// The decision of one policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Outcome {
    /// The charge is admitted.
    Allowed,
    /// Too much was taken already, or the cost can never be admitted.
    Denied,
    /// The subject is blocked, whatever was taken.
    Blocked,
    /// The cost is above what one [hold](crate::Operation::Hold) may take: see [`Policy::max_hold`]. A hold of less, or
    /// of [as much as there is](crate::Operation::HoldUpTo), may be admitted.
    TooLarge,
}

impl Outcome {
    /// The name in logs and metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Denied => "denied",
            Self::Blocked => "blocked",
            Self::TooLarge => "too-large",
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Verdict {
    /// A verdict of a policy with this limit. Nothing remains, and there is nothing to wait for, unless it is set.
    #[must_use]
    pub const fn new(outcome: Outcome, limit: u64) -> Self {
        Self::from_micros(outcome, limit, 0, Wait::ZERO, 0)
    }

    /// Sets the maximum cost that would still be admitted.
    #[must_use]
    pub const fn with_remaining(self, remaining: u64) -> Self {
        Self { remaining_or_block: remaining, ..self }
    }

    /// Sets the wait until the charge, alone, is admitted: `None` if it never is. Rounded up to microseconds.
    #[must_use]
    pub fn with_retry_after(self, wait: Option<Duration>) -> Self {
        Self { retry: wait.map_or(Wait::NEVER, Wait::from), ..self }
    }

    /// Sets the time until the state has recovered fully. Rounded up to microseconds.
    #[must_use]
    pub fn with_reset_after(self, span: Duration) -> Self {
        Self { reset: micros_of_ceil(span), ..self }
    }

    /// Blocks the subject for `span` from now on: nothing remains meanwhile. Rounded up to microseconds. Set after
    /// [`with_remaining`](Self::with_remaining); zero for no block.
    #[must_use]
    pub fn with_block(self, span: Duration) -> Self {
        self.blocked_for_micros(micros_of_ceil(span))
    }

    /// The same verdict, of a shadow policy, which only reports.
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

    /// The same verdict, in shadow if the policy is.
    #[inline]
    pub(crate) fn with_shadow_of(self, policy: &Policy) -> Self {
        Self { flags: self.flags.with(Flags::SHADOW, policy.is_shadow()), ..self }
    }

    #[inline]
    pub(crate) fn blocked_for_micros(self, micros: u64) -> Self {
        let remaining_or_block = if micros > 0 { micros } else { self.remaining() };
        let flags = self.flags.with(Flags::BLOCK, micros > 0);
        Self { remaining_or_block, flags, ..self }
    }

    /// Whether the policy does not refuse the request: it admits it, or is a shadow.
    #[inline]
    fn passes(&self) -> bool {
        !self.flags.refuses()
    }

    /// What the policy decides. A [shadow](Self::is_shadow) may deny without refusing.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        self.flags.outcome()
    }

    /// Whether the policy is a shadow: its outcome is reported, and never refuses.
    #[must_use]
    pub fn is_shadow(&self) -> bool {
        self.flags.has(Flags::SHADOW)
    }

    /// The maximum that the policy ever admits at one instant.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// The maximum cost that would still be admitted, rounded down.
    #[must_use]
    #[inline]
    pub fn remaining(&self) -> u64 {
        if self.has_block() { 0 } else { self.remaining_or_block }
    }

    /// How long to wait until this charge, alone, is admitted: zero if it is, `None` if it never
    /// can be.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry.as_duration()
    }

    /// How long until the subject's state has recovered fully, if nothing more is taken.
    #[must_use]
    pub fn reset_after(&self) -> Duration {
        Duration::from_micros(self.reset)
    }

    /// For how much longer the subject is blocked, whatever it has taken: by a refusal under
    /// [`Policy::block_for`](crate::Policy::block_for), this one included, or by
    /// [`Operation::Block`](crate::Operation::Block). Zero if it is not.
    #[must_use]
    pub fn blocked_for(&self) -> Duration {
        Duration::from_micros(self.blocked_micros())
    }

    #[inline]
    fn has_block(&self) -> bool {
        self.flags.has(Flags::BLOCK)
    }

    fn blocked_micros(&self) -> u64 {
        if self.has_block() { self.remaining_or_block } else { 0 }
    }

    /// The verdict on a state that is split over two shards, with the outcome of `self`.
    pub(crate) fn merge(self, other: Self) -> Self {
        let both = Self {
            remaining_or_block: self.remaining().saturating_add(other.remaining()),
            retry: self.retry.max(other.retry),
            reset: self.reset.max(other.reset),
            flags: self.flags.with(Flags::BLOCK, false),
            ..self
        };
        both.blocked_for_micros(self.blocked_micros().max(other.blocked_micros()))
    }

    /// The microseconds for which the outcome stays the same, if nothing is taken or given back meanwhile.
    pub(crate) fn valid_for(&self) -> u64 {
        match self.outcome() {
            Outcome::Allowed => u64::MAX,
            Outcome::Denied => self.retry.as_micros().unwrap_or(u64::MAX),
            Outcome::Blocked => self.blocked_micros(),
            Outcome::TooLarge => u64::MAX,
        }
    }

    /// Microseconds until the subject's state has recovered fully.
    pub(crate) fn reset_micros(&self) -> u64 {
        self.reset
    }

    /// The verdict on the same charge `micros` later, while the outcome stays and nothing is taken or given back.
    /// `remaining` is a lower bound.
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
        // A state that has recovered is indistinguishable from none.
        Self { remaining_or_block: self.limit, ..later }
    }

    /// The verdict on a charge of `cost` if `more` remains than the store knows.
    #[cfg(feature = "tokio")]
    pub(crate) fn with_more_remaining(self, more: u64, cost: u64) -> Self {
        if more == 0 || self.has_block() {
            return self;
        }
        let remaining = self.remaining().saturating_add(more).min(self.limit);
        let it = self.with_remaining(remaining);
        if it.outcome() != Outcome::Denied || cost > remaining {
            return it;
        }
        let flags = Flags::new(Outcome::Allowed).with(Flags::SHADOW, it.is_shadow());
        Self { flags, retry: Wait::ZERO, ..it }
    }

    /// The same verdict, of a hold that is larger than the policy allows one to be.
    pub(crate) fn too_large(self) -> Self {
        let flags = Flags::new(Outcome::TooLarge);
        let flags =
            flags.with(Flags::SHADOW, self.is_shadow()).with(Flags::BLOCK, self.has_block());
        Self { flags, retry: Wait::NEVER, ..self }
    }

    /// The verdict on the next charge: a denial that blocked the subject becomes [`Outcome::Blocked`].
    pub(crate) fn for_next_charge(self) -> Self {
        if self.outcome() != Outcome::Denied || !self.has_block() {
            return self;
        }
        let flags = self.flags.with(Flags::DENIED, false).with(Flags::BLOCKED, true);
        Self { flags, ..self }
    }
}

impl fmt::Debug for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verdict")
            .field("outcome", &self.outcome())
            .field("limit", &self.limit)
            .field("remaining", &self.remaining())
            .field("retry", &self.retry)
            .field("reset", &self.reset)
            .field("blocked", &self.blocked_micros())
            .field("shadow", &self.is_shadow())
            .finish()
    }
}

/// How and why a decision was made without the store.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Degraded {
    /// The fallback that decided.
    pub answer: DegradedAnswer,
    /// The kind of error of the store.
    pub reason: ErrorKind,
}

impl Degraded {
    /// A decision by `answer`, because of an error of kind `reason`.
    #[must_use]
    pub fn new(answer: DegradedAnswer, reason: ErrorKind) -> Self {
        Self { answer, reason }
    }
}

/// How a call was decided without the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DegradedAnswer {
    /// Failed open: the request is admitted.
    FailedOpen,
    /// Failed closed: the request is refused.
    FailedClosed,
    /// A fallback store decided, with a share of the limit.
    FellBack,
}

impl DegradedAnswer {
    /// All values, in the order of declaration.
    #[cfg(feature = "metrics")]
    pub(crate) const ALL: [Self; 3] = [Self::FailedOpen, Self::FailedClosed, Self::FellBack];

    /// The name in logs and metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        // A new value also goes into `ALL`.
        match self {
            Self::FailedOpen => "failed-open",
            Self::FailedClosed => "failed-closed",
            Self::FellBack => "fell-back",
        }
    }
}
