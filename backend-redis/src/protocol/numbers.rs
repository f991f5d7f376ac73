use tidegate_core::algorithm::fair_pool::MemberId;
use tidegate_core::algorithm::fixed_window::Start;
use tidegate_core::algorithm::quota::Rollover;
use tidegate_core::engine::Rule as PolicyRule;
use tidegate_core::{Charge, MAX_EXACT, Policy, Timestamp};

use super::bytes::put;
use super::layout::{FIXED_ALIGNED, FIXED_ANCHORED, FIXED_PHASED};
use super::scripts::Rule;

/// The unit in which the fourth number of a quota contains the rollover: see `rules/quota.lua`.
const ROLLOVER: u64 = 1 << 33;

/// The unit in which the second number of a fair pool contains the weight: see
/// `rules/fair_pool.lua`.
const POOL_WEIGHT: u64 = 1 << 42;

/// Returns the script rule for the policy of a charge, and the four numbers of the policy for the
/// scripts at the time `at`. Only the numbers of a quota depend on the time. Returns `None` if the
/// scripts have no rule for the policy.
pub(super) fn numbers(charge: &Charge<'_>, at: Timestamp) -> Option<(Rule, [u64; 4])> {
    let policy = charge.policy;
    let limit = policy.limit();
    Some(match policy.rule() {
        PolicyRule::FixedWindow(rule) => {
            let window = rule.window_micros();
            let (phase, kind) = match rule.start() {
                Start::Aligned => (0, FIXED_ALIGNED),
                Start::Phased => (charge.phase() % window, FIXED_PHASED),
                Start::Anchored => (0, FIXED_ANCHORED),
                _ => return None,
            };
            (Rule::FixedWindow, [limit, window, phase, u64::from(kind)])
        }
        PolicyRule::SlidingLog(rule) => {
            let (window, grain) = (rule.window_micros(), rule.grain_micros());
            (Rule::SlidingLog, [limit, window, grain, u64::from(is_long(policy))])
        }
        PolicyRule::SlidingCounter(rule) => {
            (Rule::SlidingCounter, [limit, rule.window_ticks(), rule.tick_micros(), 0])
        }
        PolicyRule::TokenBucket(rule) => {
            (Rule::TokenBucket, [limit, rule.unit(), rule.refill(), rule.tick_micros()])
        }
        PolicyRule::IntervalBucket(rule) => {
            (Rule::IntervalBucket, [limit, rule.refill(), rule.period_micros(), 0])
        }
        PolicyRule::Concurrent(rule) => (Rule::Concurrent, [limit, rule.lease_micros(), 0, 0]),
        PolicyRule::Quota(rule) => {
            let window = rule.window_at(at.as_micros());
            let (parts, of) = rule.rollover().map_or((0, 0), Rollover::fraction);
            let length = rule.unit().max_micros().div_ceil(1_000_000);
            let length_and_rollover = length + ROLLOVER * (parts + 1_024 * of);
            let limit = rule.policy_limit_at(at.as_micros());
            // See `rules/quota.lua`.
            let limit = if rule.is_raised() { MAX_EXACT + 1 + limit } else { limit };
            (Rule::Quota, [limit, window.start, window.end, length_and_rollover])
        }
        PolicyRule::FairPool(rule) => {
            let window_and_weight = rule.window_micros() + POOL_WEIGHT * rule.weight();
            let [id, more] = MemberId::from_subject(charge.subject).numbers();
            (Rule::FairPool, [limit, window_and_weight, id, more])
        }
        _ => return None,
    })
}

/// The times for which the numbers of a request are valid. While they last, no window of a quota in
/// the request begins or ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Edges {
    from: u64,
    to: u64,
}

impl Edges {
    /// The numbers are valid at all times, because the request has no quota.
    pub(super) const NONE: Self = Self { from: 0, to: u64::MAX };

    /// Adds the numbers of a charge.
    pub(super) fn add(&mut self, rule: Rule, [_, start, end, _]: [u64; 4]) {
        if rule == Rule::Quota {
            *self = Self { from: self.from.max(start), to: self.to.min(end) };
        }
    }

    /// Returns the two times in the format of `lib/now.lua`, or no bytes for [`NONE`](Self::NONE).
    pub(super) fn bytes(self) -> Vec<u8> {
        let mut bytes = vec![];
        if self != Self::NONE {
            put(&mut bytes, self.from);
            put(&mut bytes, self.to);
        }
        bytes
    }
}

/// The maximum number of records of a log that is stored as a string.
pub(super) const MAX_STRING_RECORDS: u64 = 128;

/// Returns `true` if a log possibly needs more than [`MAX_STRING_RECORDS`] records. Such a log is
/// stored as a list.
pub(super) fn is_long(policy: &Policy) -> bool {
    policy.rule().max_records() > MAX_STRING_RECORDS
}
