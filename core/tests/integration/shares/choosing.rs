//! Measures how many requests are refused too early. The requests add up to exactly the limit, so
//! each refused request leaves room in another shard.

use proptest::prelude::*;
use tidegate_core::no_semver::{ShardPick, ShardWeights};

/// A limit that is split over several shards.
#[derive(Debug, Clone)]
struct Table {
    limit: u64,
    remaining: Vec<u64>,
}

impl Table {
    fn new(limit: u64, count: u64) -> Self {
        let remaining = (0..count).map(|i| limit / count + u64::from(i < limit % count));
        Self { limit, remaining: remaining.filter(|&amount| amount > 0).collect() }
    }

    fn choice(&self, turn: u32) -> ShardPick {
        ShardPick::new(turn, ShardWeights::new(self.remaining.len(), self.limit))
    }

    fn acquire(&mut self, shard: usize) -> bool {
        let remaining = &mut self.remaining[shard];
        let is_admitted = *remaining > 0;
        *remaining -= u64::from(is_admitted);
        is_admitted
    }
}

/// Returns the number of refusals per million requests. The callers make as many requests as the
/// limit, in random order. Each caller has a turn number, which selects the shards of its next
/// request. It begins at a random number, and grows by 1 with each request.
fn refused(limit: u64, count: u64, callers: u64, tries: usize) -> u64 {
    let mut chance = 0x1234_5678_9abc_def0_u64;
    let mut next = || {
        chance ^= chance << 13;
        chance ^= chance >> 7;
        chance ^= chance << 17;
        chance
    };
    let trials = (60_000 / limit).max(6);
    let mut refused = 0;
    for _ in 0..trials {
        let mut table = Table::new(limit, count);
        let mut turns: Vec<u32> = (0..callers).map(|_| (next() >> 32) as u32).collect();
        for _ in 0..limit {
            let caller = usize::try_from(next() % callers).unwrap();
            let choice = table.choice(turns[caller]);
            turns[caller] = turns[caller].wrapping_add(1);
            let mut shards = [Some(choice.first), choice.second].into_iter().flatten().take(tries);
            refused += u64::from(!shards.any(|shard| table.acquire(shard)));
        }
    }
    refused * 1_000_000 / (trials * limit)
}

/// For each case, the limit, the number of shards, and the number of refusals per million requests
/// if each request picks one shard at random.
const AT_RANDOM: [(u64, u64, u64); 5] = [
    (20, 4, 155_000),
    (100, 10, 121_000),
    (1_000, 4, 22_000),
    (1_000, 10, 37_000),
    (10_000, 16, 15_000),
];

#[test]
fn many_callers_are_refused_at_most_half_as_often_as_at_random() {
    for (limit, count, at_random) in AT_RANDOM {
        for callers in [10, 100, 1_000] {
            let refused = refused(limit, count, callers, 2);
            assert!(
                refused < at_random * 55 / 100,
                "{limit} over {count}, {callers} callers: {refused} in a million"
            );
        }
        // With many callers and one try per request, refusals are about as frequent as with random
        // shards. So it is the second try that reduces the refusals.
        let once = refused(limit, count, 100_000, 1);
        assert!(once > at_random * 8 / 10 && once < at_random * 12 / 10, "{once}");
    }
}

proptest! {
    #[test]
    fn a_caller_alone_is_never_refused_too_early(
        limit in 1..400_u64,
        count in 1..40_u64,
        turn in 0..u32::MAX / 2,
    ) {
        let mut table = Table::new(limit, count);
        for request in 0..u32::try_from(limit).unwrap() {
            let first = table.choice(turn + request).first;
            prop_assert!(table.acquire(first), "request {}", request);
        }
    }

    #[test]
    fn the_second_shard_differs_from_the_first_and_can_be_any_other(
        limit in 1..400_u64,
        count in 1..40_u64,
        turn in 0..u32::MAX / 2,
    ) {
        let table = Table::new(limit, count);
        let mut seen = vec![false; table.remaining.len()];
        for turn in turn..turn + 4_000 {
            let ShardPick { first, second } = table.choice(turn);
            prop_assert!(first < table.remaining.len());
            prop_assert_ne!(Some(first), second);
            prop_assert_eq!(second.is_some(), table.remaining.len() > 1);
            second.into_iter().for_each(|second| seen[second] = true);
        }
        prop_assert!(table.remaining.len() == 1 || seen.iter().all(|&seen| seen));
    }

    #[test]
    fn charges_of_one_call_use_a_shard_that_each_policy_has(
        one in (0..9_usize, 0..20_u64),
        other in (0..9_usize, 0..20_u64),
        turn in any::<u32>(),
    ) {
        let (a, b) = (ShardWeights::new(one.0, one.1), ShardWeights::new(other.0, other.1));
        prop_assert_eq!(a.and(b), b.and(a));
        let ShardPick { first, second } = ShardPick::new(turn, a.and(b));
        let count = one.0.min(other.0).max(1);
        prop_assert!(first < count && second.is_none_or(|second| second < count));
    }
}
