use tidegate_core::algorithm::fixed_window::Start;
use tidegate_core::policy::StateShape;
use tidegate_core::{Algorithm, Charge, Policy};

use super::layout::{FIXED_ALIGNED, FIXED_ANCHORED, FIXED_PHASED};
use super::scripts::Rule;

/// Rule of a charge's policy, and the four numbers that the rule takes. `None` if no script has the rule.
pub(super) fn numbers(charge: &Charge<'_>) -> Option<(Rule, [u64; 4])> {
    let policy = charge.policy;
    let limit = policy.limit();
    Some(match policy.rule().shape() {
        StateShape::FixedWindow(start, window) => {
            let (phase, kind) = match start {
                Start::Aligned => (0, FIXED_ALIGNED),
                Start::Phased => (charge.phase() % window, FIXED_PHASED),
                Start::Anchored => (0, FIXED_ANCHORED),
            };
            (Rule::FixedWindow, [limit, window, phase, u64::from(kind)])
        }
        StateShape::SlidingLog(window, grain) => {
            (Rule::SlidingLog, [limit, window, grain, u64::from(is_long(policy))])
        }
        StateShape::SlidingCounter(window) => {
            let tick = policy.rule().tick();
            (Rule::SlidingCounter, [limit, window / tick, tick, 0])
        }
        StateShape::TokenBucket => {
            let (refill, period) = rate(policy)?;
            let tick = policy.rule().tick();
            let ticks = period / tick;
            let common = gcd(refill, ticks);
            (Rule::TokenBucket, [limit, ticks / common, refill / common, tick])
        }
        StateShape::IntervalBucket(period) => {
            (Rule::IntervalBucket, [limit, rate(policy)?.0, period, 0])
        }
        _ => return None,
    })
}

/// Whether a log may need so many records that it is stored as a list.
fn is_long(policy: &Policy) -> bool {
    const LONG: u64 = 128;
    policy.rule().max_records() > LONG
}

/// Refill of a bucket, and its period in microseconds.
fn rate(policy: &Policy) -> Option<(u64, u64)> {
    let (refill, period) = match policy.algorithm() {
        Algorithm::TokenBucket(bucket) => (bucket.refill(), bucket.period()),
        Algorithm::Gcra(bucket) => (bucket.refill(), bucket.period()),
        _ => return None,
    };
    Some((refill, u64::try_from(period.as_micros()).ok()?))
}

/// Greatest common divisor, by Euclid's algorithm. A policy has no zero here.
fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a.max(1)
}
