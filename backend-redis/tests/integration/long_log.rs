//! Compares the decisions of the scripts and of the core on logs of many records. Some logs are
//! Redis strings, from which expired records are removed. Other logs are Redis lists with elements
//! that are filled, searched, removed and reopened. Some logs change from a string to a list.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a helper of a test that fails panics, as the test does"
)]

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::time::Duration;
use tidegate_redis::protocol::Keys;
use tidegate_redis::{
    Call, Charge, Decision, ErrorKind, ManualClock, Operation, Policy, Store, Timestamp,
};
use tidegate_test_servers::Reply;
use tidegate_testkit::ModelStore;

use crate::common::{builder_with, client, fresh_prefix, key_with_prefix, policy, store_at};

/// A call that is repeated many times, so that a few steps create logs with many elements.
#[derive(Debug, Clone)]
struct Run {
    policy: prop::sample::Index,
    operation: u8,
    cost: u64,
    times: usize,
    /// The age in microseconds of the charge that each undo undoes.
    ago: u64,
    /// The number of microseconds that pass before each repetition of the call.
    apart: u64,
    before: i64,
}

fn run() -> impl Strategy<Value = Run> {
    let before = prop_oneof![
        6 => 0..200_i64,
        3 => 0..3_000_i64,
        1 => -500..0_i64,
        1 => 0..20_000_i64,
    ];
    (
        any::<prop::sample::Index>(),
        prop_oneof![
            12 => Just(0_u8),
            1 => Just(1),
            3 => Just(2),
            1 => Just(3),
            6 => Just(4),
            3 => Just(5),
            2 => Just(6),
        ],
        prop_oneof![6 => Just(1_u64), 2 => 1..9_u64, 1 => 100..900_u64],
        1..250_usize,
        prop_oneof![2 => Just(0_u64), 4 => 0..30_u64, 4 => 0..300_u64, 1 => 0..3_000_u64],
        prop_oneof![Just(0_u64), 1..9_u64],
        before,
    )
        .prop_map(|(policy, operation, cost, times, ago, apart, before)| Run {
            policy,
            operation,
            cost,
            times,
            ago,
            apart,
            before,
        })
}

fn policies() -> impl Strategy<Value = Vec<Policy>> {
    prop::sample::select(vec![
        vec!["p: sliding-log 1000/2ms"],
        vec!["p: sliding-log 1000/2ms grain 3us"],
        // These logs are strings. About twelve of their records expire at a time.
        vec!["p: sliding-log 100/200us"],
        vec!["p: sliding-log 100/300us grain 2us", "p: sliding-log 60/300us grain 2us"],
        // In the next two cases, the limit changes to values below and above 128, the maximum
        // number of records in a string. In the last case, the window and the algorithm also
        // change.
        vec!["p: sliding-log 1000/2ms", "p: sliding-log 100/2ms"],
        vec![
            "p: sliding-log 1000/2ms",
            "p: sliding-log 128/2ms",
            "p: sliding-log 129/2ms block 1ms",
        ],
        vec!["p: sliding-log 1000/2ms", "p: sliding-log 900/3ms", "p: token-bucket 1000/2ms"],
    ])
    .prop_map(|texts| texts.into_iter().map(policy).collect())
}

#[test]
fn long_logs_decide_as_in_the_core() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let config = Config { source_file: Some(file!()), ..Config::with_cases(30) };
    let inputs = (policies(), prop::collection::vec(run(), 1..30));
    let result = TestRunner::new(config).run(&inputs, |(policies, runs)| {
        runtime.block_on(run_calls(&policies, &runs)).map_err(TestCaseError::fail)
    });
    if let Err(error) = result {
        panic!("{error}");
    }
}

