//! Tests of the keys in Redis: their times to live by the server's clock, and foreign values that
//! Tidegate did not write.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a helper of a test that fails panics, as the test does"
)]

use std::time::Duration;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use tidegate_redis::{
    Call, Charge, ErrorKind, ManualClock, Operation, RedisStore, Store, Timestamp,
};
use tidegate_test_servers::{Redis, Reply};
use tidegate_testkit::generate::{ClockKind, Kind, Trace, policy as any_policy, scenario};

use crate::common::{key, policy, store_at};

/// Without defects B11, B15 and B16, each key has a bounded time to live after every operation.
#[test]
fn b11_every_key_has_a_bounded_life_after_every_operation() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let redis = Redis::start().await.unwrap();
        let store = RedisStore::new(&redis.socket_url()).unwrap();
        let mut client = redis.client().await.unwrap();
        let mut runner = TestRunner::default();
        let any = |name| Kind::any().prop_flat_map(move |kind| any_policy(kind, name));
        let policies = (any("p"), any("q")).prop_map(|(p, q)| vec![p, q]);
        let scenarios = scenario(policies, ClockKind::Forwards, 40, 3);
        // The bound is three times 2^51 µs (71 years). A window or block, the wait of a
        // reservation, and a grain or window before this wait take at most 2^51 µs each.
        let bound = 3 * (1_i64 << 51) / 1_000;
        for _ in 0..100 {
            let scenario = scenarios.new_tree(&mut runner).unwrap().current();
            let mut trace = Trace::new(&scenario, ClockKind::Forwards);
            for step in &scenario.steps {
                trace.pass(step);
                let (operation, charges) = trace.ask(step);
                if let Ok(decision) = store.decide(Call::new(operation, &charges)).await {
                    trace.answered(&decision);
                }
                let lives = "local lives = {} for i, key in ipairs(redis.call('KEYS', '*')) do \
                             lives[i] = redis.call('PTTL', key) end return lives";
                for life in client.call(&["EVAL", lives, "0"]).await.unwrap().list() {
                    let life: i64 = life.text().parse().unwrap();
                    assert!(life >= 0 && life <= bound, "{operation:?} {charges:?}: {life}");
                }
            }
            client.call(&["FLUSHALL"]).await.unwrap();
        }
    });
}

/// By the server's clock, a key exists exactly as long as its state matters.
#[tokio::test]
async fn a_key_lives_until_its_state_has_recovered_and_no_longer() {
    let redis = Redis::start().await.unwrap();
    let store = RedisStore::new(&redis.url()).unwrap();
    for (text, max) in [
        ("w: fixed-window 5/1h", 3_600_000),
        ("a: fixed-window 5/1h anchored", 3_600_000),
        ("l: sliding-log 5/1h", 3_600_000),
        ("ll: sliding-log 500/1h", 3_600_000),
        ("lg: sliding-log 5/1h grain 1m", 3_660_000),
        ("c: sliding-counter 5/1h", 7_200_000),
        ("b: token-bucket 5/1h", 720_000),
        ("i: token-bucket 5/1h by-interval", 3_600_000),
        ("x: sliding-log 1/10s block 2h", 7_200_000),
    ] {
        let policy = policy(text);
        let charge = [Charge::new(&policy, "s")];
        let mut reset = Duration::ZERO;
        for _ in 0..if policy.block_duration().is_some() { 2 } else { 1 } {
            let decision = store.decide(Call::acquire(&charge)).await.unwrap();
            reset = decision.verdicts()[0].reset_after();
        }
        let key = key(&policy);
        let life =
            redis.command(&[b"PTTL", &key[..]]).await.unwrap().text().parse::<u64>().unwrap();
        assert!(life <= max + 1, "{text}: {life}");
        let reset = u64::try_from(reset.as_millis()).unwrap();
        assert!(life + 500 >= reset && life <= reset + 2, "{text}: {life} and {reset}");
    }
    // The rest of the test waits in real time, to find the defects B12 and B13: a time to live of
    // 0, or one that is too short.
    let short = policy("short: sliding-log 1/60ms");
    let charge = [Charge::new(&short, "s")];
    assert!(store.decide(Call::acquire(&charge)).await.unwrap().is_allowed());
    let denied = store.decide(Call::acquire(&charge)).await.unwrap();
    assert!(denied.is_denied());
    tokio::time::sleep(denied.retry_after().unwrap() + Duration::from_millis(2)).await;
    assert!(store.decide(Call::acquire(&charge)).await.unwrap().is_allowed());
    assert!(store.now().await.unwrap() > Timestamp::from_micros(1_700_000_000_000_000));
}

