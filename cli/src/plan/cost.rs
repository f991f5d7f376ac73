//! The measured cost of a decision on a Redis server.

use tidegate_core::Policy;
use tidegate_core::engine::Rule;

/// The CPU time of a decision in a batch, in percent of the CPU time of a call that is sent alone.
/// The benchmark `throughput` measured 47 to 57 percent for callers with different subjects, and 20
/// percent for callers with the same subject.
pub const PERCENT_IN_BATCHES: u64 = 50;

/// Returns the CPU time of the renewal of a hold with slots, in hundredths of a microsecond, as the
/// benchmark `slots` measured it. If the hold has other policies too (`is_alone` is `false`), the
/// general scripts renew it.
#[must_use]
pub const fn renewal(is_alone: bool) -> u64 {
    if is_alone { 1_600 } else { 2_500 }
}

/// Returns the CPU time that a Redis server needs for an admitted call, in hundredths of a
/// microsecond. It is the user and system time, measured on Redis 7.0.15 and the machine of
/// `docs/scale.md`. 64 callers sent single calls on one connection, and the higher result of two
/// runs is used.
///
/// A refused call takes 50 to 100 percent of the CPU time of an admitted call.
///
/// For quotas and fair pools, the result is the CPU time of a fixed window, times the ratio that
/// `docs/benchmarks.md` states for a quota, for a rollover, and for a pool with 100 members. The
/// ratio of a quota with two grants, 2.26, was measured in the same way.
///
/// For slots, the result is the CPU time of a hold and its settlement, as the benchmark `slots`
/// measured it. `is_alone` says whether the call has no other policies.
#[must_use]
pub fn decision(policy: &Policy, is_alone: bool, grants: u64) -> u64 {
    match policy.rule() {
        Rule::FixedWindow(_) => 1_278,
        Rule::SlidingCounter(_) => 1_373,
        Rule::IntervalBucket(_) => 1_422,
        Rule::TokenBucket(_) => 1_443,
        Rule::Quota(_) if grants > 0 => 2_888,
        Rule::Quota(quota) if quota.rollover().is_some() => 2_147,
        Rule::Quota(_) => 1_457,
        Rule::Concurrent(_) if is_alone => 2_400,
        Rule::Concurrent(_) => 5_800,
        Rule::FairPool(_) => 1_828,
        Rule::SlidingLog(_) if policy.rule().max_records() <= 100 => 1_781,
        // The measured logs had up to 10,000 records.
        _ => 2_029,
    }
}
