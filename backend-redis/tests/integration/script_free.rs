//! Tests the mode without scripts, on a server that does not support scripts.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a helper of a test that fails panics, as the test does"
)]

use std::time::Duration;

use proptest::prelude::*;
use tidegate_redis::{
    Call, Charge, ErrorKind, Limiter, ManualClock, Operation, RedisStore, Store, Timestamp,
};
use tidegate_test_servers::{Mode, Proxy, Redis, eventually};
use tidegate_testkit::ModelStore;
use tokio::task::JoinSet;

use crate::common::{builder, policy, server};

const START: u64 = 1_790_000_000_000_123;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn fixed_windows_decide_as_in_the_core(
        steps in prop::collection::vec((0..9_u64, 0..7_u64, 0..7_u64, 0..5_u8), 1..40),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let clock = ManualClock::new(Timestamp::from_micros(START));
            let store = builder().await.clock(clock.clone()).script_free().build().unwrap();
            let model = ModelStore::keeping_all(clock.clone());
            let policies = [
                policy("a: fixed-window 5/10us"),
                policy("b: fixed-window 4/7us phased"),
                policy("c: fixed-window 3/10us shadow"),
            ];
            for (pause, one, two, choice) in steps {
                clock.advance(Duration::from_micros(pause));
                let charges = [
                    Charge::new(&policies[0], "s").cost(one),
                    Charge::new(&policies[1], "s").cost(two),
                    Charge::new(&policies[2], "s"),
                    Charge::new(&policies[0], "s"),
                ];
                let operation = match choice {
                    0 => Operation::Peek,
                    1 if pause == 8 => Operation::Reset,
                    _ => Operation::Acquire,
                };
                let call = Call::new(operation, &charges);
                let expected = model.decide(call).await.unwrap();
                assert_eq!(store.decide(call).await.unwrap(), expected, "{call:?}");
            }
        });
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn never_more_than_the_limit_is_admitted() {
    let redis = Redis::builder().config("rename-command", "EVAL \"\"").start().await.unwrap();
    let window = policy("p: fixed-window 100/1d");
    let mut tasks = vec![];
    for _ in 0..8 {
        let store = RedisStore::builder().url(redis.url()).script_free().build().unwrap();
        for _ in 0..16 {
            let (store, window) = (store.clone(), window.clone());
            tasks.push(tokio::spawn(async move {
                let mut admitted = 0;
                for _ in 0..10 {
                    let charge = [Charge::new(&window, "s").cost(3)];
                    let decision = store.decide(Call::acquire(&charge)).await.unwrap();
                    admitted += 3 * u64::from(decision.is_allowed());
                }
                admitted
            }));
        }
    }
    let mut admitted = 0;
    for task in tasks {
        admitted += task.await.unwrap();
    }
    assert!(admitted <= 100, "{admitted}");
    // Refused calls have charged nothing, so the remaining amount is still available.
    let store = RedisStore::builder().url(redis.url()).script_free().build().unwrap();
    let charge = [Charge::new(&window, "s").cost(100 - admitted)];
    assert!(store.decide(Call::acquire(&charge)).await.unwrap().is_allowed());
    let keys = redis.command(&["KEYS", "*"]).await.unwrap();
    let life = redis.command(&["PTTL", &keys.list()[0].text()]).await.unwrap().text();
    assert!((1..=86_410_000).contains(&life.parse::<i64>().unwrap()), "{life}");
    // The server does not support scripts, so a store with scripts fails.
    let scripts = RedisStore::new(&redis.url()).unwrap();
    let error = scripts.decide(Call::acquire(&charge)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnsupportedServer, "{error}");
}

/// The server names the cause in the errors of the commands of an aborted transaction.
#[tokio::test]
async fn the_error_of_a_refused_transaction_names_its_cause() {
    let redis = Redis::builder().user("l", "s", "~tidegate:* +@all -incrby").start().await.unwrap();
    let store = |url: String| RedisStore::builder().url(url).script_free().build().unwrap();
    let window = policy("p: fixed-window 100/1d");
    let charge = [Charge::new(&window, "s")];
    let kind = async |store: &RedisStore| {
        store.decide(Call::acquire(&charge)).await.map_err(|error| error.kind())
    };
    assert_eq!(kind(&store(redis.url_for("l", "s"))).await, Err(ErrorKind::Misconfigured));
    let own = store(redis.url());
    redis.command(&["CONFIG", "SET", "maxmemory", "1"]).await.unwrap();
    assert_eq!(kind(&own).await, Err(ErrorKind::OutOfMemory));
    redis.command(&["CONFIG", "SET", "maxmemory", "0"]).await.unwrap();

    // A connection to a server that became a replica is replaced, because another server possibly
    // has its address now.
    let primary = Redis::start().await.unwrap();
    redis.replica_of(&primary).await.unwrap();
    let connections = async || {
        let connections = redis.info("total_connections_received").await.unwrap();
        connections.parse::<u64>().unwrap()
    };
    tokio::time::sleep(Duration::from_millis(250)).await;
    let before = connections().await;
    for _ in 0..2 {
        assert_eq!(kind(&own).await, Err(ErrorKind::ReadOnly));
    }
    // One connection of this test, and the new one of the store.
    assert_eq!(connections().await, before + 2);
}

