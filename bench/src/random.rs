//! Numbers that look random, and are the same in each run.

pub(crate) use tidegate_memory::core::no_semver::nth_split_mix as random;

/// Returns a number below `of` by Zipf's law: rank r has a probability of about 1/r. The ranks are
/// spread over all numbers.
pub(crate) fn zipf(random: u64, of: u64) -> u64 {
    let octaves = u64::from(of.ilog2()) + 1;
    let first = 1 << (random % octaves);
    let rank = first + (random >> 8) % first;
    rank.wrapping_mul(0x9e37_79b1) % of
}
