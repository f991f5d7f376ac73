//! Packed states, and the fast path: the shortest way to decide on a packed state.
//!
//! A store with millions of states needs small states. In most calls, a single charge goes to a
//! state that the same policy wrote. This module decides only such calls, and
//! [`decide`](super::decide) all others.
//!
//! # Cost
//!
//! If all calls have the same subject, the number of instructions of the fast path limits the rate
//! of decisions. If the calls have many subjects, each decision waits about 100 ns for memory,
//! while the processor executes about 250 instructions ahead. If the next decision accesses its
//! memory within these instructions, the two decisions wait concurrently. Therefore these rules
//! keep the number of instructions low:
//!
//! * The fast path is inlined into the caller, including the decision on a token bucket, a sliding
//!   counter or a fixed window. The compiler then drops results that the caller does not use. Each
//!   call site has 1.5 kB of code. The crate has no feature that disables the inlining, because a
//!   dependency that enables the feature would change the speed for the whole program.
//! * A function for a rare case is not inlined, and is called in tail position. It takes the parts
//!   of a charge, because a reference to the call would force the call into memory. Its return type
//!   differs from the return type of the fast path (in the memory store, it is `OutOfLine`). If
//!   both types were the same, the fast path would also write its result to memory.
//! * A result that the caller drops must be cheap to drop inline. So an error consists of two small
//!   boxes, and the rare parts of a decision are behind one box.
//! * In `decide_inline`, the code of each algorithm returns by itself. If all algorithms ended in
//!   one common return, their results would be passed to this return through memory.
//! * Divisors are `NonZero`, because the compiler cannot remove a division that can panic, even if
//!   its result is not used.
//! * A verdict is five whole words, and copies move whole words. A load of 16 bytes would stall if
//!   its two words had just been stored separately.
//!
//! After a change of this module, count the instructions with `.ci/instructions`.

use super::dispatch::{State, Variant};
use super::record::Record;
use super::verdict::VerdictInput;
use crate::algorithm::rule::{Rule, dispatch};
use crate::algorithm::traits::{Algorithm, Level, PackedAlgorithm};
use crate::call::Charge;
use crate::decision::{Outcome, Verdict};
use crate::policy::Policy;
use crate::time::Wait;

/// A state in two words, without the policy that wrote it. Logs, blocks, offenses and holds do not
/// fit. A sliding counter does not fit either if one of its windows has a count of 2^32 or more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PackedState([u64; 2]);

impl PackedState {
    /// The state without usage.
    pub const NONE: Self = Self([0; 2]);

    /// Returns `true` if the state after any charge to `policy` fits into two words. A state with a
    /// block or with holds never fits.
    #[must_use]
    pub fn always_fits(policy: &Policy) -> bool {
        dispatch!(policy.rule(), |rule| rule.always_fits(), boxed _ => false)
    }

    /// Packs the state of a record. Returns `None` if the state does not fit into two words.
    #[must_use]
    pub fn new(record: &Record) -> Option<Self> {
        if record.has_block() || record.holds().is_some() {
            return None;
        }
        let Some(state) = &record.state else { return Some(Self::NONE) };
        dispatch!(record.policy().rule(), |rule| pack(rule, state), boxed _ => None)
    }

    /// Restores the record that was packed. `policy` must be the policy that wrote the record.
    #[must_use]
    pub fn record(self, policy: &Policy) -> Record {
        let state = match self {
            Self::NONE => None,
            _ => dispatch!(policy.rule(), |rule| Some(unpack(rule, self)), boxed _ => None),
        };
        Record::with_state(policy, state)
    }

    /// Returns the time at which the state recovers. From this time, decisions with the state are
    /// the same as decisions without it. `policy` must be the policy that wrote the state.
    #[must_use]
    #[inline]
    pub fn recovers_at(self, policy: &Policy) -> u64 {
        dispatch!(policy.rule(), |rule| rule.recovers_at(&own(rule, self)), boxed _ => 0)
    }

    /// Decides on one charge at `now`, and makes the charge if it is admitted. The charge's policy
    /// must have written the state. If the state is [`NONE`](Self::NONE), the charge can have any
    /// policy.
    ///
    /// Returns `None` and changes nothing if only the engine can execute the charge. This is the
    /// case for a log, for a count that does not fit into the packed state, and for a denial that
    /// blocks the subject.
    #[inline(always)]
    pub fn acquire(&mut self, charge: &Charge<'_>, now: u64) -> Option<FastOutcome> {
        dispatch!(charge.policy.rule(), |rule| self.acquire_by(rule, charge, now), boxed _ => None)
    }

