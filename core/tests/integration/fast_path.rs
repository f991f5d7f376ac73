//! The fast paths of the engine must decide exactly like the general path.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use proptest::prelude::*;
use tidegate_core::engine::{self, Record, Records};
use tidegate_core::no_semver::PackedState;
use tidegate_core::{Call, Charge, Decision, Error, Operation, Outcome, Policy, Timestamp};

/// The record of one key, and the policy of the record.
#[derive(Debug, Clone, Default)]
struct One(Option<Record>, Option<Policy>);

impl Records for One {
    fn get(&mut self, _: usize) -> Option<&Record> {
        self.0.as_ref()
    }

    fn make_room(&mut self, _: &[usize]) -> Result<(), Error> {
        Ok(())
    }

    fn update(&mut self, _: usize, change: impl FnOnce(&mut Record)) {
        let policy = self.1.clone().unwrap();
        change(self.0.get_or_insert_with(|| Record::new(&policy)));
    }

    fn remove(&mut self, _: usize) {
        self.0 = None;
    }
}

const POLICIES: [&str; 14] = [
    "fixed-window 5/10s",
    "fixed-window 5/10s anchored",
    "fixed-window 5/10s phased",
    "sliding-counter 5/10s",
    "sliding-counter 7/1d",
    "sliding-counter 4294967295/1s",
    "sliding-counter 5000000000/900ms",
    "token-bucket 3/10s burst 5",
    "token-bucket 3/1d burst 1000",
    "token-bucket 3/10s burst 5 by-interval",
    "gcra 3/10s burst 5 shadow",
    "gcra 3/10s burst 5 block 4s",
    "sliding-log 5/10s",
    "sliding-log 5/10s grain 1s block 4s",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn the_fast_path_decides_like_the_general_path(
        policy in prop::sample::select(&POLICIES[..]),
        start in prop::sample::select(vec![0, 1_790_000_000_000_000_u64]),
        steps in prop::collection::vec((-1_000_000..6_000_000_i64, 0..7_u64, any::<bool>(), 0..20_u8), 1..60),
    ) {
        let policy: Policy = policy.parse().unwrap();
        let mut one = One(None, Some(policy.clone()));
        let mut now = start;
        for (step, cost, is_large, choice) in steps {
            // Most costs are small. The large costs make the counts grow until they do not fit into
            // a `PackedState`.
            let cost = if is_large && policy.limit() > 1 << 31 { cost << 30 } else { cost };
            now = now.saturating_add_signed(step);
            let charge = [Charge::new(&policy, "alice").cost(cost)];
            let operation = match choice {
                0 => Operation::Refund,
                1 => Operation::Reset,
                _ => Operation::Acquire,
            };
            let before = one.clone();
            let was_packed = before.0.as_ref().is_none_or(|record| PackedState::new(record).is_some());
            let call = Call::new(operation, &charge);
            let decision = engine::decide(&call, Timestamp::from_micros(now), &mut one).unwrap();
            if was_packed && policy.block_duration().is_none() && PackedState::always_fits(&policy) {
                prop_assert!(one.0.as_ref().is_none_or(|record| PackedState::new(record).is_some()));
            }
            if operation != Operation::Acquire {
                continue;
            }
            let numbers = before.0.as_ref().map_or(Some(PackedState::NONE), PackedState::new);
            if let Some(mut numbers) = numbers {
                let (unchanged, evaluated) = (numbers, numbers.evaluate(&charge[0], now));
                match numbers.acquire(&charge[0], now) {
                    Some(fast) => {
                        let evaluated = evaluated.unwrap();
                        let is_charged = evaluated.admits() && cost > 0;
                        prop_assert_eq!(evaluated.after(), is_charged.then_some(numbers));
                        prop_assert_eq!(evaluated.committed(), fast);
                        let peek = Call::new(Operation::Peek, &charge);
                        let peeked =
                            engine::decide(&peek, Timestamp::from_micros(now), &mut before.clone());
                        let discarded = evaluated.discarded().verdict(&policy);
                        prop_assert_eq!(Decision::one(discarded), peeked.unwrap());
                        prop_assert_eq!(evaluated.admits(), discarded.outcome() == Outcome::Allowed);
                        prop_assert_eq!(Decision::one(fast.verdict(&policy)), decision);
                        let after = one.0.as_ref().map_or(Some(PackedState::NONE), PackedState::new);
                        prop_assert_eq!(Some(numbers), after);
                        let record = numbers.record(&policy);
                        prop_assert_eq!(numbers.recovers_at(&policy), record.recovers_at_micros());
                        prop_assert_eq!(PackedState::new(&record), Some(numbers));
                        if let Some(general) = &one.0 {
                            prop_assert_eq!(&record, general);
                        }
                    }
                    // The fast path may return `None` only if the new record does not fit into a
                    // `PackedState`.
                    None => {
                        prop_assert!(one.0.as_ref().and_then(PackedState::new).is_none());
                        prop_assert_eq!((numbers, evaluated), (unchanged, None));
                    }
                }
                // The fast path never makes the recovery of a state earlier. So a store that keeps
                // lower bounds of recovery times need not update them.
                let recovered_at = before.0.map_or(0, |record| record.recovers_at_micros());
                prop_assert!(numbers.recovers_at(&policy) >= recovered_at);
            } else if let Some(mut record) = before.0
                && let Some(fast) = record.acquire_log(&charge[0], now)
            {
                prop_assert_eq!(Decision::one(fast.verdict(&policy)), decision);
                prop_assert_eq!(Some(&record), one.0.as_ref());
            }
        }
    }
}