async fn run_calls(policies: &[Policy], runs: &[Run]) -> Result<(), String> {
    let mut now = 1_790_000_000_000_000_u64;
    let clock = ManualClock::new(Timestamp::from_micros(now));
    let store = store_at(&clock).await;
    let model = ModelStore::keeping_all(clock.clone());
    for (index, run) in runs.iter().enumerate() {
        now = now.saturating_add_signed(run.before);
        let charges = [Charge::new(run.policy.get(policies), "s").cost(run.cost)];
        let (operation, times) = match run.operation {
            0 => (Operation::Acquire, run.times),
            1 => (Operation::Peek, 1),
            2 => (Operation::Refund, run.times % 5),
            // Charges beyond the limit give the log its maximum number of records.
            5 => (Operation::Charge, run.times),
            6 => (Operation::AcquireUpTo { min: 1 }, run.times % 9),
            3 => (Operation::Block { span: Duration::from_micros(run.cost) }, 1),
            _ => (Operation::Undo { at: Timestamp::EPOCH }, run.times % 30),
        };
        let mut call = Call::new(operation, &charges);
        for time in 0..times {
            now += run.apart;
            if let Operation::Undo { at } = &mut call.operation {
                *at = Timestamp::from_micros(now - run.ago);
            }
            clock.set(Timestamp::from_micros(now));
            // Some calls are made as a batch, in which each call sees the writes of the previous
            // call.
            let calls = vec![call; if time % 16 == 7 { 3 } else { 1 }];
            let (expected, answers) = if calls.len() == 1 {
                (vec![model.decide(call).await], vec![store.decide(call).await])
            } else {
                (model.decide_many(&calls).await, store.decide_many(&calls).await)
            };
            for (expected, answer) in expected.iter().zip(&answers) {
                if expected.as_ref().ok() != answer.as_ref().ok() {
                    return Err(format!(
                        "run {index}, call {time}: {call:?}\n expected {expected:?}\n answered {answer:?}"
                    ));
                }
            }
        }
    }
    Ok(())
}

/// The undone record is in each possible place of a log: the first, the last or the only record of
/// an element of 14 records, or between other records. Other cases are a record in a string, and a
/// record after expired records.
#[tokio::test]
async fn any_of_the_newest_records_is_undone_as_in_the_core() {
    const APART: u64 = 7;
    let mut now = 1_790_000_000_000_000_u64;
    let clock = ManualClock::new(Timestamp::from_micros(now));
    let (store, model) = (store_at(&clock).await, ModelStore::keeping_all(clock.clone()));
    let both = async |call: Call<'_>, what: &str| {
        let (expected, answer) = (model.decide(call).await, store.decide(call).await);
        assert_eq!(answer.unwrap(), expected.unwrap(), "{what}");
    };
    let list = policy("list: sliding-log 1000/1ms");
    let string = policy("string: sliding-log 128/1ms");
    for (log, records) in
        [(&list, 1), (&list, 15), (&list, 29), (&list, 197), (&string, 1), (&string, 60)]
    {
        for (newer, cost) in [0, 1, 13, 14, 15, 28, 59, 126, 127, 128]
            .into_iter()
            .filter(|newer| *newer < records)
            .flat_map(|newer| [(newer, 1), (newer, 2), (newer, 9)])
        {
            let subject = format!("{records} {newer} {cost}");
            let charges = [Charge::new(log, &subject).cost(2)];
            for _ in 0..records {
                now += APART;
                clock.set(Timestamp::from_micros(now));
                both(Call::acquire(&charges), &subject).await;
            }
            let at = Timestamp::from_micros(now - newer * APART);
            let undone = [charges[0].cost(cost)];
            both(Call::new(Operation::Undo { at }, &undone), &subject).await;
            // The log stays in use: further amounts are acquired, and the records expire one by
            // one.
            for time in 0..1_000 / APART + 2 {
                now += APART;
                clock.set(Timestamp::from_micros(now));
                if time < 16 {
                    both(Call::acquire(&charges), &subject).await;
                } else {
                    both(Call::new(Operation::Peek, &charges), &subject).await;
                }
            }
        }
    }
}

