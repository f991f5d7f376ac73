//! Tests the time to live of keys. After every operation, a key must exist until its state has
//! recovered.
//!
//! If a test sets the time, the scripts give each key at least an hour of real time, so that real
//! time does not expire a key before virtual time does. Therefore the windows in these tests are
//! longer than an hour. When virtual time passes, the test shortens the remaining life of each key
//! by the same time. It deletes each key when the key expires in virtual time.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a helper of a test that fails panics, as the test does"
)]

use std::collections::HashMap;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use tidegate_redis::protocol::Keys;
use tidegate_redis::{
    Algorithm, Block, Call, Charge, Decision, ManualClock, Operation, Policy, RedisStore, Store,
    Timestamp,
};
use tidegate_test_servers::{Client, Redis, Reply};
use tidegate_testkit::ModelStore;

use crate::common::{builder_with, calls_in, client, fresh_prefix, policy};

const START: u64 = 1_790_000_000_000_123;

/// The minimum life of a key in microseconds, if a test sets the time.
const HOUR: u64 = 3_600_000_000;

/// The tolerance for the real time that passes during a test, in milliseconds.
const SPARE: u64 = 60_000;

/// An operation that is repeated several times, and the virtual time that passes before each
/// repetition.
#[derive(Debug, Clone)]
struct Step {
    passes: Passes,
    operation: Action,
    cost: Cost,
    times: usize,
    /// Whether each call charges all policies. If not, each call charges only `policy`.
    all: bool,
    policy: prop::sample::Index,
    /// The number of calls in a batch. Batches of two or more calls are decided by the script for
    /// batches.
    batch_size: usize,
}

#[derive(Debug, Clone, Copy)]
enum Passes {
    Micros(u64),
    /// This many 64ths of ten days pass.
    Part(u64),
    /// The largest `reset_after` of the last decision passes, plus this many microseconds.
    Reset(i64),
    /// The `retry_after` of the last decision passes.
    Retry,
}

#[derive(Debug, Clone, Copy)]
enum Action {
    Acquire,
    AcquireUpTo,
    Charge,
    Peek,
    Refund,
    Undo,
    Block,
    BlockAtLeast,
    Unblock,
    Reset,
}

#[derive(Debug, Clone, Copy)]
enum Cost {
    Just(u64),
    Limit(i64),
}

fn step() -> impl Strategy<Value = Step> {
    let passes = prop_oneof![
        3 => (0..2_000_u64).prop_map(Passes::Micros),
        6 => (0..12_u64).prop_map(Passes::Part),
        1 => (0..80_u64).prop_map(Passes::Part),
        2 => (-1..=1_i64).prop_map(Passes::Reset),
        1 => Just(Passes::Retry),
    ];
    let operation = prop_oneof![
        14 => Just(Action::Acquire),
        2 => Just(Action::AcquireUpTo),
        3 => Just(Action::Charge),
        1 => Just(Action::Peek),
        4 => Just(Action::Refund),
        3 => Just(Action::Undo),
        1 => Just(Action::Block),
        1 => Just(Action::BlockAtLeast),
        1 => Just(Action::Unblock),
        1 => Just(Action::Reset),
    ];
    let cost = prop_oneof![
        8 => (1..4_u64).prop_map(Cost::Just),
        2 => (4..90_u64).prop_map(Cost::Just),
        1 => (-3..=1_i64).prop_map(Cost::Limit),
    ];
    let times = prop_oneof![1..4_usize, 4..20_usize];
    let batch_size = prop_oneof![3 => Just(1_usize), 1 => 2..4_usize];
    (passes, operation, cost, times, any::<(bool, prop::sample::Index)>(), batch_size).prop_map(
        |(passes, operation, cost, times, (all, policy), batch_size)| Step {
            passes,
            operation,
            cost,
            times,
            all,
            policy,
            batch_size,
        },
    )
}

