//! The answer to one or several charges taken together.

mod policy_verdict;

use std::time::Duration;
use std::{fmt, slice};

use smallvec::SmallVec;

pub use policy_verdict::PolicyVerdict;

use crate::time::Wait;
use crate::{ErrorKind, Policy};

/// What became of a call: all of its charges were taken, or none.
///
/// Up to two verdicts lie within the decision itself, so that it takes no allocation; up to four take
/// one, and more take two. (A decision is moved about by each layer that it passes, and most are on one
/// charge.)
#[must_use = "a decision that nobody looks at limits nothing"]
#[derive(Clone)]
pub struct Decision(Repr);

#[derive(Clone)]
enum Repr {
    One(Verdict),
    Two([Verdict; 2]),
    /// With what few decisions have, out of the way of all others.
    More(Box<More>),
}

#[derive(Clone, Default)]
struct More {
    verdicts: SmallVec<[Verdict; 4]>,
    booked: Duration,
    degraded: Option<Degraded>,
}

impl Decision {
    /// A decision made of one verdict per charge, in the order asked.
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

    /// The same decision, for a place that was booked this far in the future.
    pub fn with_wait(self, wait: Duration) -> Self {
        if wait == self.wait() {
            return self;
        }
        let mut more = self.into_more();
        more.booked = wait;
        Self(Repr::More(more))
    }

    /// The same decision, made otherwise than by asking the store.
    pub fn degraded_by(self, degraded: Degraded) -> Self {
        let mut more = self.into_more();
        more.degraded = Some(degraded);
        Self(Repr::More(more))
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

    /// The same decision, on limits of which what was asked are parts.
    pub(crate) fn with_limits(mut self, limits: impl Iterator<Item = u64>) -> Self {
        let verdicts: &mut [Verdict] = match &mut self.0 {
            Repr::One(verdict) => slice::from_mut(verdict),
            Repr::Two(verdicts) => verdicts,
            Repr::More(more) => &mut more.verdicts,
        };
        for (verdict, limit) in verdicts.iter_mut().zip(limits) {
            verdict.limit = limit;
        }
        self
    }

    /// Whether the request may pass: no policy that is in force refuses it.
    #[must_use]
    #[inline]
    pub fn is_allowed(&self) -> bool {
        // Without a loop through what lies within the decision: so a compiler that sees one being made
        // leaves out all but this.
        match &self.0 {
            Repr::One(verdict) => verdict.passes(),
            Repr::Two([one, other]) => one.passes() && other.passes(),
            Repr::More(more) => more.verdicts.iter().all(Verdict::passes),
        }
    }

    /// Whether the request must not pass.
    #[must_use]
    #[inline]
    pub fn is_denied(&self) -> bool {
        !self.is_allowed()
    }

    /// One verdict per charge, in the order asked.
    #[must_use]
    #[inline]
    pub fn verdicts(&self) -> &[Verdict] {
        match &self.0 {
            Repr::One(verdict) => slice::from_ref(verdict),
            Repr::Two(verdicts) => verdicts,
            Repr::More(more) => &more.verdicts,
        }
    }

    /// The verdicts with the policies that they are of, given in the order asked. A
    /// [`Limiter`](crate::Limiter::verdicts) and its requests know theirs.
    pub fn verdicts_of<'d>(
        &'d self,
        policies: impl IntoIterator<Item = &'d Policy>,
    ) -> impl Iterator<Item = PolicyVerdict<'d>> {
        policies
            .into_iter()
            .zip(self.verdicts())
            .map(|(policy, verdict)| PolicyVerdict::new(policy, verdict))
    }

    /// How long to wait until the same charges, alone, are admitted: zero if they are, `None` if they
    /// never can be. Waiting just that long succeeds; one tick less does not. (Where a decision
    /// [failed closed](DegradedAnswer::FailedClosed) it is a hint, as nobody knows.)
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        let in_force = self.verdicts().iter().filter(|verdict| !verdict.is_shadow());
        in_force.map(|verdict| verdict.retry).max().unwrap_or(Wait::ZERO).as_duration()
    }

    /// [`retry_after`](Self::retry_after) for the HTTP header of that name: whole seconds, rounded
    /// up; 0 only if the request passes. `None` if it never can.
    #[must_use]
    pub fn retry_after_secs(&self) -> Option<u64> {
        let wait = self.retry_after()?;
        let secs = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        Some(if self.is_allowed() { 0 } else { secs.max(1) })
    }

    /// Which charges refuse: their places in the order asked.
    pub fn refused_by(&self) -> impl Iterator<Item = usize> + '_ {
        let verdicts = self.verdicts().iter().enumerate();
        verdicts.filter(|(_, verdict)| !verdict.passes()).map(|(place, _)| place)
    }

    /// How long to wait for the place that was booked, by [`reserve`](crate::limiter::Request::reserve);
    /// how long the call has waited, if it was `acquire_within` or
    /// `until_ready`. Zero for everything else.
    #[must_use]
    pub fn wait(&self) -> Duration {
        self.more().map_or(Duration::ZERO, |more| more.booked)
    }

    /// How and why the decision was made otherwise than by asking the store; `None` normally.
    #[must_use]
    pub fn degraded(&self) -> Option<&Degraded> {
        self.more()?.degraded.as_ref()
    }
}

