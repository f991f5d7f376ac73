//! The answer to one or several charges taken together.

use std::time::Duration;

use smallvec::SmallVec;

use crate::ErrorKind;
use crate::time::Wait;

/// What became of a call: all of its charges were taken, or none.
///
/// Up to two verdicts lie within the decision itself, so that it takes no allocation; for more there is
/// one. (A decision is moved about by each layer that it passes, and most are on one charge.)
#[must_use = "a decision that nobody looks at limits nothing"]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    verdicts: SmallVec<[Verdict; 2]>,
    /// What few decisions have, out of the way of all others.
    special: Option<Box<Special>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Special {
    booked: Duration,
    degraded: Option<Degraded>,
}

impl Decision {
    /// A decision made of one verdict per charge, in the order asked.
    pub fn new(verdicts: impl IntoIterator<Item = Verdict>) -> Self {
        Self { verdicts: verdicts.into_iter().collect(), special: None }
    }

    /// A decision on a single charge.
    #[inline]
    pub fn one(verdict: Verdict) -> Self {
        let mut verdicts = SmallVec::new();
        verdicts.push(verdict);
        Self { verdicts, special: None }
    }

    /// The same decision, for a place that was booked this far in the future.
    pub fn booked_in(mut self, wait: Duration) -> Self {
        if wait != self.wait() {
            self.special.get_or_insert_default().booked = wait;
        }
        self
    }

    /// The same decision, made otherwise than by asking the store.
    pub fn degraded_by(mut self, degraded: Degraded) -> Self {
        self.special.get_or_insert_default().degraded = Some(degraded);
        self
    }

    /// Whether the request may pass: no policy that is in force refuses it.
    #[must_use]
    #[inline]
    pub fn is_allowed(&self) -> bool {
        self.verdicts.iter().all(|verdict| verdict.shadow || verdict.outcome == Outcome::Allowed)
    }

    /// Whether the request must not pass.
    #[must_use]
    pub fn is_denied(&self) -> bool {
        !self.is_allowed()
    }

    /// One verdict per charge, in the order asked.
    #[must_use]
    pub fn verdicts(&self) -> &[Verdict] {
        &self.verdicts
    }

    /// How long to wait until the same charges, alone, are admitted: zero if they are, `None` if they
    /// never can be. Waiting just that long succeeds; one tick less does not. (Where a decision
    /// [failed closed](DegradedAnswer::FailedClosed) it is a hint, as nobody knows.)
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        let in_force = self.verdicts.iter().filter(|verdict| !verdict.shadow);
        in_force.map(|verdict| verdict.retry).max().unwrap_or(Wait::NOW).as_duration()
    }

    /// [`retry_after`](Self::retry_after) for the HTTP header of that name: whole seconds, rounded
    /// up, at least 1. `None` if the request passes, or never can.
    #[must_use]
    pub fn retry_after_secs(&self) -> Option<u64> {
        let wait = self.retry_after().filter(|_| self.is_denied())?;
        Some((wait.as_secs() + u64::from(wait.subsec_nanos() > 0)).max(1))
    }

    /// Which charges refuse: their places in the order asked.
    pub fn refused_by(&self) -> impl Iterator<Item = usize> + '_ {
        let refuses = |verdict: &Verdict| !verdict.shadow && verdict.outcome != Outcome::Allowed;
        self.verdicts.iter().enumerate().filter(move |(_, v)| refuses(v)).map(|(place, _)| place)
    }

    /// How long to wait for the place that was booked, by [`reserve`](crate::limiter::Request::reserve);
    /// how long the call has waited, if it was `acquire_within` or
    /// `until_ready`. Zero for everything else.
    #[must_use]
    pub fn wait(&self) -> Duration {
        self.special.as_ref().map_or(Duration::ZERO, |special| special.booked)
    }

    /// How and why the decision was made otherwise than by asking the store; `None` normally.
    #[must_use]
    pub fn degraded(&self) -> Option<&Degraded> {
        self.special.as_ref()?.degraded.as_ref()
    }
}

/// What one policy says to its charge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    limit: u64,
    remaining: u64,
    retry: Wait,
    reset: u64,
    /// Microseconds; 0 for not blocked.
    blocked: u64,
    outcome: Outcome,
    shadow: bool,
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

impl Verdict {
    /// A verdict, as a store gives it: `reset` is in microseconds.
    #[must_use]
    #[inline]
    pub fn new(outcome: Outcome, limit: u64, remaining: u64, retry: Wait, reset: u64) -> Self {
        Self { limit, remaining, retry, reset, blocked: 0, outcome, shadow: false }
    }

    /// The same verdict, of a policy that only reports.
    #[must_use]
    #[inline]
    pub fn in_shadow(self, shadow: bool) -> Self {
        Self { shadow, ..self }
    }

    /// The same verdict on a subject that is shut out for so many microseconds from now on.
    #[must_use]
    pub fn in_block(self, micros: u64) -> Self {
        Self { blocked: micros, ..self }
    }

    /// What the policy would do: [`Outcome::Allowed`] or a refusal.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// Whether the policy is a shadow: its outcome is reported, and never refuses.
    #[must_use]
    pub fn is_shadow(&self) -> bool {
        self.shadow
    }

    /// The most that the policy ever admits at one instant.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// The largest cost that would still be admitted, rounded down.
    #[must_use]
    pub fn remaining(&self) -> u64 {
        self.remaining
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
        Duration::from_micros(self.blocked)
    }

    /// For how many microseconds the outcome is sure to stay, if nobody takes or gives back
    /// meanwhile. Time alone admits more and more.
    pub(crate) fn stays_for(&self) -> u64 {
        match self.outcome {
            Outcome::Allowed => u64::MAX,
            Outcome::Denied => self.retry.as_micros().unwrap_or(u64::MAX),
            Outcome::Blocked => self.blocked,
        }
    }

    /// Microseconds until the subject's state has recovered fully.
    pub(crate) fn reset_micros(&self) -> u64 {
        self.reset
    }

    /// The verdict on the same charge so many microseconds later, while the outcome stays and nobody
    /// takes or gives back; of `remaining` this is the least that it may have become.
    pub(crate) fn later(self, micros: u64) -> Self {
        Self {
            retry: self.retry.less(micros),
            reset: self.reset.saturating_sub(micros),
            blocked: self.blocked.saturating_sub(micros),
            ..self
        }
    }

    /// The verdict on the next charge: a refusal that shut the subject out has shut it out.
    pub(crate) fn to_the_next(self) -> Self {
        match self.outcome {
            Outcome::Denied if self.blocked > 0 => Self { outcome: Outcome::Blocked, ..self },
            _ => self,
        }
    }
}

/// How a decision was made when the store gave none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Degraded {
    /// Who decided instead.
    pub answer: DegradedAnswer,
    /// Why the store did not.
    pub reason: ErrorKind,
}

/// Who decided when the store gave no decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DegradedAnswer {
    /// Nobody: the request passes.
    FailedOpen,
    /// Nobody: the request is refused.
    FailedClosed,
    /// Another store, with a share of the budget.
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
