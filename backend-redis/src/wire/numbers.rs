use tidegate_core::algorithm::fixed_window::Start;
use tidegate_core::policy::Rule as PolicyRule;
use tidegate_core::{Charge, Policy};

use super::scripts::Rule;

/// What a script has to know of a charge's policy: its rule and that rule's four numbers.
pub(super) fn numbers(charge: &Charge<'_>) -> Option<(Rule, [u64; 4])> {
    let policy = charge.policy;
    let limit = policy.limit();
    Some(match policy.rule() {
        PolicyRule::FixedWindow(rule) => {
            let window = rule.window_micros();
            let (phase, kind) = match rule.start() {
                Start::Aligned => (0, 0x91),
                Start::Phased => (charge.phase() % window, 0x92),
                Start::Anchored => (0, 0x93),
                _ => return None,
            };
            (Rule::FixedWindow, [limit, window, phase, kind])
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
        _ => return None,
    })
}

/// Whether a log may need so many records that it is to be kept as a list.
fn is_long(policy: &Policy) -> bool {
    const LONG: u64 = 128;
    policy.rule().max_records() > LONG
}
