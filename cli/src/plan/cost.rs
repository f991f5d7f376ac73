//! What a decision costs Redis, as measured.

use tidegate_core::Policy;
use tidegate_core::engine::Rule;

/// CPU time of a decision in a batch of several callers, of 100 of a single one: 47 to 57 of subjects that differ
/// (`tidegate-bench throughput`), a fifth of one subject.
pub const PERCENT_IN_BATCHES: u64 = 50;

/// CPU time of the server for an admission, in hundredths of a microsecond: of single calls, 64 callers
/// on one connection, user and system, Redis 7.0.15 on the machine of `docs/scale.md`, the higher of two
/// runs.
///
/// Refusals cost between half and all of it; so do admissions in batches.
#[must_use]
pub fn of_decision(policy: &Policy) -> u64 {
    match policy.rule() {
        Rule::FixedWindow(_) => 1_278,
        Rule::SlidingCounter(_) => 1_373,
        Rule::IntervalBucket(_) => 1_422,
        Rule::TokenBucket(_) => 1_443,
        Rule::SlidingLog(_) if policy.rule().max_records() <= 100 => 1_781,
        // Of logs up to 10,000; measured no further.
        _ => 2_029,
    }
}
