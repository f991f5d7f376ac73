//! Packed records, and the shortest way to decide on one.
//!
//! A store that keeps millions of records needs them small, and most checks are one charge to a state that the same
//! policy wrote. [`decide`](super::decide) handles everything else.

use super::Record;
use super::dispatch::{State, Variant};
use super::verdict::VerdictInput;
use crate::algorithm::rule::dispatch;
use crate::algorithm::traits::{Algorithm, Level, PackedAlgorithm};
use crate::policy::Rule;
use crate::time::Wait;
use crate::{Charge, Outcome, Policy, Verdict};

/// A record in two words, without its policy. Logs and blocks do not fit, nor does a sliding counter of 2^32 in one
/// window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PackedState([u64; 2]);

impl PackedState {
    /// Nothing is taken.
    pub const NONE: Self = Self([0; 2]);

    /// Whether the state after a charge to `policy` always fits, unless it is blocked.
    #[must_use]
    pub fn always_fits(policy: &Policy) -> bool {
        dispatch!(policy.rule(), |rule| rule.always_fits(), log _ => false)
    }

    /// The packed record, if it fits.
    #[must_use]
    pub fn of(record: &Record) -> Option<Self> {
        if record.blocked_until > 0 || record.holds().is_some() {
            return None;
        }
        let Some(state) = &record.state else { return Some(Self::NONE) };
        dispatch!(record.policy().rule(), |rule| pack(rule, state), log _ => None)
    }

    /// The record that was packed. `policy` is the one that wrote it.
    #[must_use]
    pub fn record(self, policy: &Policy) -> Record {
        let state = match self {
            Self::NONE => None,
            _ => dispatch!(policy.rule(), |rule| Some(unpack(rule, self)), log _ => None),
        };
        Record::with_state(policy, state)
    }

    /// The time from which the state is indistinguishable from none. `policy` is the one that wrote it.
    #[must_use]
    #[inline]
    pub fn recovers_at(self, policy: &Policy) -> u64 {
        dispatch!(policy.rule(), |rule| rule.recovers_at(&own(rule, self)), log _ => 0)
    }

    /// Decides on one charge at `now`, and takes it if it is admitted. The state was written by the charge's policy, or
    /// is [`NONE`](Self::NONE).
    ///
    /// `None`, and nothing has changed, if this needs the engine: a log, a count that does not fit, or a block that
    /// follows a denial.
    #[inline(always)]
    pub fn acquire(&mut self, charge: &Charge<'_>, now: u64) -> Option<FastOutcome> {
        dispatch!(charge.policy.rule(), |rule| self.acquire_by(rule, charge, now), log _ => None)
    }

    /// The same by the charge's rule, if its type is known.
    #[inline(always)]
    pub fn acquire_by<A: PackedAlgorithm>(
        &mut self,
        rule: &A,
        charge: &Charge<'_>,
        now: u64,
    ) -> Option<FastOutcome> {
        let evaluated = self.evaluate_by(rule, charge, now)?;
        *self = evaluated.after.unwrap_or(*self);
        Some(evaluated.committed())
    }

    /// Evaluates one charge at `now` without committing it. `None` as of [`acquire`](Self::acquire).
    #[must_use]
    pub fn evaluate(self, charge: &Charge<'_>, now: u64) -> Option<Evaluation> {
        dispatch!(charge.policy.rule(), |rule| self.evaluate_by(rule, charge, now), log _ => None)
    }

    #[inline(always)]
    fn evaluate_by<A: PackedAlgorithm>(
        self,
        rule: &A,
        charge: &Charge<'_>,
        now: u64,
    ) -> Option<Evaluation> {
        let state = rule.advance(own(rule, self), now);
        let wait = rule.wait_advanced(state, charge.cost, now);
        let before = A::pack(state).map(Self)?;
        if wait.is_zero() && charge.cost > 0 {
            let after = rule.take_advanced(state, charge.cost, now, || charge.phase());
            let after = A::pack(after).map(Self)?;
            return Some(Evaluation { wait, before, after: Some(after), now });
        }
        let evaluated = Evaluation { wait, before, after: None, now };
        blocks_nothing(charge, wait).then_some(evaluated)
    }

    #[inline(always)]
    fn level_by<A: PackedAlgorithm>(self, rule: &A, now: u64) -> Level {
        rule.level_advanced(own(rule, self), now)
    }
}

