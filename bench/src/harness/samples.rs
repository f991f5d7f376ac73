//! The samples of all rounds.

use std::collections::BTreeMap;
use std::fmt::Debug;

use super::figures::{Thousandths, middle};
use crate::Outcome;

/// Returns the numbers of the rounds, from 1, and prints each of them when its round begins.
pub(crate) fn rounds(count: usize) -> impl Iterator<Item = usize> {
    (1..=count).inspect(move |round| eprintln!("round {round} of {count}"))
}

/// The samples of all rounds. The key identifies a measurement, such as a scenario with a number of
/// callers. Each round measures all keys, so that a slow round affects all of them.
#[derive(Debug)]
pub(crate) struct Samples<K, S>(BTreeMap<K, Vec<S>>);

impl<K: Ord + Debug, S> Samples<K, S> {
    pub(crate) fn new() -> Self {
        Self(BTreeMap::new())
    }

    pub(crate) fn add(&mut self, key: K, sample: S) {
        self.0.entry(key).or_default().push(sample);
    }

    pub(crate) fn get(&self, key: &K) -> Outcome<&[S]> {
        let samples = self.0.get(key).map(Vec::as_slice);
        samples.ok_or_else(|| format!("{key:?} was not measured").into())
    }

    /// Returns the median of a figure over all rounds.
    pub(crate) fn median(&self, key: &K, figure: impl Fn(&S) -> u64) -> Outcome<u64> {
        Ok(middle(self.get(key)?.iter().map(figure).collect()))
    }

    /// Returns the median of the ratios of all rounds. The ratio of a round is the figure of the
    /// key `part` divided by the figure of the key `whole`.
    pub(crate) fn ratio(
        &self,
        (part, whole): (&K, &K),
        figure: impl Fn(&S) -> u64,
    ) -> Outcome<Thousandths> {
        let pairs = self.get(part)?.iter().zip(self.get(whole)?);
        let ratios = pairs.map(|(part, whole)| Thousandths::ratio(figure(part), figure(whole)));
        let ratios: Option<Vec<_>> = ratios.collect();
        Ok(middle(ratios.ok_or_else(|| format!("the figure of {whole:?} is 0"))?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_the_median_of_the_ratios_of_rounds() {
        let mut samples = Samples::new();
        for (ours, theirs) in [(10, 20), (900, 1_000), (3, 10)] {
            samples.add("ours", ours);
            samples.add("theirs", theirs);
        }
        let ratio = samples.ratio((&"ours", &"theirs"), |sample| *sample).unwrap();
        assert_eq!(ratio, Thousandths(500));
        assert_eq!(samples.median(&"theirs", |sample| *sample).unwrap(), 20);
        assert!(samples.median(&"others", |sample| *sample).is_err());
    }
}
