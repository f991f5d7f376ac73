//! Tests usual batches (acquires of single charges), which have their own script. This script must
//! make the same decisions, and write the same values and expiries, as the general script. It must
//! leave states with a block, and foreign values, to the general script.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a helper of a test that fails panics, as the test does"
)]

use std::time::Duration;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use tidegate_redis::protocol::{Keys, Request, probable_time};
use tidegate_redis::{
    Call, Charge, ErrorKind, ManualClock, Operation, Policy, RedisStore, Store, Timestamp,
};
use tidegate_testkit::ModelStore;

use crate::common::{builder_with, client, fresh_prefix, policy, store_at};

const START: u64 = 1_790_000_000_000_123;
const HOUR: u64 = 3_600_000_000;

/// The operation on a subject before a batch.
#[derive(Debug, Clone, Copy)]
enum Between {
    Nothing,
    Do(Operation),
}

#[derive(Debug, Clone)]
struct Step {
    /// The number of microseconds by which the clock moves, forwards or backwards.
    pause: i64,
    between: Between,
    /// The policy, the subject and the cost of each call.
    batch: Vec<(usize, u8, u64)>,
}

/// Generates policies. Some policies have the same name, and therefore the same state.
fn policies() -> impl Strategy<Value = Vec<Policy>> {
    let limit = 1..8_u64;
    let window = prop::sample::select(vec!["10ms", "7s", "1h"]);
    let one = (limit, window, 0..10_u8).prop_map(|(limit, window, kind)| match kind {
        0 => format!("fixed-window {limit}/{window}"),
        1 => format!("fixed-window {limit}/{window} anchored"),
        2 => format!("fixed-window {limit}/{window} phased"),
        3 => format!("sliding-counter {limit}/{window}"),
        4 => format!("token-bucket 3/{window} burst {limit}"),
        5 => format!("token-bucket {limit}/{window}"),
        6 => format!("token-bucket 3/{window} burst {limit} by-interval"),
        // The days of two callers end at different times soon after START.
        7 => format!("quota {limit}/day in UTC at 14:00"),
        8 => format!("quota {limit}/day in UTC at 16:00"),
        _ => format!("gcra {limit}/{window} burst 4 shadow"),
    });
    let named = (0..3_u8, one).prop_map(|(name, rule)| format!("p{name}: {rule}").parse().unwrap());
    prop::collection::vec(named, 1..4)
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let pause = prop_oneof![
        2 => Just(0),
        4 => 0..20_000_i64,
        2 => 0..10_000_000_i64,
        1 => 0..2 * HOUR as i64,
        1 => -5_000_000..0_i64,
    ];
    let between = prop_oneof![
        8 => Just(Between::Nothing),
        1 => Just(Between::Do(Operation::Refund)),
        1 => Just(Between::Do(Operation::Reset)),
        1 => Just(Between::Do(Operation::Charge)),
        1 => (0..3_000_u64).prop_map(|millis| {
            Between::Do(Operation::Block { span: Duration::from_millis(millis) })
        }),
    ];
    let cost = prop_oneof![8 => Just(1), 1 => 2..4_u64, 1 => Just(100)];
    let batch = prop::collection::vec((any::<prop::sample::Index>(), 0..6_u8, cost), 2..24);
    let batch = batch.prop_map(|batch| {
        batch.into_iter().map(|(policy, subject, cost)| (policy.index(60), subject, cost)).collect()
    });
    let step =
        (pause, between, batch).prop_map(|(pause, between, batch)| Step { pause, between, batch });
    prop::collection::vec(step, 1..30)
}

