//! Tests batches that are far larger than the maximum of one script call.
#![allow(clippy::unwrap_used, reason = "a helper of a test that fails panics, as the test does")]

use std::time::Duration;

use tidegate_redis::protocol::Batch;
use tidegate_redis::{Call, Charge, Policy, RedisStore, Store};
use tidegate_test_servers::Redis;

const CALLS: usize = 100_000;

async fn script_calls(redis: &Redis) -> usize {
    let stats = redis.command(&["INFO", "commandstats"]).await.unwrap().text();
    let count = |name: &str| {
        let calls = stats.lines().find_map(|line| line.strip_prefix(name)?.split(',').next());
        calls.map_or(0, |calls| calls.parse::<usize>().unwrap())
    };
    count("cmdstat_evalsha:calls=") + count("cmdstat_eval:calls=")
}

/// Guards against a defect: a batch of one subject has only one key, so the store sent it as one
/// script call, which took 7 s. A server does nothing else while it runs a script.
#[tokio::test]
async fn a_batch_of_one_subject_is_split_into_short_script_calls() {
    let redis = Redis::start().await.unwrap();
    let builder = RedisStore::builder().url(redis.socket_url());
    let store = builder.response_timeout(Duration::from_secs(2)).build().unwrap();
    for text in ["b: gcra 60000/10d", "l: sliding-log 60000/10d"] {
        let policy: Policy = text.parse().unwrap();
        let charge = [Charge::new(&policy, "hot")];
        let calls = vec![Call::acquire(&charge); CALLS];
        let before = script_calls(&redis).await;
        let mut admitted = 0;
        for (index, answer) in store.decide_many(&calls).await.into_iter().enumerate() {
            let decision = answer.unwrap_or_else(|error| panic!("{text}, {index}: {error}"));
            admitted += u64::from(decision.is_allowed());
        }
        assert!((60_000..60_100).contains(&admitted), "{text}: {admitted}");
        let made = script_calls(&redis).await - before;
        assert!(made >= CALLS.div_ceil(Batch::MAX_CHARGES), "{text}: {made} script calls");
        assert!(made <= CALLS / 900, "{text}: {made} script calls, which are too many");
    }
}

/// The size of a script call is bounded by the number of charges, not by the number of calls.
#[tokio::test]
async fn the_size_of_a_script_call_is_bounded_by_its_charges() {
    let redis = Redis::start().await.unwrap();
    let store = RedisStore::new(&redis.socket_url()).unwrap();
    let policies: Vec<Policy> =
        (0..32).map(|n| format!("p{n}: fixed-window 1000000/10d").parse().unwrap()).collect();
    let charges: Vec<_> = policies.iter().map(|policy| Charge::new(policy, "hot")).collect();
    let calls = vec![Call::acquire(&charges); 320];
    for answer in store.decide_many(&calls).await {
        assert!(answer.unwrap().is_allowed());
    }
    let made = script_calls(&redis).await;
    assert!((10..=12).contains(&made), "{made} script calls");
}