/// If all records of an element of a list have expired, the element stays until the next acquire.
/// An undo before this acquire must still count positions from the first element. The running
/// totals are small in some cases, and above 2^48 in others.
#[tokio::test]
async fn records_after_expired_elements_are_undone_as_in_the_core() {
    const APART: u64 = 7;
    const RECORDS: u64 = 60;
    let clock = ManualClock::default();
    let (store, model) = (store_at(&clock).await, ModelStore::keeping_all(clock.clone()));
    let mut start = 1_790_000_000_000_000_u64;
    for (text, unit) in [
        ("p: sliding-log 1000/1ms", 1_u64),
        ("p: sliding-log 4503599627370496/1ms grain 1us", 1 << 44),
        ("p: sliding-log 128/1ms", 1),
    ] {
        let policy = policy(text);
        for expired in [0, 1, 14, 15, 28, 42] {
            start += 10_000;
            let undone = [0, 1, 3, 4, 13, 14, 17, 31, 32].iter().flat_map(|n| [(n, 1), (n, 2)]);
            let undone: Vec<(u64, u64)> = undone.map(|(n, cost)| (*n, cost * unit)).collect();
            let subjects: Vec<String> =
                undone.iter().map(|undone| format!("{text} {expired} {undone:?}")).collect();
            let last = start + RECORDS * APART;
            let until = if expired > 0 { start + expired * APART + 1_000 } else { last };
            // The test fills the log, undoes a record, acquires more, and lets the records expire.
            let acquires = (1..=RECORDS).map(|n| (start + n * APART, Operation::Acquire));
            let undo = Operation::Undo { at: Timestamp::EPOCH };
            let more = (0..18).map(|n| (until + n, Operation::Acquire));
            let expiring = (0..35).map(|n| (until + 20 + n * 2 * APART, Operation::Peek));
            let undone_now = [(until, undo), (until, Operation::Peek)];
            for (now, operation) in acquires.chain(undone_now).chain(more).chain(expiring) {
                clock.set(Timestamp::from_micros(now));
                let charges: Vec<_> = undone
                    .iter()
                    .zip(&subjects)
                    .map(|((_, cost), subject)| {
                        let cost = match operation {
                            Operation::Undo { .. } => *cost,
                            Operation::Peek => policy.limit(),
                            _ => 2 * unit,
                        };
                        [Charge::new(&policy, subject).cost(cost)]
                    })
                    .collect();
                let calls: Vec<_> = undone
                    .iter()
                    .zip(&charges)
                    .map(|((newer, _), charge)| {
                        let at = Timestamp::from_micros(last - newer * APART);
                        let is_undo = matches!(operation, Operation::Undo { .. });
                        Call::new(if is_undo { Operation::Undo { at } } else { operation }, charge)
                    })
                    .collect();
                let answers = store.decide_many(&calls).await;
                for (index, expected) in model.decide_many(&calls).await.iter().enumerate() {
                    let (expected, answer) = (expected.as_ref(), answers[index].as_ref());
                    assert_eq!(answer.unwrap(), expected.unwrap(), "{:?} at {now}", calls[index]);
                }
            }
        }
    }
}

/// The script removes expired records from a string when they are at least 16, and more than half
/// of the string. The running total before the first record is then the total of all removed
/// records.
#[tokio::test]
async fn records_of_a_shortened_string_are_undone_as_in_the_core() {
    const APART: u64 = 7;
    let mut now = 1_790_000_000_000_000_u64;
    let clock = ManualClock::new(Timestamp::from_micros(now));
    let (store, model) = (store_at(&clock).await, ModelStore::keeping_all(clock.clone()));
    let string = policy("p: sliding-log 128/1ms");
    let both = async |operation: Operation, charge: Charge<'_>| {
        let call = Call::new(operation, std::slice::from_ref(&charge));
        let (expected, answer) = (model.decide(call).await, store.decide(call).await);
        assert_eq!(answer.unwrap(), expected.unwrap(), "{call:?}");
    };
    for (expired, undone) in
        [15, 16, 17, 30].into_iter().flat_map(|expired| [0, 1, 2].map(|n| (expired, n)))
    {
        let subject = format!("{expired} {undone}");
        let charge = Charge::new(&string, &subject).cost(3);
        let first = now + APART;
        for _ in 0..31 {
            now += APART;
            clock.set(Timestamp::from_micros(now));
            both(Operation::Acquire, charge).await;
        }
        // The clock moves on until the first `expired` records have expired.
        now = first + (expired - 1) * APART + 1_000;
        clock.set(Timestamp::from_micros(now));
        both(Operation::Acquire, charge).await;
        let at = Timestamp::from_micros(first + (expired + undone) * APART);
        for cost in [1, 2, 9] {
            both(Operation::Undo { at }, charge.cost(cost)).await;
            both(Operation::Peek, charge.cost(128)).await;
        }
        for _ in 0..20 {
            now += APART;
            clock.set(Timestamp::from_micros(now));
            both(Operation::Acquire, charge).await;
        }
        now += 2_000;
    }
}

/// Expired records stay in a log that is a string for a while, because removing them rewrites the
/// whole string. The number of expired records is bounded.
#[tokio::test]
async fn a_string_has_at_most_twice_the_records_that_count() {
    let string = policy("p: sliding-log 128/1ms");
    let charges = [Charge::new(&string, "s")];
    let mut client = client().await;
    // In the first case, about 100 records count at any time. In the second case, about two records
    // count, and at least 16 records must expire before the script removes them.
    for (apart, min, max) in [(10, 95, 105), (600, 8, 20)] {
        let clock = ManualClock::new(Timestamp::from_micros(1_790_000_000_000_000));
        let prefix = fresh_prefix();
        let store = builder_with(&prefix).await.clock(clock.clone()).build().unwrap();
        let key = Keys::new(&prefix).key(&charges[0]);
        let mut longest = 0;
        for _ in 0..1_000 {
            clock.advance(Duration::from_micros(apart));
            assert!(store.decide(Call::acquire(&charges)).await.unwrap().is_allowed());
            let reply = client.call(&[&b"STRLEN"[..], &key]).await.unwrap();
            longest = longest.max(reply.text().parse().unwrap());
        }
        // Each record has 14 bytes.
        assert!(longest < 14 * 2 * max + 100, "{longest} with {apart} us apart");
        assert!(longest > 14 * 2 * min, "{longest} with {apart} us apart");
    }
}

