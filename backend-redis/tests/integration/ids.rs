//! Tests calls with an id, on real servers. A repeated call gets the first reply and is charged
//! once.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a helper of a test that fails panics, as the test does"
)]

use std::time::Duration;

use tidegate_redis::protocol::Keys;
use tidegate_redis::{
    Call, CallId, Charge, Clock, Decision, Error, ErrorKind, ManualClock, Operation, Policy,
    RedisStore, Store, Timestamp,
};
use tidegate_test_servers::{Data, End, Mode, Proxy, Redis, Reply, eventually};

use crate::common::{
    builder_with, client, fresh_prefix, impatient_store as store, patient_store, policy, server,
    used,
};

const START: u64 = 1_790_000_000_000_123;
const HOUR: Duration = Duration::from_secs(3600);
const SOON: Duration = Duration::from_secs(9);

/// Returns policies that together use all scripts for a single charge.
fn policies() -> Vec<Policy> {
    let texts = [
        "a: fixed-window 20/2h",
        "b: fixed-window 20/2h phased",
        "c: fixed-window 20/2h anchored",
        "d: sliding-log 20/2h",
        "e: sliding-log 200/2h",
        "f: sliding-counter 20/2h",
        "g: token-bucket 20/2h",
        "h: token-bucket 20/2h by-interval",
        "i: gcra 20/2h burst 3 shadow",
    ];
    texts.into_iter().map(policy).collect()
}

#[tokio::test]
async fn a_repeated_call_gets_the_first_answer_and_writes_nothing() {
    let (clock, prefix) = (ManualClock::new(Timestamp::from_micros(START)), fresh_prefix());
    let store = builder_with(&prefix).await.clock(clock.clone()).build().unwrap();
    let policies = policies();
    for (number, policy) in policies.iter().enumerate() {
        let one = vec![Charge::new(policy, "s").cost(2)];
        let two = vec![one[0], one[0].cost(1)];
        let other = &policies[(number + 1) % policies.len()];
        let several = vec![one[0], Charge::new(other, "s"), Charge::new(other, "t").check_only()];
        for (case, charges) in [&one, &two, &several].into_iter().enumerate() {
            let operations = [
                Operation::Acquire,
                Operation::AcquireUpTo { min: 1 },
                Operation::Reserve { max_wait: HOUR },
                Operation::Charge,
                Operation::Refund,
                Operation::Undo { at: clock.now() },
                Operation::Block { span: Duration::from_secs(1) },
                Operation::Reset,
            ];
            for operation in operations {
                let id = format!("{number} {case} {operation:?}");
                let call = Call::new(operation, charges).with_id(CallId::new(&id, HOUR));
                let first = store.decide(call).await;
                if first.as_ref().is_err_and(|error| error.kind().is_invalid_request()) {
                    // Two calls are invalid: a reservation on a window, and an acquire up to a cost
                    // that contains a state twice.
                    continue;
                }
                let first = first.unwrap();
                assert!(first.is_allowed() || !is_acquire(operation), "{id}: {first:?}");
                let others = [Charge::new(policy, "s").cost(3)];
                let _ = store.decide(Call::new(Operation::Charge, &others)).await.unwrap();
                clock.advance(Duration::from_secs(1));
                let before = server().await.dump(&prefix).await.unwrap();
                assert_eq!(store.decide(call).await.unwrap(), first, "{id}");
                for again in store.decide_many(&[call, call]).await {
                    assert_eq!(again.unwrap(), first, "{id}");
                }
                assert_eq!(server().await.dump(&prefix).await.unwrap(), before, "{id}");
                let reset = Call::new(Operation::Reset, &several);
                let _ = store.decide(reset).await.unwrap();
            }
        }
    }
}

fn is_acquire(operation: Operation) -> bool {
    use Operation::{Acquire, AcquireUpTo, Reserve};
    matches!(operation, Acquire | AcquireUpTo { .. } | Reserve { .. })
}

