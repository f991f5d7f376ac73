//! The rules of a token bucket with continuous refill, and of GCRA.
//!
//! The oracle keeps the debt as an exact fraction of tokens. The denominator of the fraction is the
//! policy's period in microseconds, so that the numerator changes by a whole number in each
//! microsecond.

use tidegate_core::Algorithm;

use super::rules::{self, MAX_REPAY_TIME, Rules, Take, first, micros};

/// The maximum debt that a store can record, in parts of a token. A part is so small that each tick
/// refills a whole number of parts.
const MAX_PARTS: u128 = 1 << 52;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Past {
    /// The time at which the bucket had the debt `debt`.
    time: u64,
    /// The debt in tokens, multiplied by `Bucket::period`.
    debt: u128,
}

#[derive(Debug)]
pub(super) struct Bucket {
    capacity: u64,
    refill: u64,
    period: u64,
    tick: u64,
}

impl Bucket {
    /// Creates the rules of a `token-bucket` or `gcra` policy. For any other algorithm, creates
    /// rules that admit nothing.
    pub(super) fn new(algorithm: &Algorithm, tick: u64) -> Self {
        let (capacity, refill, period) = match algorithm {
            Algorithm::TokenBucket(spec) => (spec.capacity(), spec.refill(), micros(spec.period())),
            _ => (0, 1, 1),
        };
        Self { capacity, refill, period, tick }
    }

    /// Converts a debt of the bucket `older`, which had other settings, into a debt of this bucket.
    ///
    /// A store counts a debt in parts of a token. The parts are so small that the refill of a tick
    /// is a whole number of parts. The store rounds the converted debt up to a whole part. If the
    /// number of parts would exceed 2^52, the store rounds the debt up to a whole token.
    pub(super) fn adopt(&self, past: &Past, older: &Self) -> Past {
        let (parts, older_parts) = (self.parts_of_a_token(), older.parts_of_a_token());
        let debt = past.debt * older_parts / u128::from(older.period);
        let debt = if parts == older_parts {
            debt
        } else {
            let (tokens, rest) = (debt / older_parts, debt % older_parts);
            let rest = if rest * parts <= MAX_PARTS {
                (rest * parts).div_ceil(older_parts)
            } else {
                parts
            };
            (tokens * parts + rest).min(MAX_PARTS)
        };
        Past { time: past.time, debt: debt * u128::from(self.period) / parts }
    }

    /// Returns the number of parts into which a token is divided, so that each tick refills a whole
    /// number of parts.
    fn parts_of_a_token(&self) -> u128 {
        let ticks = u128::from(self.period / self.tick);
        let refill = u128::from(self.refill);
        let divisor = (1..)
            .scan((ticks, refill), |(a, b), _: u32| {
                (*b > 0).then(|| {
                    (*a, *b) = (*b, *a % *b);
                    *a
                })
            })
            .last();
        ticks / divisor.unwrap_or(1)
    }

    fn on_grid(&self, now: u64) -> u64 {
        now / self.tick * self.tick
    }

    fn debt(&self, past: &rules::Past, now: u64) -> u128 {
        let rules::Past::Bucket(past) = past else {
            return 0;
        };
        let since = past.time.div_ceil(self.tick) * self.tick;
        let elapsed = self.on_grid(now).saturating_sub(since);
        past.debt.saturating_sub(u128::from(elapsed) * u128::from(self.refill))
    }

    fn tokens(&self, cost: u64) -> u128 {
        u128::from(cost) * u128::from(self.period)
    }

    fn whole_tokens(&self, debt: u128) -> u64 {
        u64::try_from(debt / u128::from(self.period)).unwrap_or(u64::MAX)
    }

    fn with_debt(&self, past: &rules::Past, debt: u128, now: u64) -> rules::Past {
        let time = match past {
            rules::Past::Bucket(past) => past.time.max(self.on_grid(now)),
            _ => self.on_grid(now),
        };
        if debt == 0 { rules::Past::Nothing } else { rules::Past::Bucket(Past { time, debt }) }
    }
}

impl Rules for Bucket {
    fn fits(&self, past: &rules::Past, cost: u64, now: u64) -> bool {
        self.debt(past, now) + self.tokens(cost) <= self.tokens(self.capacity)
    }

    fn take(&self, past: &rules::Past, cost: u64, now: u64) -> rules::Past {
        let debt = self.debt(past, now) + self.tokens(cost);
        self.with_debt(past, debt, now)
    }

    fn room(&self, past: &rules::Past, now: u64) -> u64 {
        let (parts, period) = (self.parts_of_a_token(), u128::from(self.period));
        let repaid = u128::from(MAX_REPAY_TIME / self.tick * self.tick) * u128::from(self.refill);
        let is_too_much = |cost: u64| {
            let debt = self.debt(past, now) + self.tokens(cost);
            debt > repaid || debt.checked_mul(parts).is_none_or(|debt| debt / period > MAX_PARTS)
        };
        first(1, rules::MAX_COUNT + 1, |cost| cost > rules::MAX_COUNT || is_too_much(cost)) - 1
    }

    fn refund(&self, past: &rules::Past, cost: u64, now: u64) -> (rules::Past, u64) {
        let before = self.debt(past, now);
        let debt = before.saturating_sub(self.tokens(cost));
        (self.with_debt(past, debt, now), self.whole_tokens(before - debt))
    }

    fn undo(
        &self,
        past: &rules::Past,
        cost: u64,
        take: Take,
        now: u64,
    ) -> Option<(rules::Past, u64)> {
        let rules::Past::Bucket(written) = past else {
            return None;
        };
        // If the charge was made after the last write, the bucket does not contain the charge.
        // Otherwise, the undo refunds at most the charge minus the tokens that were refilled
        // between the charge and the last write.
        let time = written.time.div_ceil(self.tick) * self.tick;
        let since = time.checked_sub(self.on_grid(take.at))?;
        let refilled = u128::from(since) * u128::from(self.refill);
        let rest = self.tokens(cost).min(self.tokens(take.cost).saturating_sub(refilled));
        let debt = self.debt(past, now);
        (rest > 0 && debt > 0).then(|| match debt <= rest {
            true => (rules::Past::Nothing, self.whole_tokens(debt)),
            false => {
                let debt = written.debt - rest;
                (rules::Past::Bucket(Past { debt, ..written.clone() }), self.whole_tokens(rest))
            }
        })
    }

    fn recovers_at(&self, past: &rules::Past) -> u64 {
        match past {
            rules::Past::Bucket(inner) => {
                first(inner.time, u64::MAX, |time| self.debt(past, time) == 0)
            }
            _ => 0,
        }
    }

    fn can_book(&self, past: &rules::Past, cost: u64, now: u64) -> bool {
        let debt = self.debt(past, now) + self.tokens(cost);
        debt.checked_mul(self.parts_of_a_token())
            .is_some_and(|debt| debt / u128::from(self.period) <= MAX_PARTS)
    }
}
