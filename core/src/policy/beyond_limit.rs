//! A policy with the largest possible limit, for charges that are counted beyond the limit.

use std::sync::Arc;

use super::{Concurrent, Inner, Policy};
use crate::algorithm::rule::Rule;
use crate::algorithm::{fair_pool, sliding_log};
use crate::time::MAX_EXACT;

impl Policy {
    /// Returns this policy with the largest limit that its states can count, for a charge that is
    /// counted beyond the limit. It has the states and the text of this policy. A denial blocks no
    /// subject, and the charge is never leased.
    ///
    /// The stores of [`StoreExt::listed`](crate::StoreExt::listed) use this policy for subjects
    /// that are allowed, and convert the verdicts.
    #[doc(hidden)]
    #[must_use]
    pub fn beyond_limit(&self) -> Self {
        if self.0.raise.is_some() {
            return self.clone();
        }
        // All limits are raised by the same amount, so that the verdict of a share can be converted
        // too.
        let rules = std::iter::once(self).chain(self.shares()).map(Self::rule);
        let raise = rules.map(|rule| max_limit(rule).saturating_sub(rule.limit())).min();
        let raise = raise.unwrap_or(0);
        let mut inner = (*self.0).clone();
        inner.raise_by(raise);
        for share in inner.shares_mut() {
            Arc::make_mut(&mut share.0).raise_by(raise);
        }
        Self(Arc::new(inner))
    }

    /// Returns the amount by which [`beyond_limit`](Self::beyond_limit) has raised the limit of
    /// this policy, and of each of its shares. Returns `None` for any other policy.
    #[inline]
    pub(crate) fn raise(&self) -> Option<u64> {
        self.0.raise
    }
}

impl Inner {
    fn raise_by(&mut self, raise: u64) {
        self.raise = Some(raise);
        match &mut self.rule {
            Rule::FixedWindow(rule) => rule.limit += raise,
            Rule::SlidingLog(rule) => rule.limit += raise,
            Rule::SlidingCounter(rule) => rule.limit += raise,
            Rule::TokenBucket(rule) => {
                rule.capacity += raise;
                rule.full += raise * rule.unit.get();
            }
            Rule::IntervalBucket(rule) => rule.capacity += raise,
            Rule::Concurrent(rule) => rule.limit += raise,
            Rule::FairPool(rule) => rule.limit += raise,
            Rule::Quota(rule) => rule.raise = raise,
        }
    }
}

/// Returns the largest limit with which each decision of the rule is exact, and with which the
/// states keep their units and their size.
fn max_limit(rule: &Rule) -> u64 {
    match rule {
        Rule::FixedWindow(_) | Rule::Quota(_) => MAX_EXACT,
        Rule::SlidingLog(rule) => match rule.window.checked_div(rule.grain) {
            Some(grains) if grains + 2 <= sliding_log::MAX_RECORDS => MAX_EXACT,
            _ => sliding_log::MAX_RECORDS,
        },
        Rule::SlidingCounter(rule) => MAX_EXACT / rule.window_ticks(),
        Rule::TokenBucket(rule) => rule.max_debt() / rule.unit(),
        Rule::IntervalBucket(rule) => rule.max_debt(),
        Rule::Concurrent(_) => Concurrent::MAX_SLOTS,
        Rule::FairPool(rule) => rule.pool + fair_pool::RAISE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_raised_policy_has_the_states_and_the_text_of_the_policy_and_another_limit() {
        for text in [
            "a: fixed-window 5/1m block 1h",
            "a: sliding-log 5/1m",
            "a: sliding-log 5/1d grain 1s leased",
            "a: sliding-counter 5/1d",
            "a: token-bucket 1/1d burst 5 by-interval",
            "a: gcra 7/3s burst 5 shadow",
            "a: concurrent 5 lease 30s",
            "a: sliding-log 11/1m shards 4",
            "a: quota 5/month in Asia/Tokyo block 1h",
            "a: fair-pool 5/1m weight 3",
        ] {
            let policy: Policy = text.parse().unwrap();
            let raised = policy.beyond_limit();
            assert_eq!(raised.to_string(), text);
            assert!(raised.shares_state_with(&policy) && raised != policy);
            assert_eq!(raised.limit() - raised.raise().unwrap(), policy.limit());
            assert!(raised.limit() > 20_000, "{text}: {}", raised.limit());
            assert!(raised.block_duration().is_none() && !raised.is_leased());
            assert!(raised.beyond_limit().is_same_object(&raised));
            for (share, before) in raised.shares().iter().zip(policy.shares()) {
                assert_eq!(share.limit() - share.raise().unwrap(), before.limit());
                assert!(share.shares_state_with(before));
            }
        }
    }

    #[test]
    fn a_share_of_a_raised_policy_is_raised_too() {
        let policy: Policy = "a: fixed-window 6/1m".parse().unwrap();
        let share = crate::Share::new(1, 3).unwrap();
        let scaled = policy.beyond_limit().scaled_to(share).unwrap().unwrap();
        assert_eq!(scaled.limit() - scaled.raise().unwrap(), 2);
    }
}
