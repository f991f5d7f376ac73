//! Tests against defect B29: the shares of a policy must add up to the whole policy, for all
//! numbers and all counts of shards.

use std::time::Duration;

use proptest::prelude::*;
use tidegate_core::{Algorithm, FixedWindow, MAX_EXACT, MAX_SHARDS, Policy, Shards};
use tidegate_testkit::generate::{Kind, policy};

fn shares(policy: &str) -> Vec<String> {
    let policy: Policy = policy.parse().unwrap();
    policy.shares().iter().map(|share| share.algorithm().to_string()).collect()
}

fn limits(limit: u64, count: u32) -> Vec<u64> {
    let policy = Policy::new("p", FixedWindow::new(limit, Duration::from_secs(1))).unwrap();
    let policy = policy.sharded(Shards::any(count)).unwrap();
    policy.shares().iter().map(Policy::limit).collect()
}

#[test]
fn b29_a_limit_of_eleven_over_ten_shards_is_one_share_of_two_and_nine_of_one() {
    assert_eq!(limits(11, 10), [2, 1, 1, 1, 1, 1, 1, 1, 1, 1]);
    assert_eq!(limits(3, 10), [1, 1, 1]);
    assert_eq!(limits(0, 10), [0]);
}

#[test]
fn b29_the_shares_sum_to_the_limit_for_every_small_limit_and_number_of_shards() {
    for limit in 0..=150 {
        for count in 2..=MAX_SHARDS {
            check_sum(limit, count);
        }
    }
}

fn check_sum(limit: u64, count: u32) {
    let shares = limits(limit, count);
    assert_eq!(shares.iter().sum::<u64>(), limit, "{limit} over {count}");
    let used = u64::from(count).min(limit).max(1);
    assert_eq!(u64::try_from(shares.len()).unwrap(), used, "{limit} over {count}");
    assert!(shares.is_sorted_by(|a, b| a >= b) && shares[0] - shares[shares.len() - 1] <= 1);
}

/// Returns the refill and the period of a bucket.
fn rate(policy: &Policy) -> Option<(u128, u128)> {
    let (refill, period) = match policy.algorithm() {
        Algorithm::TokenBucket(spec) => (spec.refill(), spec.period()),
        _ => return None,
    };
    Some((refill.into(), period.as_micros()))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn b29_the_shares_sum_to_the_limit_for_every_limit_and_number_of_shards(
        bits in 0..53_u32,
        limit in 0..=MAX_EXACT,
        count in 2..=MAX_SHARDS,
    ) {
        check_sum(limit >> bits, count);
    }

    #[test]
    fn the_limits_and_rates_of_the_shares_add_up_to_the_whole(
        policy in Kind::any().prop_flat_map(|kind| policy(kind, "p")),
        count in 2..=40_u32,
    ) {
        let whole = Policy::new("p", policy.algorithm().clone()).unwrap();
        // If the rate of a policy cannot be split exactly, `sharded` returns an error.
        // A pro-rated quota and a fair pool cannot be split at all.
        let Ok(split) = whole.clone().sharded(Shards::any(count)) else {
            let is_whole = whole.is_fair_pool() || whole.to_string().contains(" since ");
            prop_assert!(rate(&whole).is_some() || is_whole);
            return Ok(());
        };
        let sum: u64 = split.shares().iter().map(Policy::limit).sum();
        prop_assert_eq!(sum, whole.limit());
        if let Some((refill, period)) = rate(&whole) {
            // To add the rates, the test converts them to the longest period, which is a multiple
            // of all other periods.
            let shares = split.shares().iter().filter_map(rate);
            let shares: Vec<_> = shares.collect();
            let common = shares.iter().map(|share| share.1).max().unwrap();
            let exact = shares.iter().all(|share| common.is_multiple_of(share.1));
            prop_assert!(exact);
            let refills: u128 = shares.iter().map(|share| share.0 * (common / share.1)).sum();
            prop_assert_eq!(refills * period, refill * common);
        }
        for share in split.shares() {
            prop_assert_eq!(share.is_shadow(), split.is_shadow());
            prop_assert_eq!(share.name(), "p");
            let has_count = share.shard().is_some_and(|shard| shard.count() == count);
            prop_assert!(has_count);
        }
    }
}