#[tokio::test]
async fn other_policies_and_operations_are_unsupported() {
    let store = RedisStore::builder().script_free().build().unwrap();
    for text in [
        "p: fixed-window 5/1s anchored",
        "p: fixed-window 5/1s block 1m",
        "p: sliding-log 5/1s",
        "p: sliding-counter 5/1s",
        "p: gcra 5/1s",
    ] {
        let error = Limiter::new(store.clone(), [policy(text)]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{text}");
    }
    let window = policy("p: fixed-window 5/1s phased");
    let limiter = Limiter::new(store, [window]).unwrap();
    for error in [
        limiter.subject("s").refund().await.unwrap_err(),
        limiter.subject("s").block(Duration::from_secs(1)).await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Unsupported);
    }
}

#[tokio::test]
async fn b18_a_value_that_is_not_a_count_stays_unchanged() {
    let clock = ManualClock::new(Timestamp::from_micros(START));
    let prefix = crate::common::fresh_prefix();
    let redis = server().await;
    let builder = RedisStore::builder().url(redis.socket_url()).prefix(&prefix).script_free();
    let store = builder.clock(clock).build().unwrap();
    let window = policy("p: fixed-window 5/1s");
    let key = format!("{prefix}:p:window.1s:{{s}}%w1000000:1790000001000000");
    let charge = [Charge::new(&window, "s")];
    for command in [["SET", &key, "hello"], ["SADD", &key, "a"]] {
        redis.command(&["DEL", &key]).await.unwrap();
        redis.command(&command).await.unwrap();
        let dump = redis.command(&["DUMP", &key]).await.unwrap();
        for operation in [Operation::Acquire, Operation::Peek, Operation::Reset] {
            let error = store.decide(Call::new(operation, &charge)).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ForeignValue, "{error}");
        }
        assert_eq!(redis.command(&["DUMP", &key]).await.unwrap(), dump);
    }
}

/// A refused call first adds its cost to the count and then subtracts it again, even if the caller
/// is cancelled in between. Guards against a defect: 64 callers that dropped their calls after some
/// milliseconds left a count of 172 under a limit of 100 until the end of the window.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_refused_call_leaves_nothing_charged() {
    const LIMIT: u64 = 100;
    let redis = Redis::start().await.unwrap();
    let proxy = Proxy::start(redis.port()).await.unwrap();
    // The delay lets the test cancel callers between the addition and the subtraction.
    let late = Duration::from_millis(1);
    proxy.set(Mode::Delay { requests: late, answers: late }).await.unwrap();
    let store = |url: String| RedisStore::builder().url(url).script_free().build().unwrap();
    let (store, direct) = (store(proxy.url()), store(redis.url()));
    let policy = policy("p: fixed-window 100/10d");
    for round in 0..20_u64 {
        let mut callers = JoinSet::new();
        for caller in 0..64_u64 {
            let (store, policy) = (store.clone(), policy.clone());
            callers.spawn(async move {
                let subject = round.to_le_bytes();
                let cost = if caller % 2 == 0 { 3 } else { 40 };
                let charges = [Charge::new(&policy, &subject).cost(cost)];
                let patience = Duration::from_millis(2 + caller % 9);
                let call = store.decide(Call::acquire(&charges));
                let decision = tokio::time::timeout(patience, call).await.ok()?;
                decision.unwrap().is_allowed().then_some(cost)
            });
        }
        let mut admitted = 0;
        while let Some(caller) = callers.join_next().await {
            admitted += caller.unwrap().unwrap_or(0);
        }
        let is_within = async || {
            let key = redis.command(&["KEYS", "*"]).await.ok()?;
            let mut max = 0;
            for key in key.list() {
                let count = redis.command(&["GET", &key.text()]).await.ok()?.text();
                max = max.max(count.parse::<u64>().ok()?);
            }
            (max <= LIMIT).then_some(())
        };
        eventually(Duration::from_secs(5), "all refused costs to be removed", is_within)
            .await
            .unwrap();
        let subject = round.to_le_bytes();
        let charges = [Charge::new(&policy, &subject)];
        let peek = direct.decide(Call::new(Operation::Peek, &charges)).await.unwrap();
        assert!(
            LIMIT - peek.verdicts()[0].remaining() >= admitted,
            "every admitted cost is charged"
        );
    }
}