#[tokio::test]
async fn a_call_whose_answer_is_lost_is_repeated_and_charged_once() {
    let redis = Redis::start().await.unwrap();
    let direct = patient_store(&redis.url());
    let wide = policy("wide: fixed-window 1000000/1d anchored");
    let log = policy("log: sliding-log 1000/1d");
    let modes = [
        Mode::LoseAnswer(End::Close),
        Mode::LoseAnswer(End::Reset),
        Mode::HalveAnswer(End::Reset),
        Mode::SwallowAnswers,
    ];
    for (number, mode) in modes.into_iter().enumerate() {
        let proxy = Proxy::start(redis.port()).await.unwrap();
        let store = store(&proxy.url());
        let both = [Charge::new(&wide, "s"), Charge::new(&log, "s").cost(2)];
        for (case, charges) in [&both[..1], &both[1..], &both[..]].into_iter().enumerate() {
            let id = format!("{number} {case}");
            let call = Call::acquire(charges).with_id(CallId::new(&id, HOUR));
            let before = [used(&direct, &wide).await, used(&direct, &log).await];
            proxy.set(mode).await.unwrap();
            for _ in 0..3 {
                let error = store.decide(call).await.unwrap_err();
                assert!(
                    matches!(error.kind(), ErrorKind::Timeout | ErrorKind::Unavailable),
                    "{error}"
                );
            }
            proxy.set(Mode::Pass).await.unwrap();
            let again = async || store.decide(call).await.ok();
            let decision = eventually(SOON, "an answer", again).await.unwrap();
            assert!(decision.is_allowed());
            let costs = [[1, 0], [0, 2], [1, 2]][case];
            let after = [used(&direct, &wide).await, used(&direct, &log).await];
            assert_eq!(after, [before[0] + costs[0], before[1] + costs[1]], "{mode:?} {case}");
        }
    }
}

/// The server has the record of an id, so other processes and stores use the record too. The record
/// survives a restart and a failover.
#[tokio::test]
async fn an_id_is_known_after_a_reconnect_a_restart_and_a_failover_that_kept_the_data() {
    let (redis, replica) = (Redis::start().await.unwrap(), Redis::start().await.unwrap());
    let wide = policy("wide: fixed-window 1000000/1d anchored");
    let charges = [Charge::new(&wide, "s").cost(7)];
    let call = Call::acquire(&charges).with_id(CallId::new("once", HOUR));
    let store_here = store(&redis.url());
    let first = store_here.decide(call).await.unwrap();
    redis.command(&["CLIENT", "KILL", "TYPE", "normal"]).await.unwrap();
    let again = async |store: &RedisStore| {
        eventually(SOON, "an answer", async || store.decide(call).await.ok()).await.unwrap()
    };
    assert_eq!(again(&store_here).await, first);
    redis.restart(Data::Kept).await.unwrap();
    assert_eq!(again(&store_here).await, first);
    assert_eq!(again(&store(&redis.url())).await, first);

    replica.replica_of(&redis).await.unwrap();
    redis.kill().await.unwrap();
    replica.command(&["REPLICAOF", "NO", "ONE"]).await.unwrap();
    let store_there = store(&replica.url());
    assert_eq!(again(&store_there).await, first);
    assert_eq!(used(&store_there, &wide).await, 7);
}

