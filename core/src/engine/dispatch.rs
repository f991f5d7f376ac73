//! The type of a state of any algorithm, and the methods of [`Rule`] that use such a state.

use crate::algorithm::concurrent::{self, ConcurrentRule};
use crate::algorithm::fair_pool::{self, FairPoolRule};
use crate::algorithm::fixed_window::{self, FixedWindowRule};
use crate::algorithm::interval_bucket::{self, IntervalBucketRule};
use crate::algorithm::quota::{self, QuotaRule};
use crate::algorithm::rule::{Rule, dispatch};
use crate::algorithm::sliding_counter::{self, SlidingCounterRule};
use crate::algorithm::sliding_log::{self, SlidingLogRule};
use crate::algorithm::token_bucket::{self, TokenBucketRule};
use crate::algorithm::traits::{Algorithm, Level, Take};
use crate::time::Wait;

/// The state of one of the algorithms.
///
/// A state consists of a few numbers. Each number is below 2^53, so that a signed 64-bit column of
/// a database can store it. Times are in microseconds since 1970.
///
/// | state | numbers |
/// |---|---|
/// | [fixed window](fixed_window::State) | `ends`: the end of the window; `count`: the cost charged in the window |
/// | [sliding log](sliding_log::State) | [`records`](sliding_log::State::records): pairs of a time and a cost, oldest first |
/// | [sliding counter](sliding_counter::State) | `ends`: the end of the current window; `previous` and `current`: the costs charged in the previous and in the current window |
/// | [token bucket, GCRA](token_bucket::State) | `time`: the time of the debt; `debt`: in units of the policy that wrote it, see [`token_bucket`] |
/// | [bucket by intervals](interval_bucket::State) | `anchor`: the start of the current period; `debt`: in tokens |
/// | [slots](concurrent::State) | `count`: the slots in use |
/// | [quota](quota::State) | `start`, `earliest_end` and `end`: the window; `count`: the cost charged in the window; `carry`: the part of the cost that also counts in the next window; `top_ups`: [grants and rolled-over quota](quota::TopUps::to_numbers), if there are any |
/// | [fair pool](fair_pool::State) | [`to_numbers`](fair_pool::State::to_numbers): the end of the window, and the numbers of each member |
///
/// The numbers have a meaning only together with the policy that wrote the state. So a store must
/// also keep the text of that policy. [`Record::restore`](super::Record::restore) creates a record
/// from the text and the numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum State {
    /// The state of a fixed window.
    FixedWindow(fixed_window::State),
    /// The state of a sliding log. It is boxed, because an unboxed log would make every record
    /// larger.
    SlidingLog(Box<sliding_log::State>),
    /// The state of a sliding counter.
    SlidingCounter(sliding_counter::State),
    /// The state of a token bucket or GCRA.
    TokenBucket(token_bucket::State),
    /// The state of a bucket that refills by intervals.
    IntervalBucket(interval_bucket::State),
    /// The state of slots.
    Concurrent(concurrent::State),
    /// The state of a quota. It is boxed, because an unboxed quota would make every record larger.
    Quota(Box<quota::State>),
    /// The state of a fair pool. It is boxed, because an unboxed pool would make every record
    /// larger.
    FairPool(Box<fair_pool::State>),
}

/// An algorithm whose state is a variant of [`State`].
pub(super) trait Variant: Algorithm {
    fn wrap(state: Self::State) -> State;

    fn unwrap(state: State) -> Option<Self::State>;
    fn unwrap_ref(state: &State) -> Option<&Self::State>;
}

macro_rules! variants {
    ($($rule:ident: $variant:ident),+) => {$(
        impl Variant for $rule {
            fn wrap(state: Self::State) -> State {
                State::$variant(state)
            }

            fn unwrap(state: State) -> Option<Self::State> {
                match state {
                    State::$variant(state) => Some(state),
                    _ => None,
                }
            }

            fn unwrap_ref(state: &State) -> Option<&Self::State> {
                match state {
                    State::$variant(state) => Some(state),
                    _ => None,
                }
            }
        }
    )+};
}
variants!(
    FixedWindowRule: FixedWindow,
    SlidingLogRule: SlidingLog,
    SlidingCounterRule: SlidingCounter,
    TokenBucketRule: TokenBucket,
    IntervalBucketRule: IntervalBucket,
    ConcurrentRule: Concurrent,
    QuotaRule: Quota,
    FairPoolRule: FairPool
);