/// Without defect B18, a call on a foreign value of any type fails with a clear error, and the
/// value stays unchanged.
#[tokio::test]
async fn b18_a_foreign_value_is_an_error_and_stays_unchanged() {
    let redis = Redis::start().await.unwrap();
    let store = RedisStore::new(&redis.socket_url()).unwrap();
    let foreign: [&[&[u8]]; 13] = [
        &[b"SET", b"KEY", b"hello"],
        &[b"SET", b"KEY", b""],
        &[b"SET", b"KEY", b"5"],
        &[b"SET", b"KEY", b"\x96too short"],
        &[b"SET", b"KEY", b"\xb6\0\0"],
        &[b"SET", b"KEY", b"\x94 a log with half a record"],
        // This value begins and ends like a log, but no log has this size, regardless of its number
        // of records.
        &[b"SET", b"KEY", b"\x94 seventeen byte\x94"],
        &[b"RPUSH", b"KEY", b"a", b"b"],
        &[b"HSET", b"KEY", b"a", b"b"],
        &[b"SADD", b"KEY", b"a"],
        &[b"ZADD", b"KEY", b"1", b"a"],
        &[b"XADD", b"KEY", b"*", b"a", b"b"],
        &[b"SETBIT", b"KEY", b"100", b"1"],
    ];
    for text in [
        "p: fixed-window 5/1h",
        "p: sliding-log 5/1h block 1h",
        "p: sliding-log 5000/1h",
        "p: sliding-counter 5/1h",
        "p: gcra 5/1h",
        "p: token-bucket 5/1h by-interval",
    ] {
        let (policy, good) = (policy(text), policy("good: fixed-window 1000/1h"));
        for command in foreign {
            redis.command(&["FLUSHALL"]).await.unwrap();
            let mut command = command.to_vec();
            let key = key(&policy);
            command[1] = &key;
            redis.command(&command).await.unwrap();
            let dump = redis.command(&[b"DUMP", &key[..]]).await.unwrap();
            let one = [Charge::new(&policy, "s")];
            let two = [Charge::new(&good, "s"), one[0]];
            for charges in [&one[..], &two] {
                for operation in [
                    Operation::Acquire,
                    Operation::Peek,
                    Operation::Refund,
                    Operation::Undo { at: Timestamp::EPOCH },
                    Operation::Reset,
                    Operation::Block { span: Duration::from_secs(9) },
                ] {
                    let error = store.decide(Call::new(operation, charges)).await.unwrap_err();
                    assert_eq!(error.kind(), ErrorKind::ForeignValue, "{text} {command:?}");
                }
            }
            // The first call of the batch uses only a key without a foreign value, so the store
            // decides it.
            let batch = [Call::acquire(&two[..1]), Call::acquire(&one), Call::acquire(&two)];
            let answers = store.decide_many(&batch).await;
            assert!(answers[0].as_ref().unwrap().is_allowed());
            for answer in &answers[1..] {
                assert_eq!(answer.as_ref().unwrap_err().kind(), ErrorKind::ForeignValue);
            }
            assert_eq!(redis.command(&[b"DUMP", &key[..]]).await.unwrap(), dump);
            assert_eq!(redis.command(&["DBSIZE"]).await.unwrap().text(), "2");
        }
    }
}

/// A log to which another program has added an element is a foreign value.
#[tokio::test]
async fn a_list_with_an_element_of_another_program_is_foreign() {
    let redis = Redis::start().await.unwrap();
    let store = RedisStore::new(&redis.socket_url()).unwrap();
    let log = policy("l: sliding-log 1000/1h");
    let charge = [Charge::new(&log, "s")];
    for _ in 0..600 {
        assert!(store.decide(Call::acquire(&charge)).await.unwrap().is_allowed());
    }
    redis.command(&[b"LPUSH", &key(&log)[..], b"what is this"]).await.unwrap();
    let undo = Operation::Undo { at: store.now().await.unwrap() };
    for operation in [Operation::Acquire, undo, Operation::Refund] {
        let error = store.decide(Call::new(operation, &charge)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ForeignValue);
    }
}

/// Without defect B20, the whole state is stored under one key. So the loss of a key leads to an
/// empty state, and never to an inconsistent state.
#[tokio::test]
async fn b20_a_lost_key_gives_one_fresh_limit() {
    let clock = ManualClock::new(Timestamp::from_micros(1_790_000_000_000_000));
    let store = store_at(&clock).await;
    let redis = crate::common::server().await;
    for text in ["p: sliding-log 300/1h block 1h", "p: sliding-counter 5/1h", "p: gcra 5/1h"] {
        let policy = policy(text);
        let full = [Charge::new(&policy, "lost").cost(policy.limit())];
        assert!(store.decide(Call::acquire(&full)).await.unwrap().is_allowed());
        assert!(store.decide(Call::acquire(&full)).await.unwrap().is_denied());
        let keys = redis.command(&["KEYS", "*:p:*{lost}"]).await.unwrap();
        assert_eq!(keys.list().len(), 1, "{text}");
        redis.command(&["DEL", &keys.list()[0].text()]).await.unwrap();
        assert!(store.decide(Call::acquire(&full)).await.unwrap().is_allowed());
        assert!(store.decide(Call::acquire(&full)).await.unwrap().is_denied());
        let _ = store.decide(Call::new(Operation::Reset, &full)).await.unwrap();
    }
}

