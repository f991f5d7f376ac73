//! The measured cost of a decision on a Redis server.

use tidegate_core::Policy;
use tidegate_core::engine::Rule;

/// The CPU time of a decision in a batch of several callers, in percent of the time of a single
/// call. Measured were 47 to 57 percent for different subjects, and 20 percent for one subject
/// (benchmark `throughput`).
pub const PERCENT_IN_BATCHES: u64 = 50;

/// Returns the CPU time of the server for an admission, in hundredths of a microsecond. It was
/// measured with single calls of 64 callers on one connection, on Redis 7.0.15 and the machine of
/// `docs/scale.md`. It is the user and system time, and the higher figure of two runs.
///
/// A refusal costs between half and all of this time. So does an admission in a batch.
#[must_use]
pub fn decision(policy: &Policy) -> u64 {
    match policy.rule() {
        Rule::FixedWindow(_) => 1_278,
        Rule::SlidingCounter(_) => 1_373,
        Rule::IntervalBucket(_) => 1_422,
        Rule::TokenBucket(_) => 1_443,
        Rule::SlidingLog(_) if policy.rule().max_records() <= 100 => 1_781,
        // Logs of up to 10,000 records were measured.
        _ => 2_029,
    }
}
