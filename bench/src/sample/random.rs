use tidegate_core::no_semver::split_mix;

/// The random numbers of a sample. A seed must give the same sample on every machine and in all
/// versions, so this generator uses whole numbers only, and no other crate.
#[derive(Clone, Debug)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        split_mix(&mut self.0)
    }

    /// Returns a number below `bound`, or 0 if `bound` is 0.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        let wide = u128::from(self.next()) * u128::from(bound);
        u64::try_from(wide >> 64).unwrap_or(0)
    }

    pub(super) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low) + 1)
    }

    /// Returns `true` with this probability, in thousandths.
    pub(super) fn chance(&mut self, in_thousand: u64) -> bool {
        self.below(1000) < in_thousand
    }

    pub(super) fn pick<T: Copy + Default>(&mut self, list: &[T]) -> T {
        let place = self.below(list.len() as u64);
        usize::try_from(place).ok().and_then(|place| list.get(place)).copied().unwrap_or_default()
    }

    /// Returns a random pause with this mean. The distribution is nearly exponential: most pauses
    /// are short, and some are long.
    pub(super) fn pause(&mut self, mean: u64) -> u64 {
        let halvings = u64::from(self.next().leading_zeros());
        mean.saturating_mul(halvings * 693 + self.below(693) + 50) / 1000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_is_the_published_one() {
        // These are the first outputs of the reference implementation for this seed.
        let mut random = Random::new(1_234_567);
        let found = [random.next(), random.next(), random.next()];
        let wanted =
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        assert_eq!(found, wanted);
    }

    #[test]
    fn pauses_have_about_their_mean() {
        let mut random = Random::new(1);
        let sum: u64 = (0..100_000).map(|_| random.pause(1000)).sum();
        assert!((950..1200).contains(&(sum / 100_000)), "{}", sum / 100_000);
    }
}
