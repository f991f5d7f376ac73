//! The units of a token. Units are converted into tokens without a division, because a division
//! takes longer than most other steps of a decision.

use crate::time::MAX_EXACT;

/// The number of units in a token, from 1 to [`MAX_EXACT`], and its reciprocal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Unit {
    units: u64,
    /// The reciprocal: 2^(63 + `shift`) divided by `units`, rounded up.
    reciprocal: u64,
    /// The position of the highest bit of `units`.
    shift: u32,
}

impl Unit {
    /// Creates a token that consists of `units` units. A number outside of 1 to [`MAX_EXACT`] is
    /// clamped to this range.
    #[must_use]
    pub fn new(units: u64) -> Self {
        let units = units.clamp(1, MAX_EXACT);
        let shift = units.ilog2();
        // The reciprocal is at most 2^63, because `units` is at least 2^`shift`.
        let reciprocal = (1_u128 << (63 + shift)).div_ceil(u128::from(units));
        Self { units, reciprocal: low_half(reciprocal), shift }
    }

    /// Returns the number of units in a token.
    #[must_use]
    #[inline(always)]
    pub const fn get(self) -> u64 {
        self.units
    }

    /// Returns the number of whole tokens in `units`, which must be at most [`MAX_EXACT`].
    ///
    /// Source: T. Granlund, P. Montgomery, "Division by invariant integers using multiplication"
    /// (1994), theorem 4.2. For a dividend of at most 53 bits, the quotient is exact if the product
    /// of the reciprocal and `units` exceeds 2^(63 + `shift`) by at most 2^(10 + `shift`). The
    /// product exceeds it by less than `units`, because the reciprocal is rounded up by less than
    /// 1, and `units` is less than 2^(1 + `shift`).
    #[must_use]
    #[inline(always)]
    pub fn whole_tokens(self, units: u64) -> u64 {
        let product = u128::from(units << 1) * u128::from(self.reciprocal);
        low_half(product >> 64) >> self.shift
    }
}

#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "the low half is wanted")]
const fn low_half(number: u128) -> u64 {
    number as u64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn number() -> impl Strategy<Value = u64> {
        let near_a_power = (0..=52_u32, -2..=2_i64)
            .prop_map(|(bits, more)| (1_u64 << bits).saturating_add_signed(more).min(MAX_EXACT));
        prop_oneof![0..=MAX_EXACT, near_a_power, 0..1_000_u64]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]

        #[test]
        fn tokens_are_the_exact_quotient(units in number(), size in number(), times in number()) {
            let size = size.max(1);
            let unit = Unit::new(size);
            prop_assert_eq!(unit.get(), size);
            prop_assert_eq!(unit.whole_tokens(units), units / size);
            // The quotient changes at each multiple of `size`, so the test also checks a multiple
            // and its two neighbors.
            let multiple = (times % (MAX_EXACT / size + 1)) * size;
            for near in [multiple.saturating_sub(1), multiple, (multiple + 1).min(MAX_EXACT)] {
                prop_assert_eq!(unit.whole_tokens(near), near / size);
            }
        }
    }
}
