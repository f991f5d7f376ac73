//! The rules of a token bucket that refills by intervals: the bucket adds tokens at the end of each
//! period.

use tidegate_core::TokenBucket;

use super::rules::{self, MAX_REPAY_TIME, Rules, Take, first, micros};

const MAX_DEBT: u128 = 1 << 52;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Past {
    /// The time at which the period of the last write began.
    anchor: u64,
    debt: u128,
}

#[derive(Debug)]
pub(super) struct IntervalBucket {
    capacity: u64,
    refill: u64,
    period: u64,
}

impl IntervalBucket {
    pub(super) fn new(spec: &TokenBucket) -> Self {
        Self { capacity: spec.capacity(), refill: spec.refill(), period: micros(spec.period()) }
    }

    /// Returns the debt of the bucket after the refills of all periods that have ended by `now`, or
    /// `None` if the bucket is full.
    fn refilled(&self, past: &rules::Past, now: u64) -> Option<Past> {
        let rules::Past::IntervalBucket(past) = past else {
            return None;
        };
        let periods = now.saturating_sub(past.anchor) / self.period;
        let refilled = u128::from(periods) * u128::from(self.refill);
        (past.debt > refilled).then(|| Past {
            anchor: past.anchor + periods * self.period,
            debt: past.debt - refilled,
        })
    }

    fn debt(&self, past: &rules::Past, now: u64) -> u128 {
        self.refilled(past, now).map_or(0, |past| past.debt)
    }
}

fn tokens(debt: u128) -> u64 {
    u64::try_from(debt).unwrap_or(u64::MAX)
}

impl Rules for IntervalBucket {
    fn fits(&self, past: &rules::Past, cost: u64, now: u64) -> bool {
        self.debt(past, now) + u128::from(cost) <= u128::from(self.capacity)
    }

    fn take(&self, past: &rules::Past, cost: u64, now: u64) -> rules::Past {
        let mut past = self.refilled(past, now).unwrap_or(Past { anchor: now, debt: 0 });
        past.debt += u128::from(cost);
        rules::Past::IntervalBucket(past)
    }

    fn room(&self, past: &rules::Past, now: u64) -> u64 {
        let repaid = u128::from(MAX_REPAY_TIME / self.period) * u128::from(self.refill);
        let room = repaid.min(MAX_DEBT).saturating_sub(self.debt(past, now));
        u64::try_from(room).unwrap_or(u64::MAX)
    }

    fn refund(&self, past: &rules::Past, cost: u64, now: u64) -> (rules::Past, u64) {
        match self.refilled(past, now) {
            Some(past) if past.debt > u128::from(cost) => {
                let debt = past.debt - u128::from(cost);
                (rules::Past::IntervalBucket(Past { debt, ..past }), cost)
            }
            Some(past) => (rules::Past::Nothing, tokens(past.debt)),
            None => (rules::Past::Nothing, 0),
        }
    }

    fn undo(
        &self,
        past: &rules::Past,
        cost: u64,
        take: Take,
        now: u64,
    ) -> Option<(rules::Past, u64)> {
        let debt = self.refilled(past, now)?.debt;
        let rules::Past::IntervalBucket(written) = past else {
            return None;
        };
        if take.at >= written.anchor + self.period {
            return None; // No charge can be later than the last write.
        }
        // The bucket was refilled at the end of each period since the charge. The search counts
        // these periods backwards from the last write.
        let began = |periods: u64| written.anchor.saturating_sub(periods * self.period);
        let periods =
            first(0, written.anchor / self.period + 1, |periods| began(periods) <= take.at);
        let repaid = u128::from(periods) * u128::from(self.refill);
        let rest = u128::from(cost).min(u128::from(take.cost).saturating_sub(repaid));
        (rest > 0).then(|| match debt <= rest {
            true => (rules::Past::Nothing, tokens(debt)),
            false => {
                let debt = written.debt - rest;
                let past = rules::Past::IntervalBucket(Past { debt, ..written.clone() });
                (past, tokens(rest))
            }
        })
    }

    fn recovers_at(&self, past: &rules::Past) -> u64 {
        match past {
            rules::Past::IntervalBucket(inner) => {
                first(inner.anchor, u64::MAX, |time| self.refilled(past, time).is_none())
            }
            _ => 0,
        }
    }

    fn can_book(&self, past: &rules::Past, cost: u64, now: u64) -> bool {
        self.debt(past, now) + u128::from(cost) <= MAX_DEBT
    }
}