impl PartialEq for Decision {
    fn eq(&self, other: &Self) -> bool {
        let parts = |decision: &Self| (decision.wait(), decision.degraded().cloned());
        self.verdicts() == other.verdicts() && parts(self) == parts(other)
    }
}

impl Eq for Decision {}

impl fmt::Debug for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut all = f.debug_struct("Decision");
        all.field("verdicts", &self.verdicts());
        if let Some(more) = self.more() {
            all.field("booked", &more.booked).field("degraded", &more.degraded);
        }
        all.finish()
    }
}

/// What a refund, a reset or a block has left: a [`Decision`] that need not be looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt(Decision);

impl Receipt {
    pub(crate) fn new(decision: Decision) -> Self {
        Self(decision)
    }

    /// The verdicts, as a [`peek`](crate::limiter::Request::peek) of the same request would have them
    /// afterwards.
    pub fn decision(&self) -> &Decision {
        &self.0
    }
}

/// What one policy says to its charge.
///
/// (Five whole words: what has no bits to spare for an enum around it is moved in one piece. First is what
/// everybody asks for.)
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    flags: Flags,
    limit: u64,
    /// What remains; for a subject that is shut out, to whom nothing does, the microseconds until it
    /// no longer is.
    remaining_or_block: u64,
    retry: Wait,
    reset: u64,
}

/// The outcome of a verdict, and what else there is to say in a bit.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Flags(u64);

impl Flags {
    const DENIED: u64 = 1;
    const BLOCKED: u64 = 2;
    const SHADOW: u64 = 4;
    const SHUT_OUT: u64 = 8;

    #[inline]
    const fn of(outcome: Outcome) -> Self {
        Self(match outcome {
            Outcome::Allowed => 0,
            Outcome::Denied => Self::DENIED,
            Outcome::Blocked => Self::BLOCKED,
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
            (_, true) => Outcome::Denied,
            _ => Outcome::Allowed,
        }
    }

    /// Whether the request must not pass: a shadow lets everything pass.
    #[inline]
    const fn refuses(self) -> bool {
        // The flag of a shadow is above the others, so one comparison tells.
        let these = self.0 & (Self::DENIED | Self::BLOCKED | Self::SHADOW);
        these != 0 && these < Self::SHADOW
    }
}

/// What a policy would do with its charge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Outcome {
    /// It lets it pass.
    Allowed,
    /// Too much was taken already, or the cost could never pass.
    Denied,
    /// The subject is shut out, whatever was taken.
    Blocked,
}

impl Outcome {
    /// A word for logs and metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Denied => "denied",
            Self::Blocked => "blocked",
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Verdict {
    /// A verdict, as a store gives it: `reset` is in microseconds.
    #[must_use]
    #[inline]
    pub fn new(outcome: Outcome, limit: u64, remaining: u64, retry: Wait, reset: u64) -> Self {
        Self { limit, remaining_or_block: remaining, retry, reset, flags: Flags::of(outcome) }
    }

    /// The same verdict, of a policy that only reports.
    #[must_use]
    #[inline]
    pub fn in_shadow(self, shadow: bool) -> Self {
        Self { flags: self.flags.with(Flags::SHADOW, shadow), ..self }
    }

    /// The same verdict on a subject that is shut out for so many microseconds from now on: nothing
    /// remains to it meanwhile. With 0 it is not shut out.
    #[must_use]
    #[inline]
    pub fn in_block(self, micros: u64) -> Self {
        let remaining_or_block = if micros > 0 { micros } else { self.remaining() };
        let flags = self.flags.with(Flags::SHUT_OUT, micros > 0);
        Self { remaining_or_block, flags, ..self }
    }

    /// Whether the policy lets the request pass, as it admits it or is a shadow.
    #[inline]
    fn passes(&self) -> bool {
        !self.flags.refuses()
    }

    /// What the policy would do: [`Outcome::Allowed`] or a refusal.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        self.flags.outcome()
    }

