//! Undoing a take: what it has left is given back, and nothing that others took.

use std::borrow::Cow;

use super::{Record, Records, State, change, evaluate_all, of, report_after};
use crate::policy::Rule;
use crate::time::Wait;
use crate::{Call, Charge, Decision};

/// Takes back what is left of the call's charges, as they were taken at `at`.
pub(super) fn undo(call: &Call<'_>, at: u64, now: u64, records: &mut impl Records) -> Decision {
    // For the sum of the costs to each key, as that is what was taken.
    let evaluated = evaluate_all(call, now, Wait::ZERO, records);
    for (place, (charge, w)) in call.charges.iter().zip(&evaluated).enumerate() {
        // What is above the limit was never taken.
        let can_be_taken = (1..=charge.policy.limit()).contains(&w.cost);
        if w.first != place || !can_be_taken || records.get(place).is_none() {
            continue;
        }
        change(place, records, |record| record.take_back(&charge, w.cost, at, now));
    }
    report_after(call, now, records)
}

impl Record {
    /// Changes nothing at all if nothing is left of the take.
    fn take_back(&mut self, charge: &Charge<'_>, cost: u64, at: u64, now: u64) {
        let mut adopted = match self.state_under(charge.policy, now) {
            None => return,
            Some(Cow::Borrowed(_)) => None,
            Some(Cow::Owned(state)) => Some(state),
        };
        let is_adopted = adopted.is_some();
        let state = if is_adopted { &mut adopted } else { &mut self.state };
        if !charge.policy.rule().take_back(state, cost, at, now) {
            return;
        }
        if is_adopted {
            self.state = adopted;
        }
        self.policy = charge.policy.clone();
        if self.blocked_until <= now {
            self.blocked_until = 0;
        }
    }
}

impl Rule {
    fn take_back(&self, state: &mut Option<State>, cost: u64, at: u64, now: u64) -> bool {
        macro_rules! take_back {
            ($rule:ident of $algorithm:ident) => {{
                let mut own = of!($algorithm, state.as_ref());
                let is_taken_back = $rule.take_back(&mut own, cost, at, now);
                if is_taken_back {
                    *state = own.map(State::$algorithm);
                }
                is_taken_back
            }};
        }
        match self {
            Self::FixedWindow(rule) => take_back!(rule of FixedWindow),
            Self::SlidingLog(rule) => {
                let Some(State::SlidingLog(log)) = state else {
                    return false;
                };
                let is_taken_back = rule.take_back(log, cost, at, now);
                if log.is_empty() {
                    *state = None;
                }
                is_taken_back
            }
            Self::SlidingCounter(rule) => take_back!(rule of SlidingCounter),
            Self::TokenBucket(rule) => take_back!(rule of TokenBucket),
            Self::IntervalBucket(rule) => take_back!(rule of IntervalBucket),
        }
    }
}