#[tokio::test]
async fn another_call_under_a_used_id_is_an_error_and_charges_nothing() {
    let (clock, prefix) = (ManualClock::new(Timestamp::from_micros(START)), fresh_prefix());
    let store = builder_with(&prefix).await.clock(clock).build().unwrap();
    let (p, renumbered) = (policy("p: gcra 20/2h burst 9"), policy("p: gcra 20/2h burst 8"));
    let q = policy("q: fixed-window 9/1h");
    let charges = [Charge::new(&p, "s").cost(2), Charge::new(&q, "s")];
    let id = CallId::new("id", HOUR);
    let first = store.decide(Call::acquire(&charges).with_id(id)).await.unwrap();
    let before = server().await.dump(&prefix).await.unwrap();
    let others: [&[Charge<'_>]; 8] = [
        &[charges[0]],
        &[charges[1], charges[0]],
        &[charges[0].cost(3), charges[1]],
        &[charges[0], charges[1].check_only()],
        &[charges[0], Charge::new(&q, "t")],
        &[Charge::new(&renumbered, "s").cost(2), charges[1]],
        &[charges[0], charges[1], charges[1]],
        &[charges[0].cost(1), charges[0].cost(1), charges[1]],
    ];
    let other_calls = others.into_iter().map(Call::acquire).chain(
        [
            Operation::Charge,
            Operation::Refund,
            Operation::Undo { at: Timestamp::from_micros(START) },
            Operation::Reset,
        ]
        .map(|operation| Call::new(operation, &charges)),
    );
    for other in other_calls {
        let error = store.decide(other.with_id(id)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::IdReused, "{other:?}: {error}");
        assert!(error.is_definitely_not_charged());
    }
    assert_eq!(server().await.dump(&prefix).await.unwrap(), before);
    assert_eq!(store.decide(Call::acquire(&charges).with_id(id)).await.unwrap(), first);
}

/// Any bytes are a valid id. An id belongs to the tenant of the first charge or, without a tenant,
/// to its subject. The key of an id is never the key of a state.
#[tokio::test]
async fn an_id_is_scoped_by_the_slot_key_of_the_first_charge() {
    let (clock, prefix) = (ManualClock::new(Timestamp::from_micros(START)), fresh_prefix());
    let store = builder_with(&prefix).await.clock(clock).build().unwrap();
    let p = policy("p: fixed-window 1000/2h");
    let names = ["a", "b", "%id", "p", "a:b", "{a}", "p:window.2h:{a}", "%"];
    let mut expected = 0;
    for tenant in names {
        for id in names {
            let charges = [Charge::new(&p, id).tenant(tenant)];
            let call = Call::acquire(&charges).with_id(CallId::new(id, HOUR));
            for _ in 0..2 {
                let decision = store.decide(call).await.unwrap();
                assert!(decision.is_allowed());
            }
            expected += 1;
        }
    }
    let mut client = client().await;
    let ids = client.call(&["KEYS", &format!("{prefix}:%id:*")]).await.unwrap();
    let Reply::List(ids) = ids else { panic!("{ids:?}") };
    assert_eq!(ids.len(), expected);
    let key =
        |tenant: &str, id: &[u8]| Keys::new("t").id_key(&Charge::new(&p, "s").tenant(tenant), id);
    assert_eq!(key("", b"id"), b"t:%id:{s}:id");
    assert_eq!(key("acme", b"\xff:"), b"t:%id:{acme}:%FF%3A");
}

/// If a denied call is repeated, the store decides it again. A call that only a shadow denies is
/// allowed, so the store records its id.
#[tokio::test]
async fn a_denied_call_leaves_no_record_of_its_id() {
    let (clock, prefix) = (ManualClock::new(Timestamp::from_micros(START)), fresh_prefix());
    let store = builder_with(&prefix).await.clock(clock.clone()).build().unwrap();
    let mut client = client().await;
    let full = policy("full: fixed-window 1/1m anchored");
    for policy in policies() {
        for several in [false, true] {
            let subject = format!("{policy} {several}");
            let id = CallId::new("id", HOUR);
            let charge = Charge::new(&policy, &subject);
            let fill = [charge.cost(policy.limit())];
            let _ = store.decide(Call::acquire(&fill)).await.unwrap();
            let mut charges = vec![charge];
            if several {
                charges.push(Charge::new(&full, &subject));
            }
            let call = Call::acquire(&charges).with_id(id);
            let key = Keys::new(&prefix).id_key(&charge, b"id");
            let decision = store.decide(call).await.unwrap();
            assert_eq!(decision.is_allowed(), policy.is_shadow());
            let exists = client.call(&[&b"EXISTS"[..], &key]).await.unwrap();
            assert_eq!(exists, Reply::Integer(i64::from(policy.is_shadow())), "{subject}");
            if !policy.is_shadow() {
                let _ = store.decide(Call::new(Operation::Reset, &fill)).await.unwrap();
                assert!(store.decide(call).await.unwrap().is_allowed());
                let exists = client.call(&[&b"EXISTS"[..], &key]).await.unwrap();
                assert_eq!(exists, Reply::Integer(1), "{subject}");
            }
        }
    }
}

#[tokio::test]
async fn an_id_is_forgotten_after_its_time_to_live_and_a_repeat_does_not_prolong_it() {
    let (clock, prefix) = (ManualClock::new(Timestamp::from_micros(START)), fresh_prefix());
    let store = builder_with(&prefix).await.clock(clock.clone()).build().unwrap();
    for policy in policies() {
        clock.set(Timestamp::from_micros(START));
        let charges = [Charge::new(&policy, "s")];
        let call = Call::acquire(&charges)
            .with_id(CallId::new(policy.name(), Duration::from_nanos(999_999_999)));
        let first = store.decide(call).await.unwrap();
        for (after, is_known) in
            [(-500_i64, true), (0, true), (999_999, true), (1_000_000, false), (1_999_999, false)]
        {
            clock.set(Timestamp::from_micros(START.saturating_add_signed(after)));
            let again = store.decide(call).await.unwrap();
            assert_eq!(again == first, is_known, "{policy} {after}");
        }
        assert_eq!(used(&store, &policy).await, 2, "the fifth call repeats the fourth");
    }
}

/// By the server's clock, the key of an id lives for the time to live of the id, rounded up to
/// milliseconds.
#[tokio::test]
async fn the_key_of_an_id_expires_by_itself() {
    let prefix = fresh_prefix();
    let store = builder_with(&prefix).await.build().unwrap();
    let mut client = client().await;
    for (number, policy) in policies().iter().enumerate() {
        let both = [Charge::new(policy, "s"), Charge::new(policy, "t")];
        for charges in [&both[..1], &both[..]] {
            let id = format!("{number} {}", charges.len());
            let key = Keys::new(&prefix).id_key(&charges[0], id.as_bytes());
            let ttl = Duration::from_millis(90_000);
            let call = Call::acquire(charges).with_id(CallId::new(&id, ttl));
            let first = store.decide(call).await.unwrap();
            let life = client.call(&[&b"PTTL"[..], &key]).await.unwrap().text();
            assert!((80_000..=90_001).contains(&life.parse::<u32>().unwrap()), "{id}: {life}");
            // After the key has expired, the repeated call is a new call.
            client.call(&[&b"PEXPIRE"[..], &key, b"1"]).await.unwrap();
            let is_gone = async || {
                let exists = server().await.command(&[&b"EXISTS"[..], &key]).await.unwrap();
                (exists == Reply::Integer(0)).then_some(())
            };
            eventually(SOON, "the key to expire", is_gone).await.unwrap();
            assert_ne!(store.decide(call).await.unwrap(), first);
        }
    }
}

#[tokio::test]
async fn a_foreign_value_under_the_key_of_an_id_is_an_error_and_stays_unchanged() {
    let prefix = fresh_prefix();
    let store = builder_with(&prefix).await.build().unwrap();
    let mut client = client().await;
    let (p, q) = (policy("p: gcra 20/2h burst 9"), policy("q: sliding-log 9/1h"));
    let charges = [Charge::new(&p, "s"), Charge::new(&q, "s")];
    let key = Keys::new(&prefix).id_key(&charges[0], b"id");
    // The last of these values has the kind of a record of an id. It ends after the head of the
    // record.
    let head = [&[0x98][..], &[0xff; 35]].concat();
    let values: [&[&[u8]]; 6] = [
        &[b"SET", &key, b""],
        &[b"SET", &key, b"42"],
        &[b"RPUSH", &key, b"a"],
        &[b"HSET", &key, b"a", b"b"],
        &[b"SADD", &key, b"a"],
        &[b"SET", &key, &head],
    ];
    for value in values {
        client.call(&[&b"DEL"[..], &key]).await.unwrap();
        client.call(value).await.unwrap();
        let before = server().await.dump(&prefix).await.unwrap();
        for charges in [&charges[..1], &charges[..]] {
            let call = Call::acquire(charges).with_id(CallId::new("id", HOUR));
            let error = store.decide(call).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ForeignValue, "{error}");
        }
        assert_eq!(server().await.dump(&prefix).await.unwrap(), before);
    }
}

