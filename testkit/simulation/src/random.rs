//! Random numbers that a seed determines, so that they are the same on every machine.

use tidegate_core::no_semver::split_mix;

/// A random number generator with the algorithm SplitMix64. Its seed determines all its numbers.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// Creates a generator with this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns a new generator whose numbers depend only on `number` and on the current state of
    /// this generator.
    pub(super) fn fork(&self, number: u64) -> Self {
        let mut fork = Self(self.0 ^ number.wrapping_mul(0xd6e8_feb8_6659_fd93));
        Self(fork.number())
    }

    /// Returns the next random number.
    pub fn number(&mut self) -> u64 {
        split_mix(&mut self.0)
    }

    /// Returns a random number below `bound`, or 0 if `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        // The upper 64 bits of this product of 128 bits always fit into a `u64`.
        u64::try_from((u128::from(self.number()) * u128::from(bound)) >> 64).unwrap_or(0)
    }

    /// Returns a random number from `min` to `max`, inclusive.
    pub fn within(&mut self, min: u64, max: u64) -> u64 {
        min.saturating_add(self.below(max.saturating_sub(min).saturating_add(1)))
    }

    /// Returns an exponentially distributed random number with this mean, like the time between two
    /// arrivals of a Poisson process.
    ///
    /// The algorithm only compares uniformly distributed numbers, so that the result does not
    /// depend on the rounding of a machine. Its source is J. von Neumann, "Various techniques used
    /// in connection with random digits", 1951.
    pub fn exponential(&mut self, mean: u64) -> u64 {
        let mut whole = 0_u64;
        loop {
            let first = self.number() >> 32;
            let (mut last, mut length) = (first, 1);
            loop {
                let next = self.number() >> 32;
                if next >= last {
                    break;
                }
                (last, length) = (next, length + 1);
            }
            if length % 2 == 1 {
                let parts = (u128::from(whole) << 32) + u128::from(first);
                return u64::try_from((parts * u128::from(mean)) >> 32).unwrap_or(u64::MAX);
            }
            whole += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_within_their_bounds_and_reach_them() {
        let mut random = Random::new(1);
        let drawn: std::collections::BTreeSet<_> = (0..200).map(|_| random.within(3, 6)).collect();
        assert_eq!(drawn.into_iter().collect::<Vec<_>>(), [3, 4, 5, 6]);
        assert_eq!((random.below(0), random.within(7, 7)), (0, 7));
    }

    #[test]
    fn exponential_numbers_have_their_mean_and_their_tail() {
        let mut random = Random::new(1);
        let drawn: Vec<_> = (0..100_000).map(|_| random.exponential(1_000_000)).collect();
        let mean = drawn.iter().sum::<u64>() / 100_000;
        assert!((990_000..1_010_000).contains(&mean), "{mean}");
        // The expected shares of numbers above 1 and 3 times the mean are exp(-1) and exp(-3).
        let above = |times: u64| drawn.iter().filter(|number| **number > times * 1_000_000).count();
        assert!((36_300..37_300).contains(&above(1)), "{}", above(1));
        assert!((4_800..5_200).contains(&above(3)), "{}", above(3));
    }
}
