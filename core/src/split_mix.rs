//! A generator of pseudo-random numbers.

/// The difference between two consecutive states of the generator.
const INCREMENT: u64 = 0x9e37_79b9_7f4a_7c15;

/// Advances `state`, and returns the next number of the generator SplitMix64 (Steele, Lea, Flood
/// 2014). The same initial state gives the same sequence on every machine and in every version.
pub const fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(INCREMENT);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Returns the number at `index` in the sequence of the generator that begins with state 0.
#[must_use]
pub const fn nth_split_mix(index: u64) -> u64 {
    split_mix(&mut index.wrapping_mul(INCREMENT))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers are from the reference implementation (<https://prng.di.unimi.it/splitmix64.c>).
    #[test]
    fn the_numbers_are_as_in_the_reference() {
        let mut state = 1_234_567;
        let expected = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
            16_408_922_859_458_223_821,
        ];
        assert_eq!(expected.map(|_| split_mix(&mut state)), expected);
        let mut state = 0;
        for index in 0..5 {
            assert_eq!(split_mix(&mut state), nth_split_mix(index));
        }
    }
}