/// A call with an id on a foreign state fails with the same error as a call without an id, and
/// leaves no record of the id.
#[tokio::test]
async fn a_failed_call_leaves_no_record_of_its_id() {
    let prefix = fresh_prefix();
    let store = builder_with(&prefix).await.build().unwrap();
    let mut client = client().await;
    for policy in policies() {
        let charge = Charge::new(&policy, "s");
        let key = Keys::new(&prefix).key(&charge);
        client.call(&[&b"SET"[..], &key, b"foreign"]).await.unwrap();
        for charges in [&[charge][..], &[Charge::new(&policy, "t"), charge]] {
            let call = Call::acquire(charges).with_id(CallId::new(policy.name(), HOUR));
            let error = store.decide(call).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ForeignValue);
        }
    }
    let ids = client.call(&["KEYS", &format!("{prefix}:%id:*")]).await.unwrap();
    assert_eq!(ids, Reply::List(vec![]));
}

#[tokio::test]
async fn a_server_without_memory_charges_nothing_and_records_no_id() {
    let redis = Redis::start().await.unwrap();
    let store = patient_store(&redis.url());
    let (wide, log) = (policy("w: fixed-window 9/1d"), policy("l: sliding-log 500/1h"));
    let charges = [Charge::new(&wide, "s"), Charge::new(&log, "s")];
    // These calls load the scripts, and create a state for the first policy.
    for charges in [&charges[..1], &charges] {
        let id = format!("{}", charges.len());
        let call = Call::acquire(charges).with_id(CallId::new(&id, HOUR));
        assert!(store.decide(call).await.unwrap().is_allowed());
    }
    redis.command(&["CONFIG", "SET", "maxmemory", "1"]).await.unwrap();
    let id = CallId::new("id", HOUR);
    for charges in [&charges[..1], &charges] {
        let error = store.decide(Call::acquire(charges).with_id(id)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    }
    // A call with a known id gets an answer even without memory, because the script writes nothing.
    let known = Call::acquire(&charges).with_id(CallId::new("2", HOUR));
    assert!(store.decide(known).await.unwrap().is_allowed());
    assert_eq!(used(&store, &wide).await, 2);
    redis.command(&["CONFIG", "SET", "maxmemory", "0"]).await.unwrap();
    assert!(store.decide(Call::acquire(&charges).with_id(id)).await.unwrap().is_allowed());
    assert_eq!(used(&store, &wide).await, 3);
}

#[tokio::test]
async fn a_flushed_script_causes_no_error_and_no_second_charge() {
    let redis = Redis::start().await.unwrap();
    let store = patient_store(&redis.url());
    for policy in policies() {
        let charges = [Charge::new(&policy, "s")];
        let call = Call::acquire(&charges).with_id(CallId::new(policy.name(), HOUR));
        let first = store.decide(call).await.unwrap();
        redis.command(&["SCRIPT", "FLUSH"]).await.unwrap();
        assert_eq!(store.decide(call).await.unwrap(), first);
        assert_eq!(used(&store, &policy).await, 1);
    }
}

/// Calls with and without ids in one batch are decided in their order.
#[tokio::test]
async fn a_batch_with_ids_is_decided_in_order() {
    let prefix = fresh_prefix();
    let store = builder_with(&prefix).await.build().unwrap();
    let p = policy("p: fixed-window 9/1d");
    let charges = [Charge::new(&p, "s")];
    let [a, b] = ["a", "b"].map(|id| Call::acquire(&charges).with_id(CallId::new(id, HOUR)));
    let plain = Call::acquire(&charges);
    let calls = [plain, a, plain, plain, a, b, plain, b];
    let remaining = |answer: Result<Decision, Error>| answer.unwrap().verdicts()[0].remaining();
    let answers = store.decide_many(&calls).await.into_iter().map(remaining);
    assert_eq!(answers.collect::<Vec<_>>(), [8, 7, 6, 5, 7, 4, 3, 4]);
}