/// A Tidegate value becomes a foreign value in these cases: its kind is changed, a byte is added or
/// removed, or a string that begins like a log does not end like one.
#[tokio::test]
async fn b18_a_slightly_changed_value_is_an_error_and_stays_unchanged() {
    let redis = Redis::start().await.unwrap();
    let store = RedisStore::new(&redis.socket_url()).unwrap();
    let good = policy("good: fixed-window 1000/1h");
    let changes: [fn(&mut Vec<u8>); 5] = [
        |value| value[0] ^= 1,
        |value| value.push(value[0]),
        |value| value.insert(8, 0),
        |value| value.truncate(value.len() - 1),
        |log| *log.last_mut().unwrap() ^= 1,
    ];
    for (text, changes) in [
        ("p: fixed-window 50/1h", &changes[..4]),
        ("p: sliding-counter 50/1h", &changes[..4]),
        ("p: token-bucket 50/1h", &changes[..4]),
        ("p: token-bucket 50/1h by-interval", &changes[..4]),
        ("p: sliding-log 50/1h", &changes[2..]),
    ] {
        let policy = policy(text);
        let charges = [Charge::new(&policy, "s")];
        let two = [Charge::new(&good, "s"), charges[0]];
        for _ in 0..5 {
            assert!(store.decide(Call::acquire(&charges)).await.unwrap().is_allowed());
        }
        let key = key(&policy);
        let Reply::Bytes(value) = redis.command(&[&b"GET"[..], &key]).await.unwrap() else {
            panic!("the value must be a string");
        };
        for (index, change) in changes.iter().enumerate() {
            let mut forged = value.clone();
            change(&mut forged);
            redis.command(&[&b"SET"[..], &key, &forged]).await.unwrap();
            for operation in [
                Operation::Refund,
                Operation::Undo { at: store.now().await.unwrap() },
                Operation::Reset,
                Operation::Block { span: Duration::from_secs(9) },
            ] {
                let error = store.decide(Call::new(operation, &charges)).await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::ForeignValue, "{text} {index}");
            }
            for operation in [Operation::Acquire, Operation::Peek] {
                let error = store.decide(Call::new(operation, &two)).await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::ForeignValue, "{text} {index}");
            }
            assert_eq!(redis.command(&[&b"GET"[..], &key]).await.unwrap(), Reply::Bytes(forged));
        }
    }
}

/// The first byte of a value is its kind. Other versions of this crate and other programs rely on
/// this layout.
#[tokio::test]
async fn the_first_byte_of_a_value_is_its_kind_and_whether_it_blocks() {
    const NOW: u64 = 1_790_000_000_000_000;
    let clock = ManualClock::new(Timestamp::from_micros(NOW));
    let mut client = crate::common::client().await;
    for (text, kind, is_list) in [
        ("p: fixed-window 5/1h", 0x91, false),
        ("p: fixed-window 5/1h phased", 0x92, false),
        ("p: fixed-window 5/1h anchored", 0x93, false),
        ("p: sliding-log 5/1h", 0x94, false),
        ("p: sliding-log 500/1h", 0x94, true),
        ("p: sliding-counter 5/1h", 0x95, false),
        ("p: gcra 5/1h", 0x96, false),
        ("p: token-bucket 5/1h by-interval", 0x97, false),
    ] {
        let (policy, prefix) = (policy(text), crate::common::fresh_prefix());
        let store =
            crate::common::builder_with(&prefix).await.clock(clock.clone()).build().unwrap();
        let charges = [Charge::new(&policy, "s")];
        let key = crate::common::key_with_prefix(&prefix, &policy);
        let until = (NOW + 60_000_000).to_le_bytes();
        let block = Operation::Block { span: Duration::from_secs(60) };
        for (operation, is_there, flag) in [
            (Operation::Acquire, true, 0),
            (block, true, 0x20),
            (Operation::Reset, false, 0),
            (block, false, 0x20),
        ] {
            let _ = store.decide(Call::new(operation, &charges)).await.unwrap();
            let get: &[&str] =
                if is_list && is_there { &["LINDEX", &key, "-1"] } else { &["GET", &key] };
            let reply = client.call(get).await.unwrap();
            let value = match &reply {
                Reply::Bytes(value) => &value[..],
                _ => &[],
            };
            match (is_there, flag) {
                (false, 0) => assert!(value.is_empty(), "{text}: {reply:?}"),
                (true, 0) => assert_eq!(value[0], kind, "{text}"),
                (true, _) => assert_eq!(value[0], kind + flag, "{text}"),
                // This value contains a block and no state.
                (false, _) => assert_eq!(value[0], 0xb0, "{text}"),
            }
            assert!(flag == 0 || value.ends_with(&until[..7]), "{text}: {value:?}");
        }
    }
}