#[inline(always)]
fn own<A: PackedAlgorithm>(_: &A, PackedState(words): PackedState) -> A::State {
    A::unpack(words)
}

fn unpack<A: PackedAlgorithm + Variant>(rule: &A, packed: PackedState) -> State {
    A::wrap(own(rule, packed))
}

fn pack<A: PackedAlgorithm + Variant>(_: &A, state: &State) -> Option<PackedState> {
    A::pack(*A::unwrap_ref(state)?).map(PackedState)
}

impl Record {
    /// Decides on one charge at `now`, and takes it if it is admitted, as [`PackedState::acquire`] does: for logs.
    ///
    /// `None`, and nothing has changed, if this is not a log of the charge's policy, or is blocked, or a block would
    /// follow.
    #[doc(hidden)]
    #[inline]
    pub fn acquire_log(&mut self, charge: &Charge<'_>, now: u64) -> Option<FastOutcome> {
        if self.blocked_until > 0 || !self.is_of(charge.policy) || self.holds().is_some() {
            return None;
        }
        let Rule::SlidingLog(rule) = charge.policy.rule() else { return None };
        let Some(State::SlidingLog(state)) = &mut self.state else { return None };
        let wait = rule.wait_of(Some(&**state), charge.cost, now);
        if wait.is_zero() && charge.cost > 0 {
            rule.add(state, charge.cost, now);
        }
        let Level { remaining, recovers_at } = rule.level_of(Some(&**state), now);
        let left = PackedState([remaining, recovers_at]);
        blocks_nothing(charge, wait).then_some(FastOutcome { wait, left, now })
    }
}

/// The evaluation of a charge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Evaluation {
    wait: Wait,
    before: PackedState,
    /// The state after the charge, if it is admitted and costs something.
    after: Option<PackedState>,
    now: u64,
}

impl Evaluation {
    /// Whether the charge is admitted.
    #[must_use]
    pub fn admits(&self) -> bool {
        self.wait.is_zero()
    }

    /// The state to write if all charges are taken; `None` for no change.
    #[must_use]
    pub fn after(&self) -> Option<PackedState> {
        self.after
    }

    /// The outcome if all admitted charges are taken.
    #[must_use]
    #[inline(always)]
    pub fn committed(self) -> FastOutcome {
        let left = self.after.unwrap_or(self.before);
        FastOutcome { wait: self.wait, left, now: self.now }
    }

    /// The outcome if no charge is taken.
    #[must_use]
    #[inline(always)]
    pub fn discarded(self) -> FastOutcome {
        FastOutcome { wait: self.wait, left: self.before, now: self.now }
    }
}

/// Whether no block follows, as it does under some policies after a denial.
#[inline(always)]
fn blocks_nothing(charge: &Charge<'_>, wait: Wait) -> bool {
    wait.is_zero() || wait == Wait::NEVER || charge.cost == 0 || charge.policy.block_micros() == 0
}

/// The outcome of a charge to a subject that is not blocked. The verdict is computed from it later, without a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FastOutcome {
    wait: Wait,
    /// The state afterwards; of a log, its level.
    left: PackedState,
    now: u64,
}

impl FastOutcome {
    /// The verdict of the charge's policy.
    #[must_use]
    #[inline(always)]
    pub fn verdict(self, policy: &Policy) -> Verdict {
        self.verdict_at(self.level(policy), policy)
    }

    /// The same by the policy's rule, if its type is known.
    #[must_use]
    #[inline(always)]
    pub fn verdict_by<A: PackedAlgorithm>(self, rule: &A, policy: &Policy) -> Verdict {
        self.verdict_at(self.left.level_by(rule, self.now), policy)
    }

    #[inline(always)]
    fn verdict_at(self, level: Level, policy: &Policy) -> Verdict {
        let Self { wait, now, .. } = self;
        let outcome = if wait.is_zero() { Outcome::Allowed } else { Outcome::Denied };
        VerdictInput { outcome, wait, level, ends_at: None, blocked_until: 0, now }.verdict(policy)
    }

    #[inline(always)]
    fn level(self, policy: &Policy) -> Level {
        let Self { left, now, .. } = self;
        dispatch!(policy.rule(), |rule| left.level_by(rule, now), log _ => {
            let PackedState([remaining, recovers_at]) = left;
            Level::new(remaining, recovers_at)
        })
    }
}