fn policies() -> impl Strategy<Value = Vec<Policy>> {
    prop::sample::select(vec![
        vec!["p: fixed-window 500/10d"],
        vec!["p: fixed-window 500/10d anchored", "q: fixed-window 30/9d phased"],
        vec!["p: sliding-log 100/10d"],
        vec!["p: sliding-log 500/10d"],
        vec!["p: sliding-log 100/10d grain 8h"],
        vec!["p: sliding-log 1000/10d grain 1h"],
        vec!["p: sliding-counter 500/10d"],
        vec!["p: token-bucket 7/10d burst 300"],
        vec!["p: gcra 77/10d burst 300"],
        vec!["p: token-bucket 50/10d by-interval burst 300"],
        // These logs change from strings to lists while they are in use.
        vec!["p: sliding-log 100/10d", "p: sliding-log 500/10d"],
        // The rates of these policies differ. A state recovers by the rate of the policy that wrote
        // it.
        vec!["p: token-bucket 7/10d burst 300", "p: token-bucket 100/10d burst 200"],
        vec![
            "p: token-bucket 50/10d by-interval burst 300",
            "p: token-bucket 90/10d by-interval burst 200",
        ],
        // A call charges all of these policies. If one policy denies, no policy is charged.
        vec!["p: sliding-log 500/10d", "q: sliding-counter 20/5d", "r: gcra 3/2d burst 9"],
        // A block of nine days ends long after a state of two hours, and a block of two hours ends
        // before a state of ten days.
        vec!["p: sliding-log 200/2h block 9d", "q: sliding-log 20/2h block 9d"],
        vec!["p: gcra 3/2h block 9d", "q: fixed-window 3/2h anchored block 9d"],
        vec!["p: sliding-log 200/10d block 2h", "q: sliding-counter 9/10d block 2h"],
        vec!["p: token-bucket 3/2h by-interval block 9d", "q: sliding-log 9/10d block 2h"],
        // The offenses are forgotten long after a state of two hours, and before a state of ten
        // days.
        vec![
            "p: gcra 3/2h block 1h x2 up to 1d forget 30d",
            "q: sliding-log 9/2h block 1h x9 up to 9d forget 20d",
        ],
        vec![
            "p: sliding-log 200/10d block 1m x2 up to 1h forget 1h",
            "q: sliding-counter 9/10d block 1m x2 up to 1h forget 1h restart",
        ],
        vec!["p: gcra 3/2h block 1h x2 up to 1d forget 30d", "p: gcra 9/2h"],
    ])
    .prop_map(|texts| texts.into_iter().map(policy).collect())
}

/// Guards against a defect: the script set the expiry of a log only with the first record. So the
/// key expired too early, and the log admitted too much. The tests at that time checked only an
/// upper bound on the life of a key.
#[test]
fn a_key_lives_until_its_state_has_recovered_after_every_operation() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let config = Config { source_file: Some(file!()), ..Config::with_cases(200) };
    let inputs = (policies(), prop::collection::vec(step(), 1..25));
    let result = TestRunner::new(config).run(&inputs, |(policies, steps)| {
        runtime.block_on(run_steps(&policies, &steps)).map_err(TestCaseError::fail)
    });
    if let Err(error) = result {
        panic!("{error}");
    }
}

async fn run_steps(policies: &[Policy], steps: &[Step]) -> Result<(), String> {
    let mut scene = Scene::new().await;
    let is_bucket = |policy: &Policy| matches!(policy.algorithm(), Algorithm::TokenBucket(_));
    scene.has_several_rates = policies.len() == 2 && policies.iter().all(is_bucket);
    for (index, step) in steps.iter().enumerate() {
        let mut charges = vec![Charge::new(step.policy.get(policies), "s")];
        let names = policies.iter().map(Policy::name);
        // Policies with the same name are not charged in one call, because they have the same key.
        if step.all && names.collect::<std::collections::HashSet<_>>().len() == policies.len() {
            charges = policies.iter().map(|policy| Charge::new(policy, "s")).collect();
        }
        for charge in &mut charges {
            *charge = charge.cost(match step.cost {
                Cost::Just(cost) => cost,
                Cost::Limit(offset) => charge.policy.limit().saturating_add_signed(offset),
            });
            if matches!(step.operation, Action::AcquireUpTo) {
                *charge = charge.cost(charge.cost.max(1));
            }
        }
        let is_repeated = matches!(step.operation, Action::Acquire | Action::Charge);
        let times = if is_repeated { step.times } else { 1 };
        for time in 0..times {
            scene.pass(step.passes).await;
            let operation = match step.operation {
                Action::Acquire => Operation::Acquire,
                Action::AcquireUpTo => Operation::AcquireUpTo { min: 1 },
                Action::Charge => Operation::Charge,
                Action::Peek => Operation::Peek,
                Action::Refund => Operation::Refund,
                Action::Undo => Operation::Undo { at: scene.last_acquire },
                Action::Block => Operation::Block { span: Duration::from_secs(9 * 86_400) },
                Action::BlockAtLeast => {
                    Operation::BlockAtLeast { span: Duration::from_secs(5 * 86_400) }
                }
                Action::Unblock => Operation::Block { span: Duration::ZERO },
                Action::Reset => Operation::Reset,
            };
            let calls = vec![Call::new(operation, &charges); step.batch_size];
            scene.decide(&calls).await.map_err(|e| format!("step {index}, call {time}: {e}"))?;
        }
    }
    Ok(())
}