/// The running totals of a log that is never idle rise up to 2^53, which takes years. Therefore
/// this test raises all totals of a log by the same number, which must not change any decision.
#[tokio::test]
async fn only_differences_of_totals_count() {
    const APART: u64 = 7;
    const START: u64 = 1_790_000_000_000_000;
    // Three totals are stored in the foot of a log: of the newest record, of the removed records,
    // and of the first record that counts. These are their offsets from the end of the value.
    const OFFSETS_FROM_END: [usize; 3] = [44, 37, 21];
    let [string, list] = ["p: sliding-log 100/1ms", "p: sliding-log 500/1ms"].map(policy);
    let mut client = client().await;
    for raised_by in [0, (1 << 48) - 30, 1 << 48, (1 << 52) + 5, (1 << 53) - 80, (1 << 53) - 61] {
        for expired in [0, 1, 3, 6, 20] {
            let clock = ManualClock::default();
            let prefix = fresh_prefix();
            let store = builder_with(&prefix).await.clock(clock.clone()).build().unwrap();
            let model = ModelStore::keeping_all(clock.clone());
            let both = async |now: u64, operation: Operation, charge: Charge<'_>| {
                clock.set(Timestamp::from_micros(now));
                let call = Call::new(operation, std::slice::from_ref(&charge));
                let (expected, answer) = (model.decide(call).await, store.decide(call).await);
                assert_eq!(answer.unwrap(), expected.unwrap(), "{raised_by}, {expired}: {call:?}");
            };
            let charge = Charge::new(&string, "s").cost(2);
            for n in 1..=40 {
                both(START + n * APART, Operation::Acquire, charge).await;
            }
            let key = Keys::new(&prefix).key(&charge);
            let Reply::Bytes(mut log) = client.call(&[&b"GET"[..], &key]).await.unwrap() else {
                panic!("a string");
            };
            let mut raise = |at: usize| {
                let mut total = [0; 8];
                total[..7].copy_from_slice(&log[at..at + 7]);
                // A total wraps around at 2^53, and the scripts store 2^53 instead of 0.
                let total = u64::from_le_bytes(total) + raised_by;
                let total = if total > 1 << 53 { total - (1 << 53) } else { total };
                log[at..at + 7].copy_from_slice(&total.to_le_bytes()[..7]);
            };
            (0..40).for_each(|record| raise(1 + 14 * record));
            OFFSETS_FROM_END.iter().for_each(|from_end| raise(8 + 14 * 40 + 37 - from_end));
            client.call(&[&b"SET"[..], &key, &log]).await.unwrap();
            // After the first `expired` records have expired, a peek reads the following records,
            // an undo changes one of them, and an acquire writes the log.
            let now = START + expired * APART + 1_000;
            let peek = charge.cost(100);
            both(now, Operation::Peek, peek).await;
            both(now, Operation::Peek, peek.cost(23)).await;
            let at = Timestamp::from_micros(START + (expired + 1) * APART);
            both(now, Operation::Undo { at }, charge.cost(1)).await;
            both(now, Operation::Peek, peek).await;
            both(now, Operation::Refund, charge.cost(3)).await;
            both(now, Operation::Acquire, charge).await;
            // The log of the policy `list` becomes a list of several elements.
            let charge = Charge::new(&list, "s");
            both(now, Operation::Acquire, charge).await;
            for n in 0..40 {
                let now = now + n * APART;
                both(now, Operation::Peek, charge.cost(500)).await;
                both(now, Operation::Peek, charge.cost(480 - n)).await;
                if n == 9 {
                    both(now, Operation::Refund, charge).await;
                }
            }
        }
    }
}