/// Makes the calls of the steps on a store and on the core, and compares the decisions. Returns the
/// number of batches, and the number of usual batches.
async fn run_steps(
    store: &RedisStore,
    clock: &ManualClock,
    case: usize,
    policies: &[Policy],
    steps: &[Step],
) -> Result<(usize, usize), String> {
    let model = ModelStore::keeping_all(clock.clone());
    let keys = Keys::new("any");
    let (mut now, mut usual) = (START, 0);
    for (number, step) in steps.iter().enumerate() {
        now = now.saturating_add_signed(step.pause);
        clock.set(Timestamp::from_micros(now));
        let subjects: Vec<String> =
            step.batch.iter().map(|(_, subject, _)| format!("{case}-{subject}")).collect();
        let charges: Vec<_> = step
            .batch
            .iter()
            .zip(&subjects)
            .map(|(&(policy, _, cost), subject)| {
                [Charge::new(&policies[policy % policies.len()], subject).cost(cost)]
            })
            .collect();
        let mut calls: Vec<_> = charges.iter().map(|charges| Call::acquire(charges)).collect();
        if let Between::Do(operation) = step.between {
            let before = Call::new(operation, &charges[0]);
            let (expected, answer) = (model.decide(before).await, store.decide(before).await);
            assert_eq!(answer.unwrap(), expected.unwrap());
        }
        // The core decides all calls in one batch, and the store is allowed to split them into two
        // batches.
        usual += usize::from(Request::usual_batch(&keys, &calls, probable_time()).is_some());
        let (expected, answers) =
            (model.decide_many(&calls).await, store.decide_many(&calls).await);
        for ((call, expected), answer) in calls.drain(..).zip(expected).zip(answers) {
            let (expected, answer) = (expected.unwrap(), answer.unwrap());
            if expected != answer {
                return Err(format!(
                    "step {number} at {now}: {call:?}\n  expected {expected:?}\n  actual   {answer:?}"
                ));
            }
        }
    }
    Ok((steps.len(), usual))
}

#[tokio::test]
async fn usual_batches_decide_as_in_the_core() {
    let clock = ManualClock::default();
    let store = store_at(&clock).await;
    let cases: usize = std::env::var("TIDEGATE_CASES").map_or(400, |cases| cases.parse().unwrap());
    let mut runner = TestRunner::default();
    let (mut batches, mut usual) = (0, 0);
    for case in 0..cases {
        let mut tree = (policies(), steps()).new_tree(&mut runner).unwrap();
        let (policies, steps) = tree.current();
        match run_steps(&store, &clock, case, &policies, &steps).await {
            Ok((all, usual_ones)) => (batches, usual) = (batches + all, usual + usual_ones),
            Err(mut error) => {
                let mut more = tree.simplify();
                for attempt in 0..500 {
                    if !more {
                        break;
                    }
                    let (policies, steps) = tree.current();
                    let number = cases + case * 500 + attempt;
                    more = match run_steps(&store, &clock, number, &policies, &steps).await {
                        Ok(_) => tree.complicate(),
                        Err(smaller) => {
                            error = smaller;
                            tree.simplify()
                        }
                    };
                }
                panic!("{error}\nfor {:#?}", tree.current());
            }
        }
    }
    println!("{usual} of {batches} batches were usual");
    // A batch is not usual if it charges a key at two different costs. More than a fifth of the
    // batches must be usual.
    assert!(usual * 5 > batches, "{usual} of {batches}");
}

/// The policies for which the test compares values and expiries. Their windows are longer than an
/// hour, so that virtual time does not affect the expiries.
const LONG: [&str; 7] = [
    "a: fixed-window 5/30h",
    "b: fixed-window 5/30h anchored",
    "c: sliding-counter 5/30h",
    "d: token-bucket 5/30h",
    "e: token-bucket 5/30h by-interval",
    "f: gcra 1/9h burst 5",
    "g: quota 5/day in Asia/Tokyo",
];

#[tokio::test]
async fn a_batch_writes_the_same_values_and_expiries_as_single_calls() {
    let (clock, prefixes) = (ManualClock::default(), [fresh_prefix(), fresh_prefix()]);
    let mut stores = vec![];
    for prefix in &prefixes {
        stores.push(builder_with(prefix).await.clock(clock.clone()).build().unwrap());
    }
    let policies = LONG.map(policy);
    let subjects = ["once", "twice", "twice", "often", "often", "often", "often", "often", "often"];
    let mut client = client().await;
    for hours in [0, 0, 1, 20, 20, 41] {
        clock.set(Timestamp::from_micros(START + hours * HOUR));
        let charges: Vec<_> = policies
            .iter()
            .flat_map(|policy| subjects.iter().map(move |subject| [Charge::new(policy, subject)]))
            .collect();
        let calls: Vec<_> = charges.iter().map(|charges| Call::acquire(charges)).collect();
        assert!(Request::usual_batch(&Keys::new("any"), &calls, probable_time()).is_some());
        let together = stores[0].decide_many(&calls).await;
        for (call, together) in calls.iter().zip(together) {
            assert_eq!(together.unwrap(), stores[1].decide(*call).await.unwrap(), "{call:?}");
        }
        for charge in charges.iter().flatten() {
            let mut results = vec![];
            for prefix in &prefixes {
                let key = String::from_utf8(Keys::new(prefix).key(charge)).unwrap();
                let value = format!("{:?}", client.call(&["GET", &key]).await.unwrap());
                let ttl: u64 = client.call(&["PTTL", &key]).await.unwrap().text().parse().unwrap();
                results.push((value, ttl));
            }
            let (one, other) = (&results[0], &results[1]);
            assert_eq!(one.0, other.0, "{charge:?}");
            // The expiries of different charges are hours apart, so that a tolerance of a minute is
            // enough.
            let minute = 60_000;
            assert!(one.1.abs_diff(other.1) < minute, "{charge:?}: {} and {}", one.1, other.1);
        }
    }
}

