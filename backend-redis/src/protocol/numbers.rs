use tidegate_core::algorithm::fixed_window::Start;
use tidegate_core::engine::Rule as PolicyRule;
use tidegate_core::{Charge, Policy};

use super::layout::{FIXED_ALIGNED, FIXED_ANCHORED, FIXED_PHASED};
use super::scripts::Rule;

/// Returns the script rule for the policy of a charge, and the four numbers of the policy for the
/// scripts. Returns `None` if the scripts have no rule for the policy.
pub(super) fn numbers(charge: &Charge<'_>) -> Option<(Rule, [u64; 4])> {
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
        _ => return None,
    })
}

/// The maximum number of records of a log that is stored as a string.
pub(super) const MAX_STRING_RECORDS: u64 = 128;

/// Returns `true` if a log possibly needs more than [`MAX_STRING_RECORDS`] records. Such a log is
/// stored as a list.
pub(super) fn is_long(policy: &Policy) -> bool {
    policy.rule().max_records() > MAX_STRING_RECORDS
}