/// The running totals of a log wrap around at 2^53. In this test, they wrap around after every
/// sixteenth acquire.
#[tokio::test]
async fn records_at_a_wrap_of_the_totals_are_undone_as_in_the_core() {
    let mut now = 1_790_000_000_000_000_u64;
    let clock = ManualClock::new(Timestamp::from_micros(now));
    let (store, model) = (store_at(&clock).await, ModelStore::keeping_all(clock.clone()));
    let log = policy("p: sliding-log 4503599627370496/1ms grain 100us");
    let both = async |call: Call<'_>, what: &str| {
        let (expected, answer) = (model.decide(call).await, store.decide(call).await);
        assert_eq!(answer.unwrap(), expected.unwrap(), "{what}");
    };
    // The running total is 0 again after every 16 acquires. The test undoes charge 15, 16, 17 or
    // 32.
    for (acquires, newer) in [(15, 0), (16, 0), (16, 1), (17, 0), (17, 1), (18, 3), (34, 2)] {
        let subject = format!("{acquires} {newer}");
        let whole = [Charge::new(&log, &subject).cost(1 << 49)];
        let part = [whole[0].cost(1 << 47)];
        for _ in 0..acquires {
            now += 200;
            clock.set(Timestamp::from_micros(now));
            both(Call::acquire(&whole), &subject).await;
        }
        let at = Timestamp::from_micros(now - newer * 200);
        for charges in [&part, &whole] {
            both(Call::new(Operation::Undo { at }, charges), &subject).await;
            both(Call::acquire(&part), &subject).await;
        }
        for _ in 0..12 {
            now += 100;
            clock.set(Timestamp::from_micros(now));
            both(Call::new(Operation::Peek, &whole), &subject).await;
        }
    }
}

/// To refund a cost, or to compute the wait of a denied call, the script searches for a record by
/// its running total. The search must also work if totals wrap around, in a string and in a list.
#[tokio::test]
async fn totals_that_wrap_are_searched_as_in_the_core() {
    for (text, unit, apart) in [
        // The first log is a string, and the second log is a list with up to 32 records that count.
        ("p: sliding-log 4503599627370496/1ms grain 100us", 1_u64 << 49, 100),
        ("p: sliding-log 4503599627370496/1ms grain 1us", 1 << 47, 31),
    ] {
        let mut now = 1_790_000_000_000_000_u64;
        let clock = ManualClock::new(Timestamp::from_micros(now));
        let (store, model) = (store_at(&clock).await, ModelStore::keeping_all(clock.clone()));
        let log = policy(text);
        let both = async |operation: Operation, cost: u64, what: u64| {
            let charges = [Charge::new(&log, "s").cost(cost)];
            let call = Call::new(operation, &charges);
            let (expected, answer) = (model.decide(call).await, store.decide(call).await);
            assert_eq!(answer.unwrap(), expected.unwrap(), "{text}, {what}: {call:?}");
        };
        for step in 0..700 {
            now += apart;
            clock.set(Timestamp::from_micros(now));
            both(Operation::Acquire, unit, step).await;
            for cost in [step % 34 * unit, step % 33 * unit + 1] {
                both(Operation::Peek, cost, step).await;
            }
            if step % 5 == 0 {
                both(Operation::Refund, step % 13 * unit / 2, step).await;
                both(Operation::Acquire, unit / 2, step).await;
            }
        }
    }
}

/// If the limit of the policy grows, a log changes from a string to a list of elements of 14
/// records.
#[tokio::test]
async fn a_string_of_any_length_becomes_a_list_as_in_the_core() {
    const APART: u64 = 8;
    let mut now = 1_790_000_000_000_000_u64;
    let clock = ManualClock::new(Timestamp::from_micros(now));
    let (store, model) = (store_at(&clock).await, ModelStore::keeping_all(clock.clone()));
    let both = async |operation: Operation, charge: Charge<'_>| {
        let call = Call::new(operation, std::slice::from_ref(&charge));
        let (expected, answer) = (model.decide(call).await, store.decide(call).await);
        assert_eq!(answer.unwrap(), expected.unwrap(), "{call:?}");
    };
    let policies = [
        ["p: sliding-log 100/1ms", "p: sliding-log 500/1ms"],
        ["p: sliding-log 100/1ms grain 5us", "p: sliding-log 500/1ms grain 5us"],
    ]
    .map(|texts| texts.map(policy));
    for ([string, list], records) in
        policies.iter().flat_map(|p| [1, 12, 13, 14, 15, 27, 28, 29, 43].map(|n| (p, n)))
    {
        for expired in [0, 1, 13, 14, 15, 28].into_iter().filter(|expired| *expired < records) {
            // An acquire under the policy `list`, whose limit of 500 is higher than the limit of
            // `string`, turns the log from a string into a list. If `expired` and `later` are 0,
            // this acquire is in the same microsecond (or grain) as the newest record. In all other
            // cases, it is later.
            for later in [0, APART] {
                let subject = format!("{records} {expired} {later}");
                for _ in 0..records {
                    now += APART;
                    clock.set(Timestamp::from_micros(now));
                    both(Operation::Acquire, Charge::new(string, &subject).cost(2)).await;
                }
                // Move the clock so that the first `expired` records have expired, and all others
                // still count.
                let first = now - (records - 1) * APART;
                now = now.max(if expired > 0 { first + (expired - 1) * APART + 1_005 } else { 0 });
                now += later;
                clock.set(Timestamp::from_micros(now));
                both(Operation::Acquire, Charge::new(list, &subject)).await;
                for step in 0..records + 2 {
                    both(Operation::Peek, Charge::new(list, &subject).cost(500 - step)).await;
                    now = now.max(first + step * APART + 1_000);
                    clock.set(Timestamp::from_micros(now));
                    both(Operation::Peek, Charge::new(list, &subject).cost(500 - step)).await;
                    if step == 4 {
                        both(Operation::Refund, Charge::new(list, &subject)).await;
                    }
                }
            }
        }
    }
}