#[test]
fn windows_counters_and_buckets_are_packed_while_they_fit() {
    for text in POLICIES {
        let policy: Policy = text.parse().unwrap();
        let fits = !text.starts_with("sliding-log") && !text.contains("5000000000");
        assert_eq!(PackedState::always_fits(&policy), fits, "{text}");
        let mut one = One(None, Some(policy.clone()));
        let charges = [Charge::new(&policy, "alice")];
        let now = Timestamp::from_micros(1_790_000_000_000_000);
        let _ = engine::decide(&Call::acquire(&charges), now, &mut one).unwrap();
        let packed = PackedState::new(&one.0.unwrap());
        assert_eq!(packed.is_some(), !text.starts_with("sliding-log"), "{text}");
        assert_ne!(packed, Some(PackedState::NONE), "{text}");
        assert_eq!(PackedState::new(&Record::new(&policy)), Some(PackedState::NONE), "{text}");
        assert_eq!(PackedState::NONE.record(&policy), Record::new(&policy), "{text}");
        let blocked = Record::restore(&policy, None, Some(1)).unwrap();
        assert_eq!(PackedState::new(&blocked), None, "{text}");
    }
}

#[test]
fn the_fast_path_decides_a_log_without_a_block_only_under_its_own_policy_object() {
    let policy: Policy = "p: sliding-log 2/10s".parse().unwrap();
    let equal: Policy = "p: sliding-log 2/10s".parse().unwrap();
    let window: Policy = "p: fixed-window 2/10s".parse().unwrap();
    let mut one = One(None, Some(policy.clone()));
    let charges = [Charge::new(&policy, "alice")];
    let _ = engine::decide(&Call::acquire(&charges), Timestamp::EPOCH, &mut one).unwrap();
    let mut record = one.0.unwrap();
    assert_eq!(record.acquire_log(&Charge::new(&equal, "alice"), 1), None);
    assert_eq!(record.acquire_log(&Charge::new(&window, "alice"), 1), None);
    let verdicts: Vec<_> = (1..4)
        .map(|now| record.acquire_log(&charges[0], now).unwrap().verdict(&policy))
        .map(|verdict| (verdict.outcome(), verdict.remaining()))
        .collect();
    assert_eq!(verdicts, [(Outcome::Allowed, 0), (Outcome::Denied, 0), (Outcome::Denied, 0)]);
    let mut blocked = Record::restore(&policy, record.state().cloned(), Some(1)).unwrap();
    assert_eq!(blocked.acquire_log(&charges[0], 5), None);
    assert_eq!(Record::new(&policy).acquire_log(&charges[0], 5), None);
}
