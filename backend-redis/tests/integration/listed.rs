//! Compares lists around the store with lists around the core, in calls of each algorithm.

use std::time::Duration;

use tidegate_redis::{Call, CallId, Charge, ManualClock, Operation, PolicyLists, Store, StoreExt};
use tidegate_testkit::ModelStore;

use crate::common::{policy, store_at};

const HOUR: Duration = Duration::from_secs(3600);

#[tokio::test]
async fn allowed_and_denied_charges_are_decided_as_by_the_core() {
    let lists = "deny subject denied\nallow subject allowed".parse().unwrap();
    let lists = PolicyLists::new().with("a", lists);
    let other = policy("b: fixed-window 25/1h");
    for text in [
        "a: fixed-window 5/1m block 1h",
        "a: fixed-window 5/1m anchored",
        "a: sliding-log 5/1m block 1h",
        "a: sliding-log 5/1m grain 1s",
        "a: sliding-counter 5/1d",
        "a: gcra 7/3m burst 5",
        "a: token-bucket 1/1d burst 5 by-interval",
        "a: token-bucket 5/1h burst 5 refund-lapsed",
        "a: concurrent 3 lease 1h",
        "a: fair-pool 5/5s",
    ] {
        let policy = policy(&format!("{text} warn 70%"));
        let clock = ManualClock::default();
        let store = store_at(&clock).await.listed(lists.clone());
        let core = ModelStore::new(clock.clone()).listed(lists.clone());
        for round in 0..30_u32 {
            clock.advance(Duration::from_millis(777));
            let subject = ["allowed", "x", "denied", "allowed"][round as usize % 4];
            let charges = [Charge::new(&policy, subject), Charge::new(&other, "y")];
            let id = format!("{round}");
            let operation = match round {
                20 if !policy.is_fair_pool() => Operation::Block { span: HOUR },
                24 if !policy.is_fair_pool() => Operation::Block { span: Duration::ZERO },
                round if round % 5 == 4 => Operation::Peek,
                round if policy.is_concurrent() || round % 7 == 3 => Operation::Hold,
                _ => Operation::Acquire,
            };
            let is_block = matches!(operation, Operation::Block { .. });
            let charges = if is_block { &charges[..1] } else { &charges[..] };
            let call = Call::new(operation, charges);
            let call = match operation {
                Operation::Hold => call.with_id(CallId::new(&id, HOUR)),
                _ => call,
            };
            let expected = core.decide(call).await.unwrap();
            assert_eq!(store.decide(call).await.unwrap(), expected, "{call:?}");
            let peek = Call::new(Operation::Peek, charges);
            let answers = store.decide_many(&[peek, peek]).await;
            let expected = core.decide(peek).await.unwrap();
            assert!(answers.into_iter().all(|answer| answer.unwrap() == expected), "{peek:?}");
        }
        // A state that cannot count more.
        let charges = [Charge::new(&policy, "allowed").cost(1 << 52), Charge::new(&other, "z")];
        if !policy.is_concurrent() {
            for listed in [&core as &dyn Store, &store] {
                let _ = listed.decide(Call::new(Operation::Charge, &charges[..1])).await.unwrap();
            }
            for _ in 0..2 {
                let call = Call::acquire(&charges);
                let expected = core.decide(call).await.unwrap();
                assert!(expected.is_allowed(), "{text}");
                assert_eq!(store.decide(call).await.unwrap(), expected, "{text}");
            }
        }
    }
}

#[tokio::test]
async fn an_allowed_subject_spends_its_quota_as_by_the_core() {
    let lists = "allow subject s".parse().unwrap();
    let lists = PolicyLists::new().with("a", lists);
    for text in [
        "a: quota 9/day in UTC warn 50%",
        "a: quota 9/day in UTC rollover 1/2 warn 50%",
        "a: quota 9/day in UTC since 1970-01-04T07:00 rollover 1/1 warn 50%",
        "a: quota 4503599627370496/day in UTC",
        "a: credits 5",
        "a: credits 0",
    ] {
        let policy = policy(text);
        let clock = ManualClock::default();
        let store = store_at(&clock).await;
        let core = ModelStore::new(clock.clone());
        let (listed_store, listed_core) =
            ((&store).listed(lists.clone()), (&core).listed(lists.clone()));
        for round in 0..60_u64 {
            clock.advance(HOUR * 5);
            let charges = [Charge::new(&policy, "s").cost(1 + round % 7)];
            let id = format!("{round}");
            let (operation, is_listed) = match round % 10 {
                0 => (Operation::Grant { ends_at: None }, false),
                3 => (Operation::AcquireUpTo { min: 1 }, round % 4 == 3),
                4 | 7 => (Operation::Acquire, false),
                6 => (Operation::Refund, false),
                8 => (Operation::Hold, true),
                _ => (Operation::Acquire, true),
            };
            let call = Call::new(operation, &charges).with_id(CallId::new(&id, HOUR));
            let (answer, expected) = match is_listed {
                true => (listed_store.decide(call).await, listed_core.decide(call).await),
                false => (store.decide(call).await, core.decide(call).await),
            };
            assert_eq!(answer.unwrap(), expected.unwrap(), "{text}: {call:?}");
            let peek = Call::new(Operation::Peek, &charges);
            let plain = core.decide(peek).await.unwrap();
            assert_eq!(store.decide(peek).await.unwrap(), plain, "{text}: {peek:?}");
            let listed = listed_core.decide(peek).await.unwrap();
            assert_eq!(listed_store.decide(peek).await.unwrap(), listed, "{text}: {peek:?}");
        }
        // A state that cannot count more.
        let charges = [Charge::new(&policy, "s").cost(1 << 52)];
        let charge = Call::new(Operation::Charge, &charges);
        assert_eq!(store.decide(charge).await.unwrap(), core.decide(charge).await.unwrap());
        let acquire = Call::acquire(&charges);
        let expected = listed_core.decide(acquire).await.unwrap();
        assert_eq!(listed_store.decide(acquire).await.unwrap(), expected, "{text}");
    }
}