/// The policy of the first acquire decides whether a log is a string or a list. A string becomes a
/// list when a policy needs more records, and a list stays a list until it has expired.
#[tokio::test]
async fn a_log_that_may_grow_long_is_a_list_and_any_other_a_string() {
    let clock = ManualClock::new(Timestamp::from_micros(1_790_000_000_000_000));
    let [short, long] = ["p: sliding-log 128/1ms", "p: sliding-log 129/1ms"].map(policy);
    let mut client = client().await;
    for (steps, batch_size) in [
        (&[(&short, 0, "string"), (&short, 9, "string"), (&long, 9, "list")][..], 1),
        (
            &[
                (&long, 0, "list"),
                (&long, 9, "list"),
                (&short, 9, "list"),
                (&short, 1_000, "string"),
            ],
            1,
        ),
        (&[(&short, 0, "string"), (&short, 9, "string"), (&long, 9, "list")][..], 2),
        (
            &[
                (&long, 0, "list"),
                (&long, 9, "list"),
                (&short, 9, "list"),
                (&short, 1_000, "string"),
            ],
            2,
        ),
    ] {
        let prefix = fresh_prefix();
        let store = builder_with(&prefix).await.clock(clock.clone()).build().unwrap();
        for (index, (policy, pause, expected)) in steps.iter().enumerate() {
            clock.advance(Duration::from_micros(*pause));
            let charges = [Charge::new(policy, "s")];
            let calls = vec![Call::acquire(&charges); batch_size];
            assert!(store.decide_many(&calls).await.iter().all(Result::is_ok));
            let key = Keys::new(&prefix).key(&charges[0]);
            let kind = client.call(&[&b"TYPE"[..], &key]).await.unwrap().text();
            assert_eq!(kind, *expected, "{index}: {policy}, {batch_size} calls");
        }
    }
}

#[tokio::test]
async fn a_log_of_ten_thousand_takes_a_seventh_of_a_sorted_set() {
    let clock = ManualClock::new(Timestamp::from_micros(1_790_000_000_000_000));
    let prefix = fresh_prefix();
    let builder = builder_with(&prefix).await;
    let store = builder.clock(clock.clone()).build().unwrap();
    let log = policy("log: sliding-log 10000/1h");
    let mut client = client().await;
    for _ in 0..100 {
        let mut sorted = vec!["ZADD".to_owned(), format!("{prefix}:sorted")];
        for _ in 0..100 {
            clock.advance(Duration::from_micros(1_379));
            let stamp = store.now().await.unwrap().as_micros().to_string();
            sorted.extend([stamp.clone(), stamp]);
            assert!(
                store.decide(Call::acquire(&[Charge::new(&log, "s")])).await.unwrap().is_allowed()
            );
        }
        let sorted: Vec<&str> = sorted.iter().map(String::as_str).collect();
        client.call(&sorted).await.unwrap();
    }
    let mut usage = async |key: String| -> u64 {
        let reply = client.call(&["MEMORY", "USAGE", &key, "SAMPLES", "0"]).await.unwrap();
        reply.text().parse().unwrap()
    };
    let log_bytes = usage(key_with_prefix(&prefix, &log)).await;
    let sorted_bytes = usage(format!("{prefix}:sorted")).await;
    println!("a log of 10,000: {log_bytes} bytes; as a sorted set: {sorted_bytes}");
    assert!(log_bytes * 100 <= sorted_bytes * 15, "{log_bytes} of {sorted_bytes}");
}

