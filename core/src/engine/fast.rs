//! Records that are a few numbers, and the shortest way to decide on one.
//!
//! A store that keeps millions of records wants them small, and most checks are one charge to a state
//! that the same policy wrote. Everything else is for [`decide`](super::decide).

use super::{Record, State};
use crate::algorithm::Level;
use crate::algorithm::fixed_window::{self, FixedWindow, Start};
use crate::algorithm::interval_bucket::{self, IntervalBucket};
use crate::algorithm::sliding_counter::{self, SlidingCounter};
use crate::algorithm::token_bucket::{self, TokenBucket};
use crate::policy::Rule;
use crate::time::Wait;
use crate::{Charge, Outcome, Policy, Verdict};

/// What a record says beside its policy, in two words. Logs and blocks do not fit, nor does a sliding
/// counter that has come to 2^32 in one window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PackedState([u64; 2]);

impl PackedState {
    /// Nothing is taken.
    pub const NONE: Self = Self([0; 2]);

    /// Whether what a charge to `policy` leaves always fits, but for blocks.
    #[must_use]
    pub fn always_fits(policy: &Policy) -> bool {
        match policy.rule() {
            Rule::SlidingLog(_) => false,
            Rule::SlidingCounter(rule) => two_halves(rule.limit, rule.limit).is_some(),
            Rule::FixedWindow(_) | Rule::TokenBucket(_) | Rule::IntervalBucket(_) => true,
        }
    }

    /// The numbers of a record, unless they do not fit.
    #[must_use]
    pub fn of(record: &Record) -> Option<Self> {
        if record.blocked_until > 0 {
            return None;
        }
        match record.state {
            None => Some(Self::NONE),
            Some(State::FixedWindow(state)) => FixedWindow::pack(state),
            Some(State::SlidingCounter(state)) => SlidingCounter::pack(state),
            Some(State::TokenBucket(state)) => TokenBucket::pack(state),
            Some(State::IntervalBucket(state)) => IntervalBucket::pack(state),
            Some(State::SlidingLog(_)) => None,
        }
    }

    /// The record that these are the numbers of. `policy` is the one that wrote them.
    #[must_use]
    pub fn record(self, policy: &Policy) -> Record {
        let state = match policy.rule() {
            _ if self == Self::NONE => None,
            Rule::FixedWindow(_) => Some(State::FixedWindow(FixedWindow::unpack(self))),
            Rule::SlidingCounter(_) => Some(State::SlidingCounter(SlidingCounter::unpack(self))),
            Rule::TokenBucket(_) => Some(State::TokenBucket(TokenBucket::unpack(self))),
            Rule::IntervalBucket(_) => Some(State::IntervalBucket(IntervalBucket::unpack(self))),
            Rule::SlidingLog(_) => None,
        };
        Record { policy: policy.clone(), state, blocked_until: 0 }
    }

    /// As [`Record::recovers_at`]. `policy` is the one that wrote the numbers.
    #[must_use]
    #[inline]
    pub fn recovers_at(self, policy: &Policy) -> u64 {
        match policy.rule() {
            Rule::FixedWindow(rule) => rule.recovers_at(FixedWindow::unpack(self)),
            Rule::SlidingCounter(rule) => rule.recovers_at(SlidingCounter::unpack(self)),
            Rule::TokenBucket(rule) => rule.recovers_at(TokenBucket::unpack(self)),
            Rule::IntervalBucket(rule) => rule.recovers_at(IntervalBucket::unpack(self)),
            Rule::SlidingLog(_) => 0,
        }
    }

    /// Decides on one charge at `now`, and takes it if it is admitted. The numbers were written by
    /// the charge's policy, or are none.
    ///
    /// `None`, and nothing has changed, where this takes more than numbers: a log, a count that would
    /// not fit, or the block that follows on a refusal.
    #[inline(always)]
    pub fn acquire(&mut self, charge: &Charge<'_>, now: u64) -> Option<FastOutcome> {
        match charge.policy.rule() {
            Rule::TokenBucket(rule) => self.acquire_by(rule, charge, now),
            Rule::SlidingCounter(rule) => self.acquire_by(rule, charge, now),
            Rule::FixedWindow(rule) => self.acquire_by(rule, charge, now),
            Rule::IntervalBucket(rule) => self.acquire_by(rule, charge, now),
            Rule::SlidingLog(_) => None,
        }
    }

    /// The same by the charge's rule, where it is known already.
    #[inline(always)]
    pub fn acquire_by<A: PackedAlgorithm>(
        &mut self,
        rule: &A,
        charge: &Charge<'_>,
        now: u64,
    ) -> Option<FastOutcome> {
        let evaluated = self.evaluate_by(rule, charge, now)?;
        *self = evaluated.after.unwrap_or(*self);
        Some(evaluated.taken(true))
    }

