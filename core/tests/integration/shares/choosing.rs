//! How often a request is refused although another shard has room, when just the limit arrives.

use proptest::prelude::*;
use tidegate_core::no_semver::{ShardPick, ShardWeights};

/// A limit over so many shards.
#[derive(Debug, Clone)]
struct Table {
    limit: u64,
    left: Vec<u64>,
}

impl Table {
    fn new(limit: u64, count: u64) -> Self {
        let left = (0..count).map(|i| limit / count + u64::from(i < limit % count));
        Self { limit, left: left.filter(|&left| left > 0).collect() }
    }

    fn choice(&self, turn: u32) -> ShardPick {
        ShardPick::new(turn, ShardWeights::new(self.left.len(), self.limit))
    }

    fn take(&mut self, place: usize) -> bool {
        let left = &mut self.left[place];
        let has = *left > 0;
        *left -= u64::from(has);
        has
    }
}

/// Refusals in a million requests of the limit's, sent by callers in any order, each of whom begins
/// with any turn.
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
            let mut asked = [Some(choice.first), choice.second].into_iter().flatten().take(tries);
            refused += u64::from(!asked.any(|place| table.take(place)));
        }
    }
    refused * 1_000_000 / (trials * limit)
}

/// Limit, shards, and the refusals in a million where shards are picked at random, once.
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
        // So the callers are what makes it random, and the second try what helps.
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
            prop_assert!(table.take(first), "request {}", request);
        }
    }

    #[test]
    fn the_second_shard_is_another_and_any_other(
        limit in 1..400_u64,
        count in 1..40_u64,
        turn in 0..u32::MAX / 2,
    ) {
        let table = Table::new(limit, count);
        let mut seen = vec![false; table.left.len()];
        for turn in turn..turn + 4_000 {
            let ShardPick { first, second } = table.choice(turn);
            prop_assert!(first < table.left.len());
            prop_assert_ne!(Some(first), second);
            prop_assert_eq!(second.is_some(), table.left.len() > 1);
            second.into_iter().for_each(|second| seen[second] = true);
        }
        prop_assert!(table.left.len() == 1 || seen.iter().all(|&seen| seen));
    }

    #[test]
    fn what_is_charged_together_goes_where_each_has_room(
        one in (0..9_usize, 0..20_u64),
        other in (0..9_usize, 0..20_u64),
        turn in any::<u32>(),
    ) {
        let (a, b) = (ShardWeights::new(one.0, one.1), ShardWeights::new(other.0, other.1));
        prop_assert_eq!(a.and(b), b.and(a));
        let ShardPick { first, second } = ShardPick::new(turn, a.and(b));
        let most = one.0.min(other.0).max(1);
        prop_assert!(first < most && second.is_none_or(|second| second < most));
    }
}
