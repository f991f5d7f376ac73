//! Compares the estimator of costs with sorted lists of the observed costs.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, and so do its helpers")]

use proptest::prelude::*;
use tidegate_core::{Estimator, Share};

const MAX: u64 = u64::MAX;

fn share(part: u32, whole: u32) -> Share {
    Share::new(part, whole).unwrap()
}

/// Returns the number of costs that are at most `bound`.
fn covered(costs: &[u64], bound: u64) -> usize {
    costs.iter().filter(|&&cost| cost <= bound).count()
}

/// Returns the smallest cost that is at least as large as `part` of `whole` observed costs. Returns
/// 1 if this cost is 0.
fn quantile(costs: &[u64], part: u32, whole: u32) -> u64 {
    let mut sorted = costs.to_vec();
    sorted.sort_unstable();
    let needed = (sorted.len() * part as usize).div_ceil(whole as usize).max(1);
    sorted[needed - 1].max(1)
}

/// Returns `true` if the estimate is the quantile, or exceeds the quantile by at most an eighth.
/// The estimator counts costs in buckets, so an estimate can be too high by this much.
fn fits(estimate: u64, quantile: u64) -> bool {
    quantile <= estimate && (u128::from(estimate - quantile)) * 8 <= u128::from(quantile)
}

/// Returns a random cost. The number of bits of the cost is distributed uniformly.
fn cost() -> impl Strategy<Value = u64> {
    (0..64_u32, any::<u64>()).prop_map(|(shift, cost)| cost >> shift)
}

proptest! {
    #[test]
    fn the_estimate_covers_the_share_of_the_observed_costs(
        costs in prop::collection::vec(cost(), 1..300),
        (part, whole) in (1..=100_u32, Just(100_u32)),
    ) {
        let estimator = Estimator::new(share(part, whole), 1).min_observations(1).half_life(300);
        costs.iter().for_each(|&cost| estimator.observe("", cost));
        let (estimate, quantile) = (estimator.estimate("", MAX), quantile(&costs, part, whole));
        prop_assert!(fits(estimate, quantile), "{estimate}, not {quantile}");
        let covered = covered(&costs, estimate) * whole as usize;
        prop_assert!(covered >= costs.len() * part as usize);
    }

    /// The estimator observes the same costs again and again, four times per half-life. So the
    /// distribution of the costs does not change over time.
    #[test]
    fn the_estimate_covers_the_share_forever(
        costs in prop::collection::vec(cost(), 1..50),
        rounds in 20..60_usize,
        part in prop::sample::select(vec![50_u32, 90, 95, 100]),
    ) {
        let half_life = u32::try_from(costs.len() * 4).unwrap();
        let estimator = Estimator::new(share(part, 100), 1).half_life(half_life).min_observations(1);
        for _ in 0..rounds * 4 {
            costs.iter().for_each(|&cost| estimator.observe("", cost));
        }
        // The estimator rounds weights down. So instead of `part` percent of the costs, an estimate
        // can cover up to 3 percentage points more or less.
        let estimate = estimator.estimate("", MAX);
        let (low, high) = (quantile(&costs, part - 3, 100), quantile(&costs, (part + 3).min(100), 100));
        prop_assert!(low <= estimate && estimate <= high.saturating_add(high / 8), "{low}, {estimate}, {high}");
    }

    #[test]
    fn after_five_half_lives_the_estimate_is_that_of_the_new_costs(
        before in 1..3_000_usize,
        half_life in 20..300_u32,
        (old, new) in (1..1_000_000_u64, 1..1_000_000_u64),
    ) {
        let estimator = Estimator::new(share(9, 10), 1).half_life(half_life).min_observations(1);
        (0..before).for_each(|_| estimator.observe("", old));
        prop_assert!(fits(estimator.estimate("", MAX), old));
        // The new costs are ten costs from `new` to `10 * new`, which repeat.
        let costs: Vec<u64> = (1..=10).map(|n| new * n).collect();
        let after = 5 * half_life as usize;
        costs.iter().cycle().take(after).for_each(|&cost| estimator.observe("", cost));
        let estimate = estimator.estimate("", MAX);
        // After five half-lives, the old cost has little weight, so an estimate covers at least 89
        // % of the new costs. The ten new costs are equally frequent, so an estimate must cover
        // nine of them.
        prop_assert!(estimate >= new * 9, "{estimate} covers too few of {costs:?}");
        prop_assert!(fits(estimate, new * 9) || fits(estimate, new * 10), "{estimate}: {costs:?}");
    }

    #[test]
    fn an_estimate_is_at_least_1_and_at_most_the_maximum(
        costs in prop::collection::vec(cost(), 0..40),
        (default, max) in (any::<u64>(), cost()),
    ) {
        let estimator = Estimator::new(share(9, 10), default).min_observations(20);
        for cost in costs {
            let estimate = estimator.estimate("", max);
            prop_assert!(1 <= estimate && estimate <= max.max(1));
            estimator.observe("", cost);
        }
    }
}