/// A store, the model with which the test compares it, and the virtual expiry times of its keys.
struct Scene {
    now: u64,
    clock: ManualClock,
    store: RedisStore,
    model: ModelStore,
    keys: Keys,
    client: Client,
    /// The expiry of each key in milliseconds, first by the server's clock, then by the virtual
    /// clock.
    expiries: HashMap<Vec<u8>, (Reply, u64)>,
    /// The real time at which the test last adjusted the remaining lives of all keys to the virtual
    /// clock.
    adjusted_at: Instant,
    last_acquire: Timestamp,
    last: Option<Decision>,
    /// Whether a policy with a slower rate can have given a key a longer life. The key keeps this
    /// life when a policy with a faster rate writes to it.
    has_several_rates: bool,
}

impl Scene {
    async fn new() -> Self {
        let clock = ManualClock::new(Timestamp::from_micros(START));
        let prefix = fresh_prefix();
        let builder = builder_with(&prefix).await;
        Self {
            now: START,
            clock: clock.clone(),
            store: builder.clock(clock.clone()).build().unwrap(),
            model: ModelStore::keeping_all(clock),
            keys: Keys::new(&prefix),
            client: client().await,
            expiries: HashMap::new(),
            adjusted_at: Instant::now(),
            last_acquire: Timestamp::from_micros(START),
            last: None,
            has_several_rates: false,
        }
    }

    async fn pass(&mut self, passes: Passes) {
        const TEN_DAYS: u64 = 10 * 86_400_000_000;
        let last = self.last.as_ref();
        let then = match passes {
            Passes::Micros(time) => self.now + time,
            Passes::Part(parts) => self.now + TEN_DAYS / 64 * parts,
            Passes::Reset(offset) => {
                let resets = last.map_or(&[][..], Decision::verdicts).iter();
                let reset = resets.map(|verdict| verdict.reset_after()).max();
                self.now.saturating_add_signed(offset) + micros(reset.unwrap_or_default())
            }
            Passes::Retry => {
                self.now + micros(last.and_then(Decision::retry_after).unwrap_or_default())
            }
        };
        self.now = self.now.max(then);
        self.clock.set(Timestamp::from_micros(self.now));
        let now = self.now / 1_000;
        self.adjusted_at = Instant::now();
        let mut remaining = HashMap::new();
        for (key, (_, virtual_expiry)) in self.expiries.drain() {
            if virtual_expiry <= now {
                self.client.call(&[&b"DEL"[..], &key]).await.unwrap();
            } else {
                let life = (virtual_expiry - now + SPARE).to_string();
                self.client.call(&[&b"PEXPIRE"[..], &key, life.as_bytes()]).await.unwrap();
                let real_expiry = self.client.call(&[&b"PEXPIRETIME"[..], &key]).await.unwrap();
                remaining.insert(key, (real_expiry, virtual_expiry));
            }
        }
        self.expiries = remaining;
    }

