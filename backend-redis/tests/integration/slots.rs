//! Tests the keys of slots on real servers: their lives, their removal, the commands of a call, and
//! foreign values.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a helper of a test that fails panics, as the test does"
)]

use std::time::Duration;

use tidegate_redis::protocol::Keys;
use tidegate_redis::{
    Call, CallId, Charge, Decision, Error, ErrorKind, ManualClock, Operation, Policy, RedisStore,
    Store, Timestamp,
};
use tidegate_test_servers::{Client, Redis, Reply};
use tidegate_testkit::ModelStore;

use crate::common::{builder_with, calls_in, client, fresh_prefix, policy, server};

const START: u64 = 1_790_000_000_000_123;
const HOUR: Duration = Duration::from_secs(3600);

/// A store, the key of the only subject, and a client that reads and writes the key.
struct Slots {
    prefix: String,
    store: RedisStore,
    model: ModelStore,
    clock: ManualClock,
    policy: Policy,
    key: Vec<u8>,
    client: Client,
}

impl Slots {
    async fn new(text: &str) -> Self {
        let (prefix, policy) = (fresh_prefix(), policy(text));
        let clock = ManualClock::new(Timestamp::from_micros(START));
        let store = builder_with(&prefix).await.clock(clock.clone()).build().unwrap();
        let key = Keys::new(&prefix).key(&Charge::new(&policy, "s"));
        let model = ModelStore::keeping_all(clock.clone());
        Self { prefix, store, model, clock, policy, key, client: client().await }
    }

    async fn decide_on(
        store: &impl Store,
        policy: &Policy,
        operation: Operation,
        id: &str,
    ) -> Result<Decision, Error> {
        let is_new = !matches!(operation, Operation::Settle | Operation::Extend);
        let charge = [Charge::new(policy, "s").cost(u64::from(is_new))];
        store.decide(Call::new(operation, &charge).with_id(CallId::new(id, HOUR))).await
    }

    /// Decides a call on the server and in the core, and compares the answers.
    async fn decide(&self, operation: Operation, id: &str) -> Result<(), ErrorKind> {
        let expected = Self::decide_on(&self.model, &self.policy, operation, id).await;
        let answer = Self::decide_on(&self.store, &self.policy, operation, id).await;
        match (expected, answer) {
            (Ok(expected), Ok(answer)) => assert_eq!(answer, expected, "{operation:?} {id}"),
            (Err(expected), Err(answer)) => {
                assert_eq!(answer.kind(), expected.kind(), "{operation:?} {id}: {answer}");
                return Err(answer.kind());
            }
            (expected, answer) => panic!("{operation:?} {id}: {answer:?}, not {expected:?}"),
        }
        Ok(())
    }

    async fn command(&mut self, arguments: &[&[u8]]) -> Reply {
        self.client.call(arguments).await.unwrap()
    }

    /// Returns the remaining life of the key in minutes.
    async fn life(&mut self) -> i64 {
        let key = self.key.clone();
        let life: i64 = self.command(&[b"PTTL", &key]).await.text().parse().unwrap();
        if life < 0 { life } else { life / 60_000 }
    }

    async fn is_gone(&mut self) -> bool {
        let key = self.key.clone();
        self.command(&[b"EXISTS", &key]).await == Reply::Integer(0)
    }
}

/// The record of a hold lives for twice the lease, and its state lives at least as long.
#[tokio::test]
async fn the_key_of_slots_lives_as_long_as_the_last_hold() {
    let mut slots = Slots::new("p: concurrent 9 lease 1h").await;
    slots.decide(Operation::Hold, "a").await.unwrap();
    assert!((119..=150).contains(&slots.life().await), "{}", slots.life().await);
    let key = slots.key.clone();
    slots.clock.advance(HOUR / 4);
    slots.command(&[b"PEXPIRE", &key, b"9030000"]).await;
    slots.decide(Operation::Hold, "b").await.unwrap();
    assert_eq!(slots.life().await, 150, "the key lives long enough for this hold");
    // With this extension, the hold lives longer than the key.
    slots.clock.advance(HOUR / 2);
    slots.command(&[b"PEXPIRE", &key, b"60000"]).await;
    slots.decide(Operation::Extend, "a").await.unwrap();
    assert!((119..=150).contains(&slots.life().await), "{}", slots.life().await);
}

#[tokio::test]
async fn the_key_of_slots_is_removed_with_the_last_hold() {
    let mut slots = Slots::new("p: concurrent 3 lease 1h").await;
    for round in 0..3 {
        let id = |holder| format!("{round} {holder}");
        for holder in 0..3 {
            slots.clock.advance(Duration::from_micros(1));
            slots.decide(Operation::Hold, &id(holder)).await.unwrap();
        }
        slots.clock.advance(Duration::from_micros(1));
        slots.decide(Operation::Extend, &id(1)).await.unwrap();
        for holder in [1, 0, 2] {
            assert!(!slots.is_gone().await);
            slots.decide(Operation::Settle, &id(holder)).await.unwrap();
        }
        assert!(slots.is_gone().await);
    }
}

