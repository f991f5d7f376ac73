//! Numbers that look random, and are the same in each run.

/// SplitMix64.
pub(crate) fn random(n: u64) -> u64 {
    let n = n.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}

/// A rank that is drawn with a probability of about one over itself: each octave of ranks is as
/// likely as any other. Ranks are spread over all there are.
pub(crate) fn zipf(random: u64, of: u64) -> u64 {
    let octaves = u64::from(of.ilog2()) + 1;
    let first = 1 << (random % octaves);
    let rank = first + (random >> 8) % first;
    rank.wrapping_mul(0x9e37_79b1) % of
}