    /// Makes calls, compares the answers with the model, and checks the lives of the keys.
    async fn decide(&mut self, calls: &[Call<'_>]) -> Result<(), String> {
        if matches!(calls[0].operation, Operation::Acquire) {
            self.last_acquire = Timestamp::from_micros(self.now);
        }
        let expected = self.model.decide_many(calls).await;
        let answers = match calls {
            [call] => vec![self.store.decide(*call).await],
            calls => self.store.decide_many(calls).await,
        };
        for (expected, answer) in expected.iter().zip(&answers) {
            if expected.as_ref().ok() != answer.as_ref().ok() {
                let call = calls[0];
                return Err(format!("{call:?}\n expected {expected:?}\n answered {answer:?}"));
            }
        }
        let decision = answers.into_iter().last().unwrap().unwrap();
        for (charge, verdict) in calls[0].charges.iter().zip(decision.verdicts()) {
            let key = self.keys.key(&charge);
            let before = self.expiries.get(&key).map(|(_, virtual_expiry)| *virtual_expiry);
            let expires = self.expires(&key).await;
            let reset = u64::try_from(verdict.reset_after().as_micros()).unwrap();
            let (recovers, until) =
                (self.now + reset, expires.map_or(0, |expires| expires * 1_000));
            // If calls charge a key repeatedly, its remaining life can be 1.5 times as long as
            // necessary.
            let is_charging = matches!(
                calls[0].operation,
                Operation::Acquire | Operation::AcquireUpTo { .. } | Operation::Charge
            );
            let needed = if is_charging { reset + reset / 2 } else { reset };
            // The offenses are forgotten at most this time after the end of the block.
            let forget = charge.policy.block().and_then(Block::forget_after).unwrap_or_default();
            let forget = if verdict.block_level() > 0 { micros(forget) } else { 0 };
            let latest = self.now + needed.max(HOUR).max(reset + forget) + 2 * SPARE * 1_000;
            let is_short = reset > 0 && until < recovers;
            // A block, a peek and a refusal leave the state unchanged.
            let keeps_the_state = matches!(
                calls[0].operation,
                Operation::Block { .. } | Operation::BlockAtLeast { .. } | Operation::Peek
            );
            let writes = !keeps_the_state && decision.is_allowed();
            // A key can keep a longer life from an earlier block. So a life is too long only if
            // this call has made it longer, by more than `SPARE`, the tolerance of the measurement.
            let is_longer = expires > before.map(|before| before + SPARE);
            let is_long = writes && is_longer && until > latest;
            if is_short || is_long && !self.has_several_rates {
                let call = calls[0];
                return Err(format!(
                    "{call:?}\n recovers at {recovers} µs, is kept until {until} µs"
                ));
            }
        }
        self.last = Some(decision);
        Ok(())
    }

    /// Returns the expiry of a key by the virtual clock, in milliseconds, or `None` if the key does
    /// not exist.
    async fn expires(&mut self, key: &[u8]) -> Option<u64> {
        let real_expiry = self.client.call(&[&b"PEXPIRETIME"[..], key]).await.unwrap();
        assert_ne!(real_expiry, Reply::Integer(-1), "a key without an expiry");
        if real_expiry == Reply::Integer(-2) {
            self.expiries.remove(key);
            return None;
        }
        if let Some((known, virtual_expiry)) = self.expiries.get(key)
            && *known == real_expiry
        {
            return Some(*virtual_expiry);
        }
        let life = self.client.call(&[&b"PTTL"[..], key]).await.unwrap().text();
        // Since `adjusted_at`, real time has shortened the life of the key, but no virtual time has
        // passed. So the real time is added again.
        let since = u64::try_from(self.adjusted_at.elapsed().as_millis()).unwrap() + 1;
        let virtual_expiry = self.now / 1_000 + life.parse::<u64>().unwrap() + since;
        self.expiries.insert(key.to_vec(), (real_expiry, virtual_expiry));
        Some(virtual_expiry)
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap()
}

/// The life of a key must be exact to the millisecond: the time for which its state matters,
/// rounded up to the server's milliseconds.
#[tokio::test]
async fn the_life_of_a_key_is_exact_to_the_millisecond() {
    for (text, cost) in [
        ("p: fixed-window 9/7200000001us", 2),
        ("p: fixed-window 9/2h anchored", 2),
        ("p: sliding-log 9/7200000501us", 2),
        ("p: sliding-log 900/2h grain 3us", 2),
        ("p: sliding-log 9/2h grain 4m", 2),
        ("p: sliding-counter 9/7200000999us", 2),
        // The token bucket has ticks of 10 ms, and the GCRA policy has ticks of one microsecond.
        ("p: token-bucket 7001/30s burst 400000000000", 1_000_005),
        ("p: gcra 7000/1h burst 90000", 20_000),
        ("p: token-bucket 50/7200000777us by-interval burst 900", 101),
    ] {
        let policy = policy(text);
        for offset in [0, 1, 2, 499, 500, 998, 999] {
            for batch_size in [1, 2] {
                // Time passes between the script and the query of the key's life. The test repeats
                // the attempt until less than a millisecond passes.
                let mut seen = vec![];
                while !seen.iter().any(|(life, exact)| life == exact) && seen.len() < 300 {
                    seen.push(
                        life_after_acquire(&policy, cost, START - 123 + offset, batch_size).await,
                    );
                }
                assert!(seen.iter().all(|(life, exact)| life <= exact), "{text}: {seen:?}");
                assert!(seen.iter().any(|(life, exact)| life == exact), "{text}: {seen:?}");
            }
        }
    }
}

/// Returns the life of a new key after an acquire, and the time for which its state matters, both
/// in the server's milliseconds.
async fn life_after_acquire(policy: &Policy, cost: u64, now: u64, batch_size: usize) -> (u64, u64) {
    let prefix = fresh_prefix();
    let store = builder_with(&prefix)
        .await
        .clock(ManualClock::new(Timestamp::from_micros(now)))
        .build()
        .unwrap();
    let mut client = client().await;
    let charge = [Charge::new(policy, "s").cost(cost)];
    let other = [Charge::new(policy, "other")];
    // The batch has two calls, and the first call is a peek for another subject.
    let answer = match batch_size {
        1 => store.decide(Call::acquire(&charge)).await,
        _ => store
            .decide_many(&[Call::new(Operation::Peek, &other), Call::acquire(&charge)])
            .await
            .remove(1),
    };
    let key = Keys::new(&prefix).key(&charge[0]);
    let life = client.call(&[&b"PTTL"[..], &key]).await.unwrap().text().parse().unwrap();
    let decision = answer.unwrap();
    assert!(decision.is_allowed());
    let reset = u64::try_from(decision.verdicts()[0].reset_after().as_micros()).unwrap();
    (life, (now + reset).div_ceil(1_000) - now / 1_000)
}

/// If a policy with finer ticks wrote the time of a bucket, a policy with coarser ticks counts from
/// the end of the tick that contains this time.
#[tokio::test]
async fn the_life_of_a_key_is_exact_after_a_change_to_coarser_ticks() {
    let fine = policy("p: token-bucket 50000000/30s burst 1000000000000");
    // The policy `coarse` has ticks of one second.
    let coarse = policy("p: token-bucket 1400003/30s burst 100000000000000");
    for offset in [1, 300_000, 500_000, 999_999] {
        let now = 1_790_000_000_000_000 + offset;
        let exact = async || {
            let (clock, prefix) = (ManualClock::new(Timestamp::from_micros(now)), fresh_prefix());
            let store = builder_with(&prefix).await.clock(clock.clone()).build().unwrap();
            let model = ModelStore::keeping_all(clock);
            let take = [Charge::new(&fine, "s").cost(1_000_000_000)];
            let refund = [Charge::new(&coarse, "s").cost(1)];
            let mut reset = 0;
            for call in [Call::acquire(&take), Call::new(Operation::Refund, &refund)] {
                let decision = store.decide(call).await.unwrap();
                assert_eq!(decision, model.decide(call).await.unwrap());
                reset = decision.verdicts()[0].reset_after().as_micros();
            }
            let key = Keys::new(&prefix).key(&refund[0]);
            let life = client().await.call(&[&b"PTTL"[..], &key]).await.unwrap().text();
            let ends = now + u64::try_from(reset).unwrap();
            (life.parse().unwrap(), ends.div_ceil(1_000) - now / 1_000)
        };
        let mut seen: Vec<(u64, u64)> = vec![];
        while !seen.iter().any(|(life, exact)| life == exact) && seen.len() < 300 {
            seen.push(exact().await);
        }
        assert!(seen.iter().all(|(life, exact)| life <= exact), "{offset}: {seen:?}");
        assert!(seen.iter().any(|(life, exact)| life == exact), "{offset}: {seen:?}");
    }
}

/// A state that matters only in the first microsecond of 1970 also has an expiry.
#[tokio::test]
async fn a_key_of_the_first_microsecond_expires() {
    let mut client = client().await;
    for text in [
        "p: fixed-window 5/1us",
        "p: sliding-log 5/1us",
        "p: sliding-log 500/1us",
        "p: sliding-counter 5/1us",
        "p: token-bucket 5/1us",
        "p: token-bucket 5/1us by-interval",
    ] {
        // The test makes the call alone, in a batch of one call, and in a batch of two calls.
        for in_batch in [None, Some(1), Some(2)] {
            let (policy, prefix) = (policy(text), fresh_prefix());
            let builder = builder_with(&prefix).await;
            let store = builder.clock(ManualClock::default()).build().unwrap();
            let charges = [Charge::new(&policy, "s")];
            let call = Call::acquire(&charges);
            match in_batch {
                None => assert!(store.decide(call).await.is_ok()),
                Some(len) => {
                    let answers = store.decide_many(&vec![call; len]).await;
                    assert!(answers.iter().all(Result::is_ok));
                }
            }
            let key = Keys::new(&prefix).key(&charges[0]);
            let life = client.call(&[&b"PTTL"[..], &key]).await.unwrap().text();
            assert!(life.parse::<i64>().unwrap() > 0, "{text}, in a batch: {in_batch:?}: {life}");
        }
    }
}

/// Setting an expiry costs as much as a read and a write, so only a few of many acquires are
/// allowed to set one.
#[tokio::test]
async fn most_acquires_are_one_read_and_one_write() {
    const ACQUIRES: u64 = 80;
    let redis = Redis::start().await.unwrap();
    for (text, batch_size, max_expiries) in [
        ("p: fixed-window 500/10h", 1, 0),
        ("p: fixed-window 500/10h", 2, 0),
        ("p: fixed-window 500/10h anchored", 1, 0),
        ("p: fixed-window 500/10h phased", 1, 0),
        ("p: sliding-log 100/10h", 1, 1),
        ("p: sliding-log 500/10h", 1, 1),
        ("p: sliding-counter 500/10h", 1, 0),
        ("p: sliding-counter 500/10h", 2, 0),
        ("p: token-bucket 500/10h", 1, 10),
        ("p: token-bucket 500/10h", 2, 10),
        ("p: token-bucket 500/10h by-interval", 1, 0),
        ("p: token-bucket 500/10h by-interval", 2, 0),
    ] {
        let clock = ManualClock::new(Timestamp::from_micros(START));
        let patience = Duration::from_secs(30);
        let builder = RedisStore::builder().url(redis.socket_url()).clock(clock.clone());
        let builder = builder.connect_timeout(patience).response_timeout(patience);
        let store = builder.prefix(fresh_prefix()).build().unwrap();
        let policy = policy(text);
        let charges = [Charge::new(&policy, "s")];
        let calls = vec![Call::acquire(&charges); usize::try_from(batch_size).unwrap()];
        assert!(store.decide_many(&calls).await.iter().all(Result::is_ok));
        redis.command(&["CONFIG", "RESETSTAT"]).await.unwrap();
        for _ in 0..ACQUIRES / batch_size {
            clock.advance(Duration::from_secs(10));
            let answers = match calls[..] {
                [call] => vec![store.decide(call).await],
                _ => store.decide_many(&calls).await,
            };
            assert!(answers.iter().all(|answer| answer.as_ref().unwrap().is_allowed()));
        }
        let stats = redis.command(&["INFO", "commandstats"]).await.unwrap().text();
        let count = |name: &str| calls_in(&stats, name);
        let total = |names: &[&str]| names.iter().map(|name| count(name)).sum::<u64>();
        let reads = total(&["get", "mget", "lindex", "getrange", "exists"]);
        let writes = total(&["set", "psetex", "setrange", "lset", "rpush", "ltrim", "unlink"]);
        let expiries = total(&["psetex", "pexpire"]);
        assert_eq!(reads, ACQUIRES / batch_size, "{text}");
        // If a log is a list, one of its elements becomes full after every 14 acquires. This causes
        // one more write.
        assert!(writes <= ACQUIRES + ACQUIRES / 14, "{text}: {writes}");
        assert!(expiries <= max_expiries, "{text}: {expiries}");
    }
}

/// A state that is refunded in full is removed: its key is deleted, or contains only a block.
#[tokio::test]
async fn a_full_refund_leaves_no_state() {
    let clock = ManualClock::new(Timestamp::from_micros(START));
    let mut client = client().await;
    for text in [
        "p: fixed-window 9/2h",
        "p: fixed-window 9/2h anchored",
        "p: sliding-log 9/2h",
        "p: sliding-log 900/2h",
        "p: sliding-counter 9/2h",
        "p: token-bucket 9/2h",
        "p: token-bucket 9/2h by-interval",
    ] {
        let policy = policy(text);
        let charge = [Charge::new(&policy, "s").cost(3)];
        let blocked = Operation::Block { span: Duration::from_secs(60) };
        let undo = Operation::Undo { at: Timestamp::from_micros(START) };
        let more = [charge[0].cost(4)];
        for (refund, charges) in [
            (Operation::Refund, &charge),
            (Operation::Refund, &more),
            (undo, &charge),
            (undo, &more),
        ] {
            for (is_blocked, batch_size) in [(false, 1), (false, 3), (true, 1), (true, 3)] {
                let prefix = fresh_prefix();
                let store = builder_with(&prefix).await.clock(clock.clone()).build().unwrap();
                let block = Call::new(if is_blocked { blocked } else { Operation::Peek }, &charge);
                let calls = [Call::acquire(&charge), block, Call::new(refund, charges)];
                for calls in calls.chunks(batch_size) {
                    assert!(store.decide_many(calls).await.iter().all(Result::is_ok));
                }
                let key = Keys::new(&prefix).key(&charge[0]);
                let size = client.call(&[&b"STRLEN"[..], &key]).await.unwrap().text();
                // A value with only a block has a byte for the kind and the 7 bytes of the block's
                // end.
                let expected = if is_blocked { "8" } else { "0" };
                assert_eq!(size, expected, "{text}: {refund:?} {is_blocked} {batch_size}");
            }
        }
    }
}

/// If a subject has a block and no state, a call that lifts the block removes the key.
#[tokio::test]
async fn a_block_that_is_lifted_leaves_no_key() {
    let clock = ManualClock::new(Timestamp::from_micros(START));
    let mut client = client().await;
    for text in ["p: fixed-window 9/2h", "p: sliding-log 900/2h", "p: gcra 9/2h"] {
        let (policy, prefix) = (policy(text), fresh_prefix());
        let store = builder_with(&prefix).await.clock(clock.clone()).build().unwrap();
        let charge = [Charge::new(&policy, "s")];
        let key = Keys::new(&prefix).key(&charge[0]);
        let [blocks, lifts] =
            [60, 0].map(|seconds| Operation::Block { span: Duration::from_secs(seconds) });
        for (operations, exists) in [
            (&[lifts][..], 0),
            (&[blocks], 1),
            (&[lifts], 0),
            (&[blocks, lifts], 0),
            (&[blocks, lifts, blocks], 1),
        ] {
            let calls: Vec<_> =
                operations.iter().map(|operation| Call::new(*operation, &charge)).collect();
            assert!(store.decide_many(&calls).await.iter().all(Result::is_ok));
            let reply = client.call(&[&b"EXISTS"[..], &key]).await.unwrap();
            assert_eq!(reply, Reply::Integer(exists), "{text}: {operations:?}");
        }
    }
}

/// In a sliding counter, the count of the current window matters for two windows, and the count of
/// the previous window matters for one.
#[tokio::test]
async fn a_counter_lives_no_longer_than_its_newest_window_matters() {
    const TWO_HOURS: u64 = 2 * HOUR;
    let start = START - START % TWO_HOURS;
    let policy = policy("p: sliding-counter 9/2h");
    let charge = [Charge::new(&policy, "s").cost(3)];
    let mut client = client().await;
    for (refund, windows) in [
        (Operation::Peek, 2),
        (Operation::Refund, 1),
        (Operation::Undo { at: Timestamp::from_micros(start + TWO_HOURS) }, 1),
        (Operation::Undo { at: Timestamp::from_micros(start) }, 2),
    ] {
        let (clock, prefix) = (ManualClock::default(), fresh_prefix());
        let store = builder_with(&prefix).await.clock(clock.clone()).build().unwrap();
        for (now, call) in [
            (start, Call::acquire(&charge)),
            (start + TWO_HOURS, Call::acquire(&charge)),
            (start + TWO_HOURS, Call::new(refund, &charge)),
        ] {
            clock.set(Timestamp::from_micros(now));
            assert!(store.decide(call).await.unwrap().is_allowed());
        }
        let key = Keys::new(&prefix).key(&charge[0]);
        let life = client.call(&[&b"PTTL"[..], &key]).await.unwrap().text().parse().unwrap();
        let whole = windows * TWO_HOURS / 1_000;
        assert!((whole - SPARE..=whole).contains(&life), "{refund:?}: {life}");
    }
}
