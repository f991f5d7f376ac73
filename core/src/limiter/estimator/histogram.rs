//! A histogram of costs. Each cost below 16 has its own bucket. For larger costs, the width of a
//! bucket is at most 1/8 of the costs in the bucket.

use crate::Share;

/// The number of buckets per power of two is `2^SUB_BITS`. For example, the costs from 64 to 127
/// are counted in 8 buckets of width 8. So the upper bound of a bucket is less than 1/8 above each
/// cost in the bucket.
const SUB_BITS: u32 = 3;

/// The number of buckets: one for each cost below 16, and 8 for each of the 60 powers of two from
/// 2^4 to 2^63.
const BUCKETS: usize = 16 + 60 * (1 << SUB_BITS);

/// The weight of a new observation. It is a power of two, so that it can be halved exactly four
/// times: 16, 8, 4, 2, 1. With a weight of 1, a rare cost would have no weight after the first
/// halving, and the estimate would be too low.
const UNIT: u32 = 16;

/// The maximum half-life. With this half-life, the sum of the weights is at most `UNIT *
/// MAX_HALF_LIFE * (1 + 1/2 + 1/4 + …)` = 2^31, which fits in 32 bits.
pub(super) const MAX_HALF_LIFE: u32 = 1 << 26;

/// A histogram of costs. After every `half_life` observed costs, all weights are halved.
#[derive(Debug)]
pub(super) struct Histogram {
    weights: Box<[u32; BUCKETS]>,
    total: u32,
    observed: u32,
    until_halved: u32,
}

impl Histogram {
    pub(super) fn new(half_life: u32) -> Self {
        Self { weights: Box::new([0; BUCKETS]), total: 0, observed: 0, until_halved: half_life }
    }

    pub(super) fn observed(&self) -> u32 {
        self.observed
    }

    pub(super) fn observe(&mut self, cost: u64, half_life: u32) {
        if self.until_halved == 0 {
            self.halve();
            self.until_halved = half_life;
        }
        self.until_halved -= 1;
        self.observed = self.observed.saturating_add(1);
        if let Some(weight) = self.weights.get_mut(bucket(cost)) {
            *weight += UNIT;
            self.total += UNIT;
        }
    }

    fn halve(&mut self) {
        self.total = 0;
        for weight in self.weights.iter_mut() {
            *weight /= 2;
            self.total += *weight;
        }
    }

    /// Returns the upper bound of the lowest bucket that has, together with all lower buckets, at
    /// least `share` of the total weight.
    pub(super) fn quantile(&self, share: Share) -> u64 {
        let max_above = share.rest_of(self.total);
        let mut above = 0;
        // The search skips whole powers of two, because most powers of two have no weight.
        for (octave, weights) in self.weights.chunks(1 << SUB_BITS).enumerate().rev() {
            let sum: u32 = weights.iter().sum();
            if above + sum <= max_above {
                above += sum;
                continue;
            }
            for (index, &weight) in weights.iter().enumerate().rev() {
                above += weight;
                if above > max_above {
                    return upper_bound((octave << SUB_BITS) + index);
                }
            }
        }
        0
    }
}

fn bucket(cost: u64) -> usize {
    let shift = cost.checked_ilog2().unwrap_or(0).saturating_sub(SUB_BITS);
    let leading = cost >> shift;
    (shift as usize * (1 << SUB_BITS)) + usize::try_from(leading).unwrap_or(0)
}

fn upper_bound(bucket: usize) -> u64 {
    let shift = (bucket >> SUB_BITS).saturating_sub(1);
    let leading = bucket - (shift << SUB_BITS);
    ((leading as u64) << shift) | ((1 << shift) - 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Generates costs. All bit lengths of a cost have the same probability.
    fn cost() -> impl Strategy<Value = u64> {
        (0..64_u32, any::<u64>()).prop_map(|(shift, cost)| cost >> shift)
    }

    #[test]
    fn the_buckets_cover_all_costs_from_0_to_the_maximum_without_gaps() {
        assert_eq!(bucket(0), 0);
        for index in 0..BUCKETS - 1 {
            assert_eq!(bucket(upper_bound(index)), index);
            assert_eq!(bucket(upper_bound(index) + 1), index + 1);
        }
        assert_eq!(upper_bound(BUCKETS - 1), u64::MAX);
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    proptest! {
        #[test]
        fn the_upper_bound_of_a_bucket_is_less_than_an_eighth_above_its_costs(cost in cost()) {
            let bound = u128::from(upper_bound(bucket(cost)));
            let cost = u128::from(cost);
            prop_assert!(cost <= bound && (bound - cost) * 8 <= cost, "{cost}: {bound}");
        }
    }

    #[test]
    fn the_weights_fit_with_the_maximum_half_life() {
        let mut histogram = Histogram::new(MAX_HALF_LIFE);
        // Each iteration has the effect of `MAX_HALF_LIFE` observations of the cost 7.
        for _ in 0..40 {
            histogram.until_halved = 0;
            histogram.observe(7, MAX_HALF_LIFE);
            histogram.weights[7] += UNIT * (MAX_HALF_LIFE - 1);
            histogram.total += UNIT * (MAX_HALF_LIFE - 1);
        }
        assert!(histogram.total > UNIT * MAX_HALF_LIFE);
        assert_eq!(histogram.total, histogram.weights[7]);
    }
}