/// A value that resembles a log only at its end is a foreign value and stays unchanged.
#[tokio::test]
async fn a_log_that_was_cut_is_an_error_and_stays_unchanged() {
    for (text, records) in [("p: sliding-log 100/1ms", 50), ("p: sliding-log 500/1ms", 300)] {
        let clock = ManualClock::new(Timestamp::from_micros(1_790_000_000_000_000));
        let prefix = fresh_prefix();
        let builder = builder_with(&prefix).await;
        let store = builder.clock(clock.clone()).build().unwrap();
        let policy = policy(text);
        let key = key_with_prefix(&prefix, &policy);
        let charges = [Charge::new(&policy, "s")];
        for _ in 0..records {
            clock.advance(Duration::from_micros(2));
            assert!(store.decide(Call::acquire(&charges)).await.unwrap().is_allowed());
        }
        let mut client = client().await;
        let cut = "local key, last = KEYS[1], nil \
                   if redis.call('TYPE', key).ok == 'list' then \
                     redis.call('LTRIM', key, 3, -1) \
                   else \
                     last = redis.call('GETRANGE', key, -200, -1) \
                     redis.call('SET', key, '\\148' .. last) \
                   end";
        client.call(&["EVAL", cut, "1", &key]).await.unwrap();
        let before = client.call(&["DUMP", &key]).await.unwrap();
        // The first records have expired, so the calls search for the records that still count.
        clock.advance(Duration::from_micros(1_000 - 2 * records + 2));
        for operation in [Operation::Acquire, Operation::Refund, Operation::Peek] {
            let error = store.decide(Call::new(operation, &charges)).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ForeignValue, "{text} {operation:?}");
        }
        assert_eq!(client.call(&["DUMP", &key]).await.unwrap(), before, "{text}");
    }
}

/// An element of a log that is a list is foreign if its size is right and its kind is wrong, or if
/// its kind is right and its size is wrong.
#[tokio::test]
async fn a_foreign_element_within_a_log_is_an_error_and_stays_unchanged() {
    let changes: [fn(&mut Vec<u8>); 3] = [
        |element| element[0] ^= 1,
        |element| element.truncate(element.len() - 1),
        |element| element.extend_from_within(..14),
    ];
    let policy = policy("p: sliding-log 500/1ms");
    let charges = [Charge::new(&policy, "s").cost(1)];
    for change in changes {
        let clock = ManualClock::new(Timestamp::from_micros(1_790_000_000_000_000));
        let prefix = fresh_prefix();
        let key = Keys::new(&prefix).key(&charges[0]);
        let store = builder_with(&prefix).await.clock(clock.clone()).build().unwrap();
        for _ in 0..300 {
            clock.advance(Duration::from_micros(2));
            assert!(store.decide(Call::acquire(&charges)).await.unwrap().is_allowed());
        }
        let mut client = client().await;
        let elements = client.call(&[&b"LRANGE"[..], &key, b"0", b"-2"]).await.unwrap();
        for (index, element) in elements.list().iter().enumerate() {
            let Reply::Bytes(mut element) = element.clone() else { panic!("bytes") };
            change(&mut element);
            let index = index.to_string();
            client.call(&[&b"LSET"[..], &key, index.as_bytes(), &element]).await.unwrap();
        }
        let before = client.call(&[&b"DUMP"[..], &key]).await.unwrap();
        // Some records have expired, so the calls search for the records that still count.
        clock.advance(Duration::from_micros(500));
        let refund = [charges[0].cost(100)];
        for call in [
            Call::acquire(&charges),
            Call::new(Operation::Peek, &charges),
            Call::new(Operation::Refund, &refund),
        ] {
            let error = store.decide(call).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ForeignValue, "{call:?}");
        }
        assert_eq!(client.call(&[&b"DUMP"[..], &key]).await.unwrap(), before);
    }
}