    /// What would become of one charge at `now`, if it were not for others that are taken with it or not
    /// at all. `None` where [`acquire`](Self::acquire) says so.
    #[must_use]
    pub fn evaluate(self, charge: &Charge<'_>, now: u64) -> Option<Evaluation> {
        match charge.policy.rule() {
            Rule::TokenBucket(rule) => self.evaluate_by(rule, charge, now),
            Rule::SlidingCounter(rule) => self.evaluate_by(rule, charge, now),
            Rule::FixedWindow(rule) => self.evaluate_by(rule, charge, now),
            Rule::IntervalBucket(rule) => self.evaluate_by(rule, charge, now),
            Rule::SlidingLog(_) => None,
        }
    }

    #[inline(always)]
    fn evaluate_by<A: PackedAlgorithm>(
        self,
        rule: &A,
        charge: &Charge<'_>,
        now: u64,
    ) -> Option<Evaluation> {
        let state = rule.seen(A::unpack(self), now);
        let wait = rule.wait(state, charge.cost, now);
        let seen = A::pack(state)?;
        if wait.is_zero() && charge.cost > 0 {
            let after = A::pack(rule.take(state, charge, now)?)?;
            return Some(Evaluation { wait, seen, after: Some(after), now });
        }
        let evaluated = Evaluation { wait, seen, after: None, now };
        shuts_nobody_out(charge, wait).then_some(evaluated)
    }

    #[inline(always)]
    fn level_by<A: PackedAlgorithm>(self, rule: &A, now: u64) -> Level {
        rule.level(A::unpack(self), now)
    }
}

impl Record {
    /// Decides on one charge at `now`, and takes it if it is admitted, as [`PackedState::acquire`] does:
    /// for logs.
    ///
    /// `None`, and nothing has changed, where this is not a log of the charge's policy, or is
    /// blocked, or would have to be.
    #[inline]
    pub fn acquire_log(&mut self, charge: &Charge<'_>, now: u64) -> Option<FastOutcome> {
        let Rule::SlidingLog(rule) = charge.policy.rule() else { return None };
        let Some(State::SlidingLog(state)) = &mut self.state else { return None };
        if self.blocked_until > 0 || !self.policy.is_same_object(charge.policy) {
            return None;
        }
        let wait = rule.wait(Some(&**state), charge.cost, now);
        if wait.is_zero() && charge.cost > 0 {
            rule.take(state, charge.cost, now);
        }
        let Level { remaining, recovers_at } = rule.level(Some(&**state), now);
        let left = PackedState([remaining, recovers_at]);
        shuts_nobody_out(charge, wait).then_some(FastOutcome { wait, left, now })
    }
}

/// What would become of a charge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Evaluation {
    wait: Wait,
    /// What is there.
    seen: PackedState,
    /// What would be, if the charge is admitted and costs something.
    after: Option<PackedState>,
    now: u64,
}

impl Evaluation {
    /// Whether the charge is admitted.
    #[must_use]
    pub fn admits(&self) -> bool {
        self.wait.is_zero()
    }

    /// What to write if all charges are taken; `None` for nothing.
    #[must_use]
    pub fn after(&self) -> Option<PackedState> {
        self.after
    }

    /// What became of the charge, if all that are admitted `are_taken`, or none.
    #[must_use]
    #[inline(always)]
    pub fn taken(self, are_taken: bool) -> FastOutcome {
        let after = self.after.filter(|_| are_taken);
        FastOutcome { wait: self.wait, left: after.unwrap_or(self.seen), now: self.now }
    }
}

/// Whether the policy does not shut the subject out now, as some do where they refuse.
#[inline(always)]
fn shuts_nobody_out(charge: &Charge<'_>, wait: Wait) -> bool {
    wait.is_zero() || wait == Wait::NEVER || charge.cost == 0 || charge.policy.block_micros() == 0
}

/// What became of a charge to a subject that is not shut out: all that a verdict is made of, which is
/// for later, when no lock is held any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FastOutcome {
    wait: Wait,
    /// What is there afterwards; of a log, its level.
    left: PackedState,
    now: u64,
}

impl FastOutcome {
    /// What `policy`, the charge's, says to it.
    #[must_use]
    #[inline(always)]
    pub fn verdict(self, policy: &Policy) -> Verdict {
        self.verdict_at(self.level(policy), policy)
    }

    /// The same where the policy's rule is known already.
    #[must_use]
    #[inline(always)]
    pub fn verdict_by<A: PackedAlgorithm>(self, rule: &A, policy: &Policy) -> Verdict {
        self.verdict_at(self.left.level_by(rule, self.now), policy)
    }

    #[inline(always)]
    fn verdict_at(self, level: Level, policy: &Policy) -> Verdict {
        let outcome = if self.wait.is_zero() { Outcome::Allowed } else { Outcome::Denied };
        let Level { remaining, recovers_at } = level;
        let reset = recovers_at.saturating_sub(self.now);
        Verdict::new(outcome, policy.limit(), remaining, self.wait, reset)
            .in_shadow(policy.is_shadow())
    }

    #[inline(always)]
    fn level(self, policy: &Policy) -> Level {
        let Self { left, now, .. } = self;
        match policy.rule() {
            Rule::TokenBucket(rule) => left.level_by(rule, now),
            Rule::SlidingCounter(rule) => left.level_by(rule, now),
            Rule::FixedWindow(rule) => left.level_by(rule, now),
            Rule::IntervalBucket(rule) => left.level_by(rule, now),
            Rule::SlidingLog(_) => {
                let PackedState([remaining, recovers_at]) = left;
                Level { remaining, recovers_at }
            }
        }
    }
}