    /// Like [`acquire`](Self::acquire), but the compiler knows the type of the rule.
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

    /// Evaluates one charge at `now` without making the charge. Returns `None` in the same cases as
    /// [`acquire`](Self::acquire).
    #[must_use]
    pub fn evaluate(self, charge: &Charge<'_>, now: u64) -> Option<Evaluation> {
        dispatch!(charge.policy.rule(), |rule| self.evaluate_by(rule, charge, now), boxed _ => None)
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
    /// Decides on one charge to a log at `now`, and makes the charge if the limit admits it.
    ///
    /// Returns `None` and changes nothing in three cases: this record is not a log of the charge's
    /// policy, the record has a block or holds, or a denial would block the subject.
    #[doc(hidden)]
    #[inline]
    pub fn acquire_log(&mut self, charge: &Charge<'_>, now: u64) -> Option<FastOutcome> {
        if self.has_block() || !self.is_of(charge.policy) || self.holds().is_some() {
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
    /// The state after the charge, or `None` if the charge is denied or costs nothing.
    after: Option<PackedState>,
    now: u64,
}

impl Evaluation {
    /// Returns `true` if the charge is admitted.
    #[must_use]
    pub fn admits(&self) -> bool {
        self.wait.is_zero()
    }

    /// Returns the state that the store must write if it makes the charges of the call. Returns
    /// `None` if the state does not change.
    #[must_use]
    pub fn after(&self) -> Option<PackedState> {
        self.after
    }

    /// Returns the outcome for the case that the store makes the admitted charges of the call.
    #[must_use]
    #[inline(always)]
    pub fn committed(self) -> FastOutcome {
        let left = self.after.unwrap_or(self.before);
        FastOutcome { wait: self.wait, left, now: self.now }
    }

    /// Returns the outcome for the case that the store makes no charge of the call, for example
    /// because another policy denies.
    #[must_use]
    #[inline(always)]
    pub fn discarded(self) -> FastOutcome {
        FastOutcome { wait: self.wait, left: self.before, now: self.now }
    }
}

/// Returns `true` if the charge does not block the subject. A denial blocks if the policy has a
/// block, except if the cost is 0 or exceeds the limit.
#[inline(always)]
fn blocks_nothing(charge: &Charge<'_>, wait: Wait) -> bool {
    wait.is_zero() || wait == Wait::NEVER || charge.cost == 0 || !charge.policy.blocks()
}

/// The outcome of a charge to a subject that is not blocked. The caller computes the verdict from
/// the outcome after it has released its lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FastOutcome {
    wait: Wait,
    /// The state after the charge. For a log, the two words are the remaining amount and the time
    /// of recovery instead.
    left: PackedState,
    now: u64,
}

impl FastOutcome {
    /// Returns the verdict of the charge's policy.
    #[must_use]
    #[inline(always)]
    pub fn verdict(self, policy: &Policy) -> Verdict {
        self.verdict_at(self.level(policy), policy)
    }

    /// Like [`verdict`](Self::verdict), but the compiler knows the type of the rule.
    #[must_use]
    #[inline(always)]
    pub fn verdict_by<A: PackedAlgorithm>(self, rule: &A, policy: &Policy) -> Verdict {
        self.verdict_at(self.left.level_by(rule, self.now), policy)
    }

    #[inline(always)]
    fn verdict_at(self, level: Level, policy: &Policy) -> Verdict {
        let Self { wait, now, .. } = self;
        let outcome = if wait.is_zero() { Outcome::Allowed } else { Outcome::Denied };
        let (ends_at, blocked_until, block_level) = (None, 0, 0);
        VerdictInput { outcome, wait, level, ends_at, blocked_until, block_level, now }
            .verdict(policy)
    }

    #[inline(always)]
    fn level(self, policy: &Policy) -> Level {
        let Self { left, now, .. } = self;
        dispatch!(policy.rule(), |rule| left.level_by(rule, now), boxed _ => {
            let PackedState([remaining, recovers_at]) = left;
            Level::new(remaining, recovers_at)
        })
    }
}
