//! Tests that the counts of one key are exact if many callers use the key on many connections. The
//! tests use the server's own clock.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a helper of a test that fails panics, as the test does"
)]

use std::time::Duration;

use tidegate_redis::{Call, Charge, ManualClock, RedisStore, Store, Timestamp};

use crate::common::{builder, policy, server};

/// Without defect B24, 10 clients with 64 tasks each, which all use one key, are admitted exactly
/// up to the limit.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn b24_ten_clients_of_sixty_four_tasks_are_counted_exactly() {
    for text in [
        "p: fixed-window 4000/1d anchored",
        "p: sliding-log 4000/1d",
        "p: sliding-counter 4000/1d",
        "p: gcra 1/1d burst 4000",
        "p: token-bucket 1/1d burst 4000 by-interval",
    ] {
        let policy = policy(text);
        let prefix = crate::common::fresh_prefix();
        let url = server().await.url();
        let mut tasks = vec![];
        for _ in 0..10 {
            let builder = RedisStore::builder().url(&url).prefix(&prefix).connections(2);
            let patience = Duration::from_secs(30);
            let builder = builder.connect_timeout(patience).response_timeout(patience);
            let store = builder.build().unwrap();
            for _ in 0..64 {
                let (store, policy) = (store.clone(), policy.clone());
                tasks.push(tokio::spawn(async move {
                    let mut admitted = 0;
                    for _ in 0..10 {
                        let charge = [Charge::new(&policy, "hot")];
                        let decision = store.decide(Call::acquire(&charge)).await.unwrap();
                        admitted += u64::from(decision.is_allowed());
                    }
                    admitted
                }));
            }
        }
        let mut admitted = 0;
        for task in tasks {
            admitted += task.await.unwrap();
        }
        assert_eq!(admitted, 4_000, "{text}");
    }
}

/// Without defect B27, a thousand calls within one microsecond are all counted.
#[tokio::test]
async fn b27_a_thousand_calls_in_one_microsecond_all_count() {
    let clock = ManualClock::new(Timestamp::from_micros(1_790_000_000_000_123));
    for text in ["p: sliding-log 1000/1s", "p: sliding-counter 1000/1s", "p: gcra 1000/1s"] {
        let store = builder().await.clock(clock.clone()).build().unwrap();
        let policy = policy(text);
        let charge = [Charge::new(&policy, "s")];
        let calls = vec![Call::acquire(&charge); 1_001];
        let answers = store.decide_many(&calls).await;
        let admitted = answers.iter().filter(|answer| answer.as_ref().unwrap().is_allowed());
        assert_eq!(admitted.count(), 1_000, "{text}");
        assert!(answers[1_000].as_ref().unwrap().is_denied());
    }
}

/// The batch has more charges than one script call allows.
#[tokio::test]
async fn ten_thousand_subjects_fit_in_one_batch() {
    let store = builder().await.response_timeout(Duration::from_secs(30)).build().unwrap();
    let policy = policy("p: gcra 2/1h");
    let subjects: Vec<String> = (0..10_000).map(|n| format!("s{n}")).collect();
    let charges: Vec<_> = subjects.iter().map(|s| [Charge::new(&policy, s)]).collect();
    let calls: Vec<_> = charges.iter().map(|charge| Call::acquire(charge)).collect();
    for remaining in [1, 0] {
        for answer in store.decide_many(&calls).await {
            assert_eq!(answer.unwrap().verdicts()[0].remaining(), remaining);
        }
    }
}