/// An algorithm whose state is a few numbers, not all of them 0 unless nothing is taken: then it
/// decides as without a state.
pub trait PackedAlgorithm: Sealed {}

/// What [`PackedAlgorithm`] is made of, which nobody else can be.
pub trait Sealed {
    type State: Copy;

    /// `None` where it does not fit.
    fn pack(state: Self::State) -> Option<PackedState>;
    fn unpack(numbers: PackedState) -> Self::State;

    /// The state as the others want it: at `now` already, if that saves them to work it out each.
    fn seen(&self, state: Self::State, now: u64) -> Self::State;
    fn wait(&self, seen: Self::State, cost: u64, now: u64) -> Wait;
    /// Of what `wait` admits.
    fn take(&self, seen: Self::State, charge: &Charge<'_>, now: u64) -> Option<Self::State>;
    fn level(&self, seen: Self::State, now: u64) -> Level;
}

macro_rules! few_numbers {
    (
        $rule:ident, $module:ident,
        pack: |$whole:ident| $pack:expr, unpack: |$first:ident, $second:ident| $unpack:expr,
        seen: |$seer:ident, $state:ident, $at:ident| $seen:expr,
        wait: |$waiter:ident, $asked:ident, $cost:ident, $then:ident| $wait:expr,
        take: |$taker:ident, $from:ident, $charge:ident, $now:ident| $take:expr,
        level: |$gauge:ident, $left:ident, $time:ident| $level:expr
    ) => {
        impl PackedAlgorithm for $rule {}

        impl Sealed for $rule {
            type State = $module::State;

            #[inline(always)]
            fn pack($whole: Self::State) -> Option<PackedState> {
                Some(PackedState($pack))
            }

            #[inline(always)]
            fn unpack(PackedState([$first, $second]): PackedState) -> Self::State {
                $unpack
            }

            #[inline(always)]
            fn seen(&self, $state: Self::State, $at: u64) -> Self::State {
                let $seer = self;
                $seen
            }

            #[inline(always)]
            fn wait(&self, $asked: Self::State, $cost: u64, $then: u64) -> Wait {
                let $waiter = self;
                $wait
            }

            #[inline(always)]
            fn take(
                &self,
                $from: Self::State,
                $charge: &Charge<'_>,
                $now: u64,
            ) -> Option<Self::State> {
                let $taker = self;
                $take
            }

            #[inline(always)]
            fn level(&self, $left: Self::State, $time: u64) -> Level {
                let $gauge = self;
                $level
            }
        }
    };
}

few_numbers!(
    TokenBucket, token_bucket,
    pack: |state| [state.time, state.debt], unpack: |time, debt| token_bucket::State { time, debt },
    seen: |rule, state, now| rule.at(state, now),
    wait: |rule, seen, cost, now| rule.wait_at(seen, cost, now),
    take: |rule, seen, charge, _now| Some(rule.take_admitted(seen, charge.cost)),
    level: |rule, seen, now| rule.level_at(seen, now)
);
few_numbers!(
    IntervalBucket, interval_bucket,
    pack: |state| [state.anchor, state.debt],
    unpack: |anchor, debt| interval_bucket::State { anchor, debt },
    seen: |_rule, state, _now| state,
    wait: |rule, seen, cost, now| rule.wait(Some(seen), cost, now),
    take: |rule, seen, charge, now| rule.take(Some(seen), charge.cost, now),
    level: |rule, seen, now| rule.level(Some(seen), now)
);
few_numbers!(
    SlidingCounter, sliding_counter,
    pack: |state| [state.ends, two_halves(state.previous, state.current)?],
    unpack: |ends, counts| {
        let (previous, current) = halves(counts);
        sliding_counter::State { ends, previous, current }
    },
    seen: |_rule, state, _now| state,
    wait: |rule, seen, cost, now| rule.wait(Some(seen), cost, now),
    take: |rule, seen, charge, now| Some(rule.take(Some(seen), charge.cost, now)),
    level: |rule, seen, now| rule.level(Some(seen), now)
);
few_numbers!(
    FixedWindow, fixed_window,
    pack: |state| [state.ends, state.count], unpack: |ends, count| fixed_window::State { ends, count },
    seen: |_rule, state, _now| state,
    wait: |rule, seen, cost, now| rule.wait(Some(seen), cost, now),
    take: |rule, seen, charge, now| {
        let phase = if rule.start == Start::Phased { charge.phase() } else { 0 };
        Some(rule.take(Some(seen), charge.cost, now, phase))
    },
    level: |rule, seen, now| rule.level(Some(seen), now)
);

/// Two numbers in one word, if they fit.
#[inline(always)]
fn two_halves(low: u64, high: u64) -> Option<u64> {
    let fit = (low | high) >> u32::BITS == 0;
    fit.then_some(low | high << u32::BITS)
}

#[inline(always)]
fn halves(word: u64) -> (u64, u64) {
    (word & u64::from(u32::MAX), word >> u32::BITS)
}
