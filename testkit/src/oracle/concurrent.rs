//! The rules of slots: the sum of the slots in use is at most the limit.

use tidegate_core::Concurrent;

use super::rules::{self, MAX_COUNT, Rules, Take};

/// The number of slots in use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Past {
    in_use: u64,
}

#[derive(Debug)]
pub(super) struct Slots {
    limit: u64,
}

impl Slots {
    pub(super) fn new(spec: &Concurrent) -> Self {
        Self { limit: spec.limit() }
    }

    pub(super) fn in_use(past: &rules::Past) -> u64 {
        match past {
            rules::Past::Concurrent(past) => past.in_use,
            _ => 0,
        }
    }

    fn past(in_use: u64) -> rules::Past {
        if in_use == 0 { rules::Past::Nothing } else { rules::Past::Concurrent(Past { in_use }) }
    }
}

impl Rules for Slots {
    fn fits(&self, past: &rules::Past, cost: u64, _now: u64) -> bool {
        cost == 0 || u128::from(Self::in_use(past)) + u128::from(cost) <= u128::from(self.limit)
    }

    fn take(&self, past: &rules::Past, cost: u64, _now: u64) -> rules::Past {
        Self::past(Self::in_use(past) + cost)
    }

    fn room(&self, past: &rules::Past, _now: u64) -> u64 {
        MAX_COUNT - Self::in_use(past)
    }

    fn refund(&self, past: &rules::Past, cost: u64, _now: u64) -> (rules::Past, u64) {
        let freed = cost.min(Self::in_use(past));
        (Self::past(Self::in_use(past) - freed), freed)
    }

    fn undo(
        &self,
        past: &rules::Past,
        cost: u64,
        _take: Take,
        now: u64,
    ) -> Option<(rules::Past, u64)> {
        (Self::in_use(past) > 0).then(|| self.refund(past, cost, now))
    }

    /// Slots never become free by themselves. Their holds lapse.
    fn recovers_at(&self, past: &rules::Past) -> u64 {
        if Self::in_use(past) > 0 { u64::MAX } else { 0 }
    }
}