#[test]
fn buckets_are_split_with_exact_rates() {
    let greedy = shares("token-bucket 10/1s burst 11 shards 3");
    assert_eq!(
        greedy,
        ["token-bucket 10/3s burst 4", "token-bucket 10/3s burst 4", "token-bucket 10/3s burst 3"]
    );
    assert_eq!(shares("gcra 100/1s burst 8 shards 4")[3], "gcra 25/1s burst 2");
    // A bucket by intervals keeps its period, and uses at most as many shards as tokens are
    // refilled per period.
    let intervals = shares("token-bucket 3/1s burst 10 by-interval shards 8");
    assert_eq!(
        intervals,
        [
            "token-bucket 1/1s burst 4 by-interval",
            "token-bucket 1/1s burst 3 by-interval",
            "token-bucket 1/1s burst 3 by-interval"
        ]
    );
}

#[test]
fn a_whole_limit_is_not_split_and_blocks() {
    let policy: Policy = "p: sliding-log 5/1m block 1h shards 2 whole shadow".parse().unwrap();
    assert_eq!(policy.shares().len(), 2);
    for share in policy.shares() {
        assert_eq!(share.algorithm(), policy.algorithm());
        assert_eq!(share.block_duration(), policy.block_duration());
        assert!(share.is_shadow());
    }
    // The order in which the options of the policy are set does not matter.
    let built: Policy = "p: sliding-log 5/1m".parse().unwrap();
    let built = built.sharded(Shards::whole(2)).unwrap().shadow();
    let built = built.block_for(Duration::from_secs(3600)).unwrap();
    assert_eq!(built, policy);
    assert_eq!(built.shares(), policy.shares());
}

#[test]
fn one_shard_is_not_a_split() {
    let policy: Policy = "p: sliding-log 5/1m shards 1 by-subject".parse().unwrap();
    assert!(policy.shares().is_empty() && policy.is_per_tenant());
    assert!(
        policy.block_for(Duration::from_secs(1)).is_ok(),
        "a refusal of the only shard is a refusal of the limit"
    );
}

#[test]
fn a_policy_that_cannot_be_split_is_an_error_that_says_why() {
    let refused = |text: &str| text.parse::<Policy>().unwrap_err();
    let error = refused("p: sliding-log 5/1m shards 257");
    assert_eq!(error.to_string(), "the number of shards is 257; it must be 1 to 256");
    assert_eq!(error.span(), Some(27..30));
    assert!(refused("p: sliding-log 5/1m shards 0").to_string().contains("shards is 0;"));
    let huge = refused("p: sliding-log 5/1m shards 4503599627370496");
    assert!(huge.to_string().contains("shards is 4294967295;"), "{huge}");
    for by in ["", " by-subject"] {
        let error = refused(&format!("p: sliding-log 5/1m block 1m shards 2{by}"));
        assert!(error.to_string().contains("exclude each other"), "{error}");
        let built: Policy = format!("p: sliding-log 5/1m shards 2{by}").parse().unwrap();
        assert!(built.block_for(Duration::from_secs(1)).is_err());
    }
    // A period of 71 years is the maximum, so it cannot be doubled for two shards. With a burst of
    // 1, only one shard has a share, and its period stays the same.
    let years = Duration::from_micros(1 << 51);
    let rare = Policy::new("p", tidegate_core::TokenBucket::gcra(1, years).burst(1)).unwrap();
    assert!(rare.clone().sharded(Shards::any(2)).is_ok(), "a burst of 1 needs only one share");
    // A burst of 3 is split into shares of 2 and 1, each with the doubled period. A bucket of 2
    // tokens then fills in 4 of the original periods, which exceeds the maximum of 2^51 µs.
    let long = Duration::from_micros((1 << 49) + 1);
    let rare = Policy::new("p", tidegate_core::TokenBucket::gcra(1, long).burst(3)).unwrap();
    let error = rare.sharded(Shards::any(2)).unwrap_err();
    assert!(error.to_string().contains("2^51 us"), "{error}");
}

#[test]
fn a_scaled_policy_keeps_its_shards() {
    let policy: Policy = "p: sliding-log 10/1m shards 4 by-subject".parse().unwrap();
    let half = policy.scaled_to(tidegate_core::Share::new(1, 2).unwrap()).unwrap().unwrap();
    assert_eq!(half.to_string(), "p: sliding-log 5/1m shards 4 by-subject");
}