#[test]
fn before_enough_observations_the_estimate_is_the_default() {
    let estimator = Estimator::new(share(1, 2), 700).min_observations(3);
    for _ in 0..3 {
        assert_eq!(estimator.estimate("a", MAX), 700);
        estimator.observe("a", 5);
    }
    assert_eq!(estimator.estimate("a", MAX), 5);
    assert_eq!(estimator.estimate("b", MAX), 700);
}

#[test]
fn extreme_costs_are_estimated_like_others() {
    for (cost, estimate) in [(0, 1), (1, 1), (15, 15), (u64::MAX - 1, u64::MAX), (MAX, MAX)] {
        let estimator = Estimator::new(share(9, 10), 7);
        (0..100_000).for_each(|_| estimator.observe("", cost));
        assert_eq!(estimator.estimate("", MAX), estimate);
        assert_eq!(estimator.estimate("", 0), 1);
    }
}

#[test]
fn keys_are_estimated_separately_and_keys_beyond_the_maximum_together() {
    let estimator = Estimator::new(share(9, 10), 700).max_keys(2).min_observations(2);
    let learn = |key: &str, cost| (0..2).for_each(|_| estimator.observe(key, cost));
    learn("a", 1);
    // A key of more than 256 bytes has no entry of its own, so it does not count against the
    // maximum of two keys.
    learn(&"x".repeat(257), 9);
    learn("b", 2);
    learn("c", 9);
    assert_eq!(["a", "b"].map(|key| estimator.estimate(key, MAX)), [1, 2]);
    for key in ["c", "never seen", &"y".repeat(1 << 20)] {
        assert_eq!(estimator.estimate(key, MAX), 9);
    }
}

#[test]
fn hostile_keys_take_a_bounded_memory() {
    let estimator = Estimator::new(share(9, 10), 700).max_keys(10);
    let bytes = allocation_counter::measure(|| {
        for key in 0..5_000_u32 {
            // The keys have many lengths, up to some thousand bytes.
            let key = key.to_be_bytes().repeat(1 + key as usize % 300);
            estimator.observe(&key, 100);
        }
    })
    .bytes_current;
    assert!((0..10 * 2_560).contains(&bytes), "{bytes} bytes");
}

#[test]
fn threads_share_an_estimator() {
    let estimator = Estimator::new(share(9, 10), 700).max_keys(3).half_life(1 << 20);
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let estimator = &estimator;
            scope.spawn(move || {
                for n in 0..4_000 {
                    estimator.observe(["a", "b", "c", "d"][n % 4], thread + 1);
                    let estimate = estimator.estimate("a", MAX);
                    assert!(estimate == 700 || estimate <= 4);
                }
            });
        }
    });
    // For each key, each of the costs 1 to 4 is a quarter of the observations. So the estimate for
    // a share of 9/10 is 4.
    assert_eq!(["a", "d", "e"].map(|key| estimator.estimate(key, MAX)), [4, 4, 4]);
}