/// The foot of a log, the fixed-size end of its value, describes the records. If the foot
/// contradicts the records, the log is a foreign value.
#[tokio::test]
async fn a_log_whose_foot_contradicts_its_records_is_an_error_and_stays_unchanged() {
    type Change = (usize, &'static [u8]);
    // The log has five records. Each change sets the time of the oldest record that counts to an
    // expired time. The first two changes give this record the place of the last record, or the
    // place after it. The other two changes set the number of records to 6 or 4.
    let changes: [&[Change]; 4] = [
        &[(30, &[4, 0]), (28, &[1, 0, 0, 0, 0, 0, 0])],
        &[(30, &[5, 0]), (28, &[1, 0, 0, 0, 0, 0, 0])],
        &[(28, &[1, 0, 0, 0, 0, 0, 0]), (10, &[6, 0])],
        &[(28, &[1, 0, 0, 0, 0, 0, 0]), (10, &[4, 0])],
    ];
    let mut client = client().await;
    for text in ["p: sliding-log 100/1ms", "p: sliding-log 500/1ms"] {
        let policy = policy(text);
        let charges = [Charge::new(&policy, "s")];
        let clock = ManualClock::new(Timestamp::from_micros(1_790_000_000_000_000));
        let prefix = fresh_prefix();
        let key = Keys::new(&prefix).key(&charges[0]);
        let store = builder_with(&prefix).await.clock(clock.clone()).build().unwrap();
        for _ in 0..5 {
            clock.advance(Duration::from_micros(2));
            assert!(store.decide(Call::acquire(&charges)).await.unwrap().is_allowed());
        }
        let dump = client.call(&[&b"DUMP"[..], &key]).await.unwrap();
        let Reply::Bytes(dump) = dump else { panic!("bytes") };
        for change in changes {
            client.call(&[&b"RESTORE"[..], &key, b"0", &dump, b"REPLACE"]).await.unwrap();
            let is_list = client.call(&[&b"TYPE"[..], &key]).await.unwrap().text() == "list";
            let get: &[&[u8]] = if is_list { &[b"LINDEX", &key, b"-1"] } else { &[b"GET", &key] };
            let Reply::Bytes(mut log) = client.call(get).await.unwrap() else { panic!("bytes") };
            for (from_end, bytes) in change {
                let at = log.len() - from_end;
                log[at..at + bytes.len()].copy_from_slice(bytes);
            }
            let set: &[&[u8]] =
                if is_list { &[b"LSET", &key, b"-1", &log] } else { &[b"SET", &key, &log] };
            client.call(set).await.unwrap();
            let forged = client.call(&[&b"DUMP"[..], &key]).await.unwrap();
            let peek = Call::new(Operation::Peek, &charges);
            let refund = Call::new(Operation::Refund, &charges);
            for call in [Call::acquire(&charges), peek, refund] {
                for answer in store.decide_many(&[call, peek]).await {
                    let error = answer.unwrap_err();
                    assert_eq!(
                        error.kind(),
                        ErrorKind::ForeignValue,
                        "{text}: {change:?} {call:?}"
                    );
                }
            }
            assert_eq!(client.call(&[&b"DUMP"[..], &key]).await.unwrap(), forged, "{text}");
        }
    }
}

/// Guards against a defect: a client with write access to Redis could forge a running total that no
/// log can contain. The computed sum of the records became negative, so the log admitted without a
/// limit.
#[tokio::test]
async fn a_forged_log_admits_no_more_than_the_limit() {
    const LIMIT: usize = 10;
    let mut forgeries = vec![];
    let clock = ManualClock::new(Timestamp::from_micros(1_790_000_000_000_000));
    let prefix = fresh_prefix();
    let store = builder_with(&prefix).await.clock(clock.clone()).build().unwrap();
    let policy = policy("p: sliding-log 10/1h");
    let charges = [Charge::new(&policy, "s")];
    let key = Keys::new(&prefix).key(&charges[0]);
    for _ in 0..4 {
        clock.advance(Duration::from_secs(61));
        assert!(store.decide(Call::acquire(&charges)).await.unwrap().is_allowed());
    }
    let mut client = client().await;
    let Reply::Bytes(log) = client.call(&[&b"GET"[..], &key]).await.unwrap() else {
        panic!("a log of {LIMIT} is a string");
    };
    // The test overwrites seven bytes at each offset, so that it also overwrites each total.
    for index in 0..log.len() - 7 {
        for number in [1_u64 << 55, (1 << 56) - 1] {
            let mut forged = log.clone();
            forged[index..index + 7].copy_from_slice(&number.to_le_bytes()[..7]);
            for batch_size in [1, 2] {
                client.call(&[&b"SET"[..], &key, &forged]).await.unwrap();
                let mut admitted = 0;
                for _ in 0..(LIMIT + 2).div_ceil(batch_size) {
                    let calls = vec![Call::acquire(&charges); batch_size];
                    let answers = match calls[..] {
                        [call] => vec![store.decide(call).await],
                        _ => store.decide_many(&calls).await,
                    };
                    let is_allowed =
                        |d: &Result<Decision, _>| d.as_ref().is_ok_and(|d| d.is_allowed());
                    admitted += answers.iter().filter(|d| is_allowed(d)).count();
                }
                if admitted > LIMIT {
                    forgeries.push(format!("{number:x} at {index}: {admitted}"));
                }
            }
        }
    }
    assert!(forgeries.is_empty(), "{forgeries:#?}");
}
