//! Compares limit sets around the store with limit sets around the core, in calls of each
//! algorithm.

use std::time::Duration;

use tidegate_redis::{
    Call, CallId, Charge, CurrentLimits, LimitSet, ManualClock, Operation, Store, StoreExt,
};
use tidegate_testkit::ModelStore;

use crate::common::{policy, store_at};

const HOUR: Duration = Duration::from_secs(3600);

#[tokio::test]
async fn adjusted_policies_decide_as_by_the_core_while_the_set_changes() {
    let other = policy("b: fixed-window 25/1h");
    for (rule, changed) in [
        ("fixed-window 5/1m block 1h", "fixed-window 9/1m"),
        ("fixed-window 5/1m anchored", "sliding-log 7/1m"),
        ("sliding-log 5/1m block 1h", "sliding-log 8/1m block 1m"),
        ("sliding-counter 5/1d", "sliding-counter 50/1d"),
        ("gcra 7/3m burst 5", "gcra 50/3m burst 9"),
        ("token-bucket 1/1d burst 5 by-interval", "token-bucket 2/1d burst 9 by-interval"),
        ("token-bucket 5/1h burst 5 refund-lapsed", "token-bucket 9/1h burst 9 refund-lapsed"),
        ("concurrent 3 lease 1h", "concurrent 5 lease 1h"),
        ("quota 5/month in UTC", "quota 9/month in UTC rollover 1/2"),
    ] {
        let base = policy(&format!("a: {rule}"));
        let clock = ManualClock::default();
        let limits = CurrentLimits::with_clock(LimitSet::new(), clock.clone());
        let store = store_at(&clock).await.adjusted(limits.clone());
        let core = ModelStore::new(clock.clone()).adjusted(limits.clone());
        let mut decided = 0;
        for round in 0..40_u32 {
            clock.advance(Duration::from_millis(777));
            match round {
                8 => limits.replace(format!("a: {changed} for subject x").parse().unwrap()),
                16 => limits.replace(format!("a: {changed}\nb: gcra 30/1h").parse().unwrap()),
                24 => limits.replace(format!("a: {rule} shadow for subject x").parse().unwrap()),
                32 => limits.replace(LimitSet::new()),
                _ => {}
            }
            let subject = ["x", "y"][round as usize % 2];
            let charges = [Charge::new(&base, subject).cost(2), Charge::new(&other, "z")];
            // A hold is settled eight rounds later, under another set.
            let (operation, id) = match round % 16 {
                3 | 5 => (Operation::Hold, round),
                11 | 13 => (Operation::Settle, round - 8),
                _ if base.is_concurrent() => (Operation::Hold, round),
                9 => (Operation::Refund, round),
                _ => (Operation::Acquire, round),
            };
            let id = format!("{id}");
            let settled = [charges[0].cost(1), charges[1].cost(0)];
            let call = match operation {
                Operation::Hold => Call::new(operation, &charges).with_id(CallId::new(&id, HOUR)),
                Operation::Settle if base.is_concurrent() => {
                    Call::new(operation, &charges).with_id(CallId::new(&id, HOUR))
                }
                Operation::Settle => Call::new(operation, &settled).with_id(CallId::new(&id, HOUR)),
                _ => Call::new(operation, &charges),
            };
            let expected = core.decide(call).await;
            let answer = store.decide(call).await;
            match (&answer, &expected) {
                (Ok(answer), Ok(expected)) => {
                    assert_eq!(answer, expected, "{rule} {call:?}");
                    decided += 1;
                }
                (answer, expected) => assert_eq!(
                    answer.as_ref().map_err(|error| error.kind()),
                    expected.as_ref().map_err(|error| error.kind()),
                    "{rule} {call:?}"
                ),
            }
            let peek = Call::new(Operation::Peek, &charges);
            let answers = store.decide_many(&[peek, peek]).await;
            let expected = core.decide(peek).await.unwrap();
            assert!(answers.into_iter().all(|answer| answer.unwrap() == expected), "{peek:?}");
        }
        assert!(decided >= 34, "{rule}: {decided}");
    }
}