    /// Whether the policy is a shadow: its outcome is reported, and never refuses.
    #[must_use]
    pub fn is_shadow(&self) -> bool {
        self.flags.has(Flags::SHADOW)
    }

    /// The most that the policy ever admits at one instant.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// The largest cost that would still be admitted, rounded down.
    #[must_use]
    #[inline]
    pub fn remaining(&self) -> u64 {
        if self.is_shut_out() { 0 } else { self.remaining_or_block }
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

    /// For how much longer the subject is shut out, whatever it has taken: by a refusal under
    /// [`Policy::block_for`](crate::Policy::block_for), this one included, or by
    /// [`Operation::Block`](crate::Operation::Block). Zero if it is not.
    #[must_use]
    pub fn blocked_for(&self) -> Duration {
        Duration::from_micros(self.blocked_micros())
    }

    #[inline]
    fn is_shut_out(&self) -> bool {
        self.flags.has(Flags::SHUT_OUT)
    }

    fn blocked_micros(&self) -> u64 {
        if self.is_shut_out() { self.remaining_or_block } else { 0 }
    }

    /// The verdict on a state that is kept in two parts, from those on both, of which the first tells
    /// the outcome.
    pub(crate) fn and(self, other: Self) -> Self {
        let both = Self {
            remaining_or_block: self.remaining().saturating_add(other.remaining()),
            retry: self.retry.max(other.retry),
            reset: self.reset.max(other.reset),
            flags: self.flags.with(Flags::SHUT_OUT, false),
            ..self
        };
        both.in_block(self.blocked_micros().max(other.blocked_micros()))
    }

    /// For how many microseconds the outcome is sure to stay, if nobody takes or gives back
    /// meanwhile. Time alone admits more and more.
    pub(crate) fn stays_for(&self) -> u64 {
        match self.outcome() {
            Outcome::Allowed => u64::MAX,
            Outcome::Denied => self.retry.as_micros().unwrap_or(u64::MAX),
            Outcome::Blocked => self.blocked_micros(),
        }
    }

    /// Microseconds until the subject's state has recovered fully.
    pub(crate) fn reset_micros(&self) -> u64 {
        self.reset
    }

    /// The verdict on the same charge so many microseconds later, while the outcome stays and nothing is
    /// taken or given back; of `remaining` this is the least that it may have become.
    pub(crate) fn later(self, micros: u64) -> Self {
        let reset = self.reset.saturating_sub(micros);
        let later = Self {
            retry: self.retry.less(micros),
            reset,
            ..self.in_block(self.blocked_micros().saturating_sub(micros))
        };
        if reset > 0 || later.is_shut_out() {
            return later;
        }
        // A state that has recovered is as good as none.
        Self { remaining_or_block: self.limit, ..later }
    }

    /// The verdict on the next charge: a refusal that shut the subject out has shut it out.
    pub(crate) fn to_the_next(self) -> Self {
        if self.outcome() != Outcome::Denied || !self.is_shut_out() {
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

/// How a decision was made when the store gave none.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Degraded {
    /// What decided instead.
    pub answer: DegradedAnswer,
    /// Why the store did not.
    pub reason: ErrorKind,
}

impl Degraded {
    /// A decision by `answer`, because of an error of kind `reason`.
    #[must_use]
    pub fn new(answer: DegradedAnswer, reason: ErrorKind) -> Self {
        Self { answer, reason }
    }
}

/// How a call was decided when the store gave no decision.
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
    /// All of them, in the order in which they are declared.
    #[cfg(feature = "metrics")]
    pub(crate) const ALL: [Self; 3] = [Self::FailedOpen, Self::FailedClosed, Self::FellBack];

    /// A word for logs and metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        // A new one also goes into `ALL`.
        match self {
            Self::FailedOpen => "failed-open",
            Self::FailedClosed => "failed-closed",
            Self::FellBack => "fell-back",
        }
    }
}