#[tokio::test]
async fn unusual_values_are_decided_by_the_general_script() {
    let prefix = fresh_prefix();
    let store = builder_with(&prefix).await.build().unwrap();
    let policy = policy("p: token-bucket 2/10d burst 2");
    let key = |subject: &str| {
        String::from_utf8(Keys::new(&prefix).key(&Charge::new(&policy, subject))).unwrap()
    };
    let mut client = client().await;
    let foreign = [vec!["SET", "x"], vec!["HSET", "f", "v"], vec!["RPUSH", "v"]];
    for (number, command) in foreign.iter().enumerate() {
        let key = key(&format!("foreign{number}"));
        let mut command = command.clone();
        command.insert(1, &key);
        client.call(&command).await.unwrap();
    }
    let block = Operation::Block { span: Duration::from_secs(3_600) };
    let blocked = [Charge::new(&policy, "blocked")];
    let _ = store.decide(Call::new(block, &blocked)).await.unwrap();

    let subjects = [
        "new", "foreign0", "blocked", "new", "foreign1", "other", "new", "blocked", "foreign2",
        "foreign1",
    ];
    let charges = subjects.map(|subject| [Charge::new(&policy, subject)]);
    let calls: Vec<_> = charges.iter().map(|charges| Call::acquire(charges)).collect();
    assert!(Request::usual_batch(&Keys::new("any"), &calls, probable_time()).is_some());
    let answers = store.decide_many(&calls).await;
    let shown: Vec<_> = answers
        .iter()
        .map(|answer| match answer {
            Ok(decision) if decision.is_allowed() => "allowed",
            Ok(decision) if decision.verdicts()[0].blocked_for().is_zero() => "denied",
            Ok(_) => "blocked",
            Err(error) if error.kind() == ErrorKind::ForeignValue => "foreign",
            Err(error) => panic!("{error}"),
        })
        .collect();
    assert_eq!(
        shown,
        [
            "allowed", "foreign", "blocked", "allowed", "foreign", "allowed", "denied", "blocked",
            "foreign", "foreign",
        ]
    );
    assert_eq!(client.call(&["GET", &key("foreign0")]).await.unwrap().text(), "x");
    assert_eq!(client.call(&["HGET", &key("foreign1"), "f"]).await.unwrap().text(), "v");
    assert_eq!(client.call(&["LLEN", &key("foreign2")]).await.unwrap().text(), "1");
}

#[tokio::test]
async fn batches_with_other_calls_are_not_usual() {
    let keys = Keys::new("any");
    let [bucket, other_rate, log, blocks] = [
        "p: token-bucket 2/1h",
        "p: token-bucket 3/1h",
        "l: sliding-log 5/1h",
        "b: fixed-window 5/1h block 1m",
    ]
    .map(policy);
    let usual = [Charge::new(&bucket, "s")];
    let is_usual = |call: Call<'_>| {
        Request::usual_batch(&keys, &[Call::acquire(&usual), call], probable_time()).is_some()
    };
    assert!(is_usual(Call::acquire(&usual)));
    let [s, t] = ["s", "t"].map(|subject| Charge::new(&bucket, subject));
    assert!(is_usual(Call::acquire(&[t.cost(2)])), "another subject may have another cost");
    for charges in [
        vec![s.cost(2)],
        vec![t.cost(0)],
        vec![t.check_only()],
        vec![s, t],
        vec![],
        vec![Charge::new(&other_rate, "s")],
        vec![Charge::new(&log, "s")],
        vec![Charge::new(&blocks, "s")],
    ] {
        assert!(!is_usual(Call::acquire(&charges)), "{charges:?}");
    }
    for operation in [
        Operation::Peek,
        Operation::Refund,
        Operation::Reset,
        Operation::Reserve { max_wait: Duration::from_secs(1) },
        Operation::AcquireUpTo { min: 1 },
    ] {
        assert!(!is_usual(Call::new(operation, &[t])), "{operation:?}");
    }
}