fn own<'s, A: Variant>(_: &A, state: Option<&'s State>) -> Option<&'s A::State> {
    state.and_then(A::unwrap_ref)
}

fn into_own<A: Variant>(_: &A, state: Option<State>) -> Option<A::State> {
    state.and_then(A::unwrap)
}

fn wrap<A: Variant>(_: &A, state: A::State) -> State {
    A::wrap(state)
}

fn name<A: Algorithm>(_: &A) -> &'static str {
    A::NAME
}

/// Each method calls the corresponding method of the rule's [`Algorithm`]. A state of another
/// algorithm is treated like a missing state.
impl Rule {
    pub(super) fn wait(&self, state: Option<&State>, cost: u64, now: u64) -> Wait {
        dispatch!(self, |rule| rule.wait(own(rule, state), cost, now))
    }

    pub(super) fn level(&self, state: Option<&State>, now: u64) -> Level {
        dispatch!(self, |rule| rule.level(own(rule, state), now))
    }

    /// Returns the amount of a quota that remains if nothing is used. Returns `None` for every
    /// other rule, because this amount is its limit.
    pub(super) fn total(&self, state: Option<&State>, now: u64) -> Option<u64> {
        match self {
            Self::Quota(rule) => Some(rule.total(own(rule, state).map(|state| &**state), now)),
            _ => None,
        }
    }

    pub(super) fn recovers_at(&self, state: &State) -> u64 {
        dispatch!(self, |rule| own(rule, Some(state)).map_or(0, |state| rule.recovers_at(state)))
    }

    pub(super) fn can_reserve_cost(&self, state: Option<&State>, cost: u64, now: u64) -> bool {
        dispatch!(self, |rule| rule.can_reserve(own(rule, state), cost, now))
    }

    pub(super) fn take(
        &self,
        state: Option<State>,
        cost: u64,
        now: u64,
        phase: impl FnOnce() -> u64,
    ) -> State {
        dispatch!(self, |rule| wrap(rule, rule.take(into_own(rule, state), cost, now, phase)))
    }

    pub(super) fn chargeable(&self, state: Option<&State>, cost: u64, now: u64) -> u64 {
        dispatch!(self, |rule| rule.chargeable(own(rule, state), cost, now))
    }

    pub(super) fn charge(
        &self,
        state: Option<State>,
        cost: u64,
        now: u64,
        phase: impl FnOnce() -> u64,
    ) -> State {
        dispatch!(self, |rule| wrap(rule, rule.charge(into_own(rule, state), cost, now, phase)))
    }

    pub(super) fn refund(&self, state: Option<State>, cost: u64, now: u64) -> (Option<State>, u64) {
        dispatch!(self, |rule| {
            let Some(state) = into_own(rule, state) else { return (None, 0) };
            let (rest, amount) = rule.refund(state, cost, now);
            (rest.map(|rest| wrap(rule, rest)), amount)
        })
    }

    pub(super) fn max_refund(&self, cost: u64, amount: u64) -> u64 {
        dispatch!(self, |rule| rule.max_refund(cost, amount))
    }

    pub(super) fn undo(
        &self,
        state: &mut Option<State>,
        cost: u64,
        take: Take,
        now: u64,
    ) -> Option<u64> {
        dispatch!(self, |rule| {
            let mut own = into_own(rule, state.take());
            let amount = rule.undo(&mut own, cost, take, now);
            *state = own.map(|own| wrap(rule, own));
            amount
        })
    }

    pub(super) fn is_out_of_reach(&self, state: Option<&State>, at: u64, now: u64) -> bool {
        dispatch!(self, |rule| rule.is_out_of_reach(own(rule, state), at, now))
    }

    pub(super) fn check(&self, state: &State) -> Result<(), String> {
        dispatch!(self, |rule| match own(rule, Some(state)) {
            Some(state) => rule.check(state),
            None => Err(format!("the state is {}; it must be {}", state.name(), name(rule))),
        })
    }
}

impl State {
    fn name(&self) -> &'static str {
        match self {
            Self::FixedWindow(_) => FixedWindowRule::NAME,
            Self::SlidingLog(_) => SlidingLogRule::NAME,
            Self::SlidingCounter(_) => SlidingCounterRule::NAME,
            Self::TokenBucket(_) => TokenBucketRule::NAME,
            Self::IntervalBucket(_) => IntervalBucketRule::NAME,
            Self::Concurrent(_) => ConcurrentRule::NAME,
            Self::Quota(_) => QuotaRule::NAME,
            Self::FairPool(_) => FairPoolRule::NAME,
        }
    }
}
