//! Bucket that refills by intervals: some tokens at once, after each whole period.

use tidegate_core::TokenBucket;

use super::rules::{self, LONGEST, Rules, Take, first, micros};

/// More units than this a debt never has: 2^52.
const MOST: u128 = 1 << 52;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Past {
    /// From when on periods are counted.
    anchor: u64,
    /// Tokens missing from a full bucket.
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

    /// The past with all periods counted that are over; none if the bucket is full.
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
        let repaid = u128::from(LONGEST / self.period) * u128::from(self.refill);
        let room = repaid.min(MOST).saturating_sub(self.debt(past, now));
        u64::try_from(room).unwrap_or(u64::MAX)
    }

    fn give_back(&self, past: &rules::Past, cost: u64, now: u64) -> (rules::Past, u64) {
        match self.refilled(past, now) {
            Some(past) if past.debt > u128::from(cost) => {
                let debt = past.debt - u128::from(cost);
                (rules::Past::IntervalBucket(Past { debt, ..past }), cost)
            }
            // All that was owed.
            Some(past) => (rules::Past::Nothing, tokens(past.debt)),
            None => (rules::Past::Nothing, 0),
        }
    }

    fn take_back(
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
            return None; // What was taken then is not in here.
        }
        // Each period that began between the take and the last write brought a refill, as far as can be
        // told from the last of them.
        let began = |periods: u64| written.anchor.saturating_sub(periods * self.period);
        let periods =
            first(0, written.anchor / self.period + 1, |periods| began(periods) <= take.at);
        let came_back = u128::from(periods) * u128::from(self.refill);
        let left = u128::from(cost).min(u128::from(take.cost).saturating_sub(came_back));
        (left > 0).then(|| match debt <= left {
            true => (rules::Past::Nothing, tokens(debt)),
            false => {
                let debt = written.debt - left;
                let left_over = rules::Past::IntervalBucket(Past { debt, ..written.clone() });
                (left_over, tokens(left))
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
        self.debt(past, now) + u128::from(cost) <= MOST
    }
}