/// The fence of the second hold is higher than the fence of the first, although the clock has not
/// advanced.
#[tokio::test]
async fn the_last_fence_is_kept_until_the_clock_has_passed_it() {
    let mut slots = Slots::new("p: concurrent 3 lease 1h").await;
    for id in ["a", "b"] {
        slots.decide(Operation::Hold, id).await.unwrap();
        slots.decide(Operation::Settle, id).await.unwrap();
        assert!(!slots.is_gone().await);
    }
}

/// A lapsed holder can take its slot again after the last other holder has freed its slot.
#[tokio::test]
async fn a_lapsed_hold_outlives_the_last_open_hold() {
    let slots = Slots::new("p: concurrent 3 lease 1h").await;
    slots.decide(Operation::Hold, "late").await.unwrap();
    slots.clock.advance(HOUR);
    slots.decide(Operation::Hold, "b").await.unwrap();
    slots.clock.advance(Duration::from_micros(1));
    slots.decide(Operation::Settle, "b").await.unwrap();
    slots.decide(Operation::Extend, "late").await.unwrap();
    slots.decide(Operation::Settle, "late").await.unwrap();
}

/// If no call waits and no hold lapses, a call reads only the record and the state. An extension
/// also reads its own hold. The general scripts would decide the same, and read more.
#[tokio::test]
async fn a_usual_call_on_slots_reads_only_what_it_needs() {
    const HOLDERS: u64 = 40;
    let redis = Redis::start().await.unwrap();
    let builder = RedisStore::builder().url(redis.socket_url());
    let patience = Duration::from_secs(30);
    let store = builder.connect_timeout(patience).response_timeout(patience).build().unwrap();
    let policy = policy("p: concurrent 99 lease 1h");
    for (operation, reads) in [
        (Operation::Hold, [("get", HOLDERS), ("zrevrange", HOLDERS), ("zscore", 0)]),
        (Operation::Extend, [("get", HOLDERS), ("zrevrange", HOLDERS), ("zscore", HOLDERS)]),
        (Operation::Settle, [("get", HOLDERS), ("zrevrange", HOLDERS), ("zscore", 0)]),
    ] {
        redis.command(&["CONFIG", "RESETSTAT"]).await.unwrap();
        for holder in 0..HOLDERS {
            let id = format!("{holder}");
            assert!(Slots::decide_on(&store, &policy, operation, &id).await.unwrap().is_allowed());
        }
        let stats = redis.command(&["INFO", "commandstats"]).await.unwrap().text();
        let calls = |name: &str| calls_in(&stats, name);
        assert_eq!(reads.map(|(name, _)| (name, calls(name))), reads, "{operation:?}");
        assert_eq!(calls("zrangebyscore"), 0, "{operation:?}");
    }
}

/// A value that no call can have written stays unchanged, and every call returns an error.
#[tokio::test]
async fn a_foreign_value_of_slots_is_an_error_and_stays_unchanged() {
    let mut slots = Slots::new("p: concurrent 9 lease 1h").await;
    slots.decide(Operation::Hold, "a").await.unwrap();
    let key = slots.key.clone();
    let last = slots.command(&[b"ZREVRANGE", &key, b"0", b"0"]).await;
    let Reply::List(members) = last else { panic!("{last:?}") };
    let [Reply::Bytes(state)] = &members[..] else { panic!("{members:?}") };
    let (count, foot) = (1, 8);
    let changed = |at: usize, bytes: &[u8]| {
        let mut changed = state.clone();
        changed[at..at + bytes.len()].copy_from_slice(bytes);
        changed
    };
    let foreign = [
        state[..state.len() - 1].to_vec(),
        changed(0, &[0x9b]),
        changed(count, &[0; 7]),
        changed(count, &[0xff; 7]),
        changed(foot, &[0]),
        changed(foot + 1, &[0; 7]),
        changed(state.len() - 1, &[0x9b]),
    ];
    for foreign in foreign {
        slots.command(&[b"ZREM", &key, state]).await;
        slots.command(&[b"ZADD", &key, b"+inf", &foreign]).await;
        let before = server().await.dump(&slots.prefix).await.unwrap();
        for (operation, id) in
            [(Operation::Hold, "b"), (Operation::Extend, "a"), (Operation::Settle, "a")]
        {
            let answer = Slots::decide_on(&slots.store, &slots.policy, operation, id).await;
            let kind = answer.unwrap_err().kind();
            assert_eq!(kind, ErrorKind::ForeignValue, "{operation:?} {foreign:?}");
        }
        assert_eq!(server().await.dump(&slots.prefix).await.unwrap(), before, "{foreign:?}");
        slots.command(&[b"ZREM", &key, &foreign]).await;
        slots.command(&[b"ZADD", &key, b"+inf", state]).await;
    }
    slots.decide(Operation::Settle, "a").await.unwrap();
}
