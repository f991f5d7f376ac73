//! Random numbers that are the same everywhere and for ever.

use tidegate_core::no_semver::split_mix;

/// The random numbers of a sample. A sample must stay the same for its seed in all versions, and on
/// every machine. So these are whole numbers, and the generator is this workspace's own.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        split_mix(&mut self.0)
    }

    /// A number below `bound`, or 0 if that is 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        let wide = u128::from(self.next()) * u128::from(bound);
        u64::try_from(wide >> 64).unwrap_or(0)
    }

    /// A number from `low` to `high`, both included.
    pub(super) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low) + 1)
    }

    /// True so many times in a thousand.
    pub(super) fn chance(&mut self, in_thousand: u64) -> bool {
        self.below(1000) < in_thousand
    }

    /// One of them; the list must not be empty for it to be of use.
    pub(super) fn pick<T: Copy + Default>(&mut self, list: &[T]) -> T {
        let place = self.below(list.len() as u64);
        usize::try_from(place).ok().and_then(|place| list.get(place)).copied().unwrap_or_default()
    }

    /// A pause of this mean, mostly short and now and then long: an exponential distribution, with
    /// straight lines between the points where it halves.
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
        // The first outputs of the reference implementation for the seed 1234567.
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