/// A block must not shorten the time to live of the key to which it is written.
#[tokio::test]
async fn a_block_does_not_shorten_the_life_of_a_key() {
    let redis = Redis::start().await.unwrap();
    let store = RedisStore::new(&redis.socket_url()).unwrap();
    for text in ["w: fixed-window 5/9d anchored", "s: sliding-log 5/9d", "l: sliding-log 500/9d"] {
        let policy = policy(text);
        let (charges, key) = ([Charge::new(&policy, "s")], key(&policy));
        assert!(store.decide(Call::acquire(&charges)).await.unwrap().is_allowed());
        for seconds in [60, 0] {
            let span = Duration::from_secs(seconds);
            let decision = store.decide(Call::new(Operation::Block { span }, &charges)).await;
            assert_eq!(decision.unwrap().is_allowed(), seconds == 0);
            let life = redis.command(&[&b"PTTL"[..], &key]).await.unwrap().text();
            let whole = 9 * 86_400_000;
            assert!(
                (whole - 60_000..whole + 100).contains(&life.parse().unwrap()),
                "{text}: {life}"
            );
        }
    }
}

/// The scripts read the server's clock, so their decisions must agree with the time that the server
/// reports.
#[tokio::test]
async fn the_scripts_decide_by_the_servers_clock() {
    const HOUR: u64 = 3_600_000_000;
    let redis = Redis::start().await.unwrap();
    let store = RedisStore::new(&redis.socket_url()).unwrap();
    let policy = policy("p: fixed-window 5/1h");
    let charges = [Charge::new(&policy, "s")];
    let mut seen = 0;
    while seen < 2 {
        let begun = store.now().await.unwrap().as_micros();
        let one = store.decide(Call::acquire(&charges)).await.unwrap();
        let many = store.decide(Call::new(Operation::Refund, &charges)).await.unwrap();
        let peek = store.decide(Call::new(Operation::Peek, &charges)).await.unwrap();
        let ended = store.now().await.unwrap().as_micros();
        if begun / HOUR != ended / HOUR {
            continue;
        }
        seen += 1;
        let resets = HOUR - ended % HOUR..=HOUR - begun % HOUR;
        let reset = u64::try_from(one.verdicts()[0].reset_after().as_micros()).unwrap();
        assert!(resets.contains(&reset), "{reset} is not within {resets:?}");
        // A state that was refunded in full has recovered immediately, so `reset_after` is 0.
        assert_eq!(many.verdicts()[0].reset_after(), Duration::ZERO);
        assert_eq!(peek.verdicts()[0].remaining(), 5);
    }
    // A block of 60 s must last exactly 60 s after the time at which the script made the block.
    let span = Duration::from_secs(60);
    let begun = redis.command(&["TIME"]).await.unwrap();
    let blocked = store.decide(Call::new(Operation::Block { span }, &charges)).await.unwrap();
    assert_eq!(blocked.verdicts()[0].reset_after(), span, "{begun:?}");
}

/// If another client runs PERSIST on a key, the key has no expiry. A call that sets or lifts a
/// block must then set an expiry again.
#[tokio::test]
async fn a_key_that_was_persisted_is_blocked_and_unblocked() {
    let redis = Redis::start().await.unwrap();
    let store = RedisStore::new(&redis.socket_url()).unwrap();
    for text in ["p: gcra 5/1h", "p: sliding-log 5/1h", "p: sliding-log 500/1h"] {
        let policy = policy(text);
        let charges = [Charge::new(&policy, "s")];
        let key = key(&policy);
        let minute = Operation::Block { span: Duration::from_secs(60) };
        let lifted = Operation::Block { span: Duration::ZERO };
        assert!(store.decide(Call::acquire(&charges)).await.unwrap().is_allowed());
        for (operation, passes) in [(minute, false), (lifted, true)] {
            redis.command(&[&b"PERSIST"[..], &key]).await.unwrap();
            let decision = store.decide(Call::new(operation, &charges)).await.unwrap();
            assert_eq!(decision.is_allowed(), passes, "{text}");
            let life = redis.command(&[&b"PTTL"[..], &key]).await.unwrap().text();
            assert_ne!(life, "-1", "{text}");
        }
        redis.command(&["FLUSHALL"]).await.unwrap();
    }
}
