//! Tests holds on real servers: settlements under any clock, settlements whose replies are lost,
//! and foreign values, which stay unchanged.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a helper of a test that fails panics, as the test does"
)]

use std::error::Error as _;
use std::time::Duration;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, TestRunner};
use tidegate_memory::MemoryStore;
use tidegate_redis::protocol::{Keys, supports};
use tidegate_redis::{
    AlreadySettled, Call, CallId, Charge, Clock, Decision, Error, ErrorKind, ManualClock,
    Operation, Policy, RedisStore, Store, Timestamp,
};
use tidegate_test_servers::{Data, End, Mode, Proxy, Redis, Reply, eventually};
use tidegate_testkit::ModelStore;
use tidegate_testkit::generate::{
    Kind, Places, few_slots, hold_scenario, policy as any_policy, related_policies, seeded_rng,
    slots_policy, slots_scenario,
};

use crate::common::{
    builder_with, client, fresh_prefix, impatient_store as store, patient_store, policy, server,
    store_at, used,
};

const START: u64 = 1_790_000_000_000_123;
const HOUR: Duration = Duration::from_secs(3600);
const SOON: Duration = Duration::from_secs(9);

/// The number of traces of each differential test.
const TRACES: usize = 250;

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
        "i: gcra 20/2h burst 9 shadow",
    ];
    texts.into_iter().map(policy).collect()
}

async fn decide(
    store: &impl Store,
    operation: Operation,
    id: &str,
    charges: &[Charge<'_>],
) -> Result<Decision, Error> {
    store.decide(Call::new(operation, charges).with_id(CallId::new(id, HOUR))).await
}

/// Returns the text of a reply. For an error, this is the kind, the message and the settlement that
/// the error reports.
fn summary(answer: &Result<Decision, Error>) -> String {
    let Err(error) = answer else { return format!("{answer:?}") };
    let source = error.source().and_then(|source| source.downcast_ref::<AlreadySettled>());
    let kind = error.kind();
    match kind {
        ErrorKind::InvalidCall => format!("{kind:?}"),
        _ => format!("{kind:?}: {error}, {source:?}"),
    }
}

/// A variation of the testkit's traces.
#[derive(Clone, Copy, PartialEq)]
enum Variation {
    /// The traces of the testkit are unchanged, as in the tests of the memory store.
    Forwards,
    /// The clock jumps.
    Jumping,
    /// The clock jumps. Between the calls of a trace, other policies charge the same states.
    Changed,
}

/// Makes the calls of random traces through the scripts and through the core, on empty states. All
/// answers must be equal.
async fn compare_traces(policies: impl Strategy<Value = Vec<Policy>>, variation: Variation) {
    let mut runner = TestRunner::new_with_rng(Config::default(), seeded_rng(0));
    let jump = prop_oneof![8 => Just(0), 2 => -20..20_i64, 1 => -(1_i64 << 50)..1_i64 << 50];
    let jumps = prop::collection::vec(jump, 40);
    let extras = prop::collection::vec(prop::option::weighted(0.4, extra_operation()), 40);
    let scenarios = (
        policies.prop_flat_map(|policies| {
            let first = policies.first().cloned().into_iter().collect::<Vec<_>>();
            let played = if variation == Variation::Changed { first } else { policies.clone() };
            let scenario = match policies[0].is_concurrent() && policies[0].limit() < 5 {
                true => slots_scenario(Just(played), 40).boxed(),
                false => hold_scenario(Just(played), 40).boxed(),
            };
            (Just(policies), scenario)
        }),
        jumps,
        extras,
    );
    for _ in 0..TRACES {
        let ((policies, scenario), jumps, extras) =
            scenarios.new_tree(&mut runner).unwrap().current();
        let clock = ManualClock::new(Timestamp::from_micros(START));
        let store = store_at(&clock).await;
        let model = ModelStore::keeping_all(clock.clone());
        let memory = MemoryStore::builder().clock(clock.clone()).build();
        let (mut trace, mut places) = (vec![], Places::default());
        for (index, mut step) in scenario.calls().into_iter().enumerate() {
            if variation != Variation::Forwards {
                let now = step.now.as_micros().saturating_add_signed(jumps[index]);
                step.now = Timestamp::from_micros(now);
            }
            if variation == Variation::Changed {
                let number = step.id.map_or(index, |(id, _)| usize::from(id[0] == 2));
                let policy = &policies[number % policies.len()];
                step.charges.iter_mut().for_each(|charge| charge.policy = policy);
            }
            clock.set(step.now);
            let call = Call::new(places.operation(&step), &step.charges);
            let id = step.id.as_ref().map(|(id, ttl)| CallId::new(id, *ttl));
            let call = id.map_or(call, |id| call.with_id(id));
            let mut calls = vec![call];
            let extra = extras[index];
            calls.extend(extra.map(|(operation, _)| Call::new(operation, &step.charges)));
            let call_id = (index as u64).to_le_bytes();
            if let Some((_, Some(ttl))) = extra {
                calls[1] = calls[1].with_id(CallId::new(&call_id, Duration::from_micros(ttl)));
            }
            for call in calls {
                let expected = model.decide(call).await;
                places.learn(&step, &expected);
                let expected = summary(&expected);
                let answer = summary(&store.decide(call).await);
                trace.push(format!("{:?}: {call:?}\n  -> {expected}", step.now));
                assert_eq!(answer, expected, "{}", trace.join("\n"));
                if variation == Variation::Forwards {
                    assert_eq!(
                        summary(&memory.decide(call).await),
                        expected,
                        "{}",
                        trace.join("\n")
                    );
                }
            }
        }
    }
}

/// Generates an operation that the testkit's traces do not contain, and possibly the time to live
/// of its id. The test applies the operation to the charges of a step of the trace.
fn extra_operation() -> impl Strategy<Value = (Operation, Option<u64>)> {
    let operation = prop_oneof![
        4 => Just(Operation::Peek),
        2 => Just(Operation::Acquire),
        2 => (1..3_u64).prop_map(|min| Operation::AcquireUpTo { min }),
        1 => Just(Operation::Charge),
        2 => (0..60_u64).prop_map(|wait| {
            Operation::Reserve { max_wait: Duration::from_micros(wait) }
        }),
        1 => (0..60_u64).prop_map(|ago| {
            Operation::Undo { at: Timestamp::from_micros(START + ago) }
        }),
        1 => (0..30_u64).prop_map(|span| {
            Operation::BlockAtLeast { span: Duration::from_micros(span) }
        }),
    ];
    (operation, prop::option::weighted(0.2, 1..60_u64)).prop_map(|(operation, ttl)| match operation
    {
        Operation::Peek => (operation, None),
        operation => (operation, ttl),
    })
}

/// Sets `refund-lapsed` or `count-failures` for the fraction `share` of the policies. Logs with too
/// many records do not support these settings and stay unchanged.
fn lapsing(
    policies: impl Strategy<Value = Vec<Policy>>,
    share: f64,
) -> impl Strategy<Value = Vec<Policy>> {
    let setting = (prop::bool::weighted(share), prop::bool::weighted(0.3));
    (policies, prop::collection::vec(setting, 4)).prop_map(|(policies, settings)| {
        let changed = |(policy, (is_changed, counts_failures)): (Policy, (bool, bool))| {
            let changed = match (is_changed, counts_failures) {
                (false, _) => return policy,
                (true, true) => policy.clone().count_failures(),
                (true, false) => policy.clone().refund_lapsed(),
            };
            if supports(&changed).is_ok() { changed } else { policy }
        };
        policies.into_iter().zip(settings.into_iter().cycle()).map(changed).collect()
    })
}

fn one() -> impl Strategy<Value = Vec<Policy>> {
    Kind::any().prop_flat_map(|kind| any_policy(kind, "p")).prop_map(|policy| vec![policy])
}

fn several() -> impl Strategy<Value = Vec<Policy>> {
    let any = |name| Kind::any().prop_flat_map(move |kind| any_policy(kind, name));
    (any("p"), any("q"), any("r")).prop_map(|(p, q, r)| vec![p, q, r])
}

#[tokio::test]
async fn holds_are_settled_as_in_memory_and_in_the_core() {
    compare_traces(one(), Variation::Forwards).await;
    compare_traces(several(), Variation::Forwards).await;
}

#[tokio::test]
async fn holds_are_settled_as_in_the_core_while_the_clock_jumps() {
    compare_traces(one(), Variation::Jumping).await;
    compare_traces(several(), Variation::Jumping).await;
}

#[tokio::test]
async fn holds_are_settled_as_in_the_core_while_policies_change() {
    compare_traces(
        Kind::any().prop_flat_map(|kind| related_policies(kind, "p")),
        Variation::Changed,
    )
    .await;
}

#[tokio::test]
async fn lapsed_holds_are_refunded_as_in_memory_and_in_the_core() {
    compare_traces(lapsing(one(), 1.0), Variation::Forwards).await;
    compare_traces(lapsing(several(), 0.7), Variation::Forwards).await;
}

#[tokio::test]
async fn lapsed_holds_are_refunded_as_in_the_core_while_the_clock_jumps() {
    compare_traces(lapsing(one(), 1.0), Variation::Jumping).await;
    compare_traces(lapsing(several(), 0.7), Variation::Jumping).await;
}

/// Slots, and slots together with rates in one call.
fn with_slots() -> impl Strategy<Value = Vec<Policy>> {
    prop_oneof![
        1 => slots_policy("p").prop_map(|policy| vec![policy]),
        3 => few_slots("p").prop_map(|policy| vec![policy]),
        1 => (few_slots("p"), few_slots("q")).prop_map(|(p, q)| vec![p, q]),
        2 => (prop_oneof![slots_policy("p"), few_slots("p")], lapsing(several(), 0.4)).prop_map(|(slots, mut policies)| {
            policies[0] = slots;
            policies
        }),
    ]
}

#[tokio::test]
async fn slots_are_taken_and_freed_as_in_memory_and_in_the_core() {
    compare_traces(with_slots(), Variation::Forwards).await;
}

#[tokio::test]
async fn slots_are_taken_and_freed_as_in_the_core_while_the_clock_jumps() {
    compare_traces(with_slots(), Variation::Jumping).await;
}

#[tokio::test]
async fn slots_are_taken_and_freed_as_in_the_core_while_their_number_changes() {
    let numbers = prop::collection::vec(slots_policy("p"), 2..4);
    compare_traces(numbers, Variation::Changed).await;
    let few = prop::collection::vec(few_slots("p"), 2..4);
    compare_traces(few, Variation::Changed).await;
}

/// The settings of a policy change between the calls of a trace. In the first round, all policies
/// have `refund-lapsed`. In the second round, about half of them have it.
#[tokio::test]
async fn lapsed_holds_are_refunded_as_in_the_core_while_policies_change() {
    for share in [1.0, 0.5] {
        let related = Kind::any().prop_flat_map(|kind| related_policies(kind, "p"));
        compare_traces(lapsing(related, share), Variation::Changed).await;
    }
}

/// After a hold, a refill returns a part of the hold to the bucket, and a later charge possibly
/// uses the refilled tokens. The settlement must not refund these tokens again.
#[tokio::test]
async fn a_hold_of_a_bucket_is_settled_as_in_the_core() {
    for text in ["p: token-bucket 3/7s burst 10", "p: token-bucket 1/4s burst 10 by-interval"] {
        let bucket = policy(text);
        let clock = ManualClock::new(Timestamp::from_micros(START));
        let store = store_at(&clock).await;
        let model = ModelStore::keeping_all(clock.clone());
        for seconds in [0, 3, 4, 5, 9, 13, 22, 24] {
            for (used, later, actual) in [(1, 0, 4), (1, 1, 3), (1, 9, 0), (0, 3, 5), (4, 5, 7)] {
                let subject = format!("{seconds} {used} {later} {actual}");
                let held = Charge::new(&bucket, &subject).cost(6);
                let id = CallId::new(&subject, HOUR);
                for (passes, cost, operation) in [
                    (0, 1, Operation::Acquire),
                    (1, 6, Operation::Hold),
                    (seconds, used, Operation::Acquire),
                    (later, actual, Operation::Settle),
                ] {
                    clock.advance(Duration::from_secs(passes));
                    let charges = [held.cost(cost)];
                    let call = Call::new(operation, &charges);
                    let call = if operation.is_of_hold() { call.with_id(id) } else { call };
                    let expected = summary(&model.decide(call).await);
                    assert_eq!(summary(&store.decide(call).await), expected, "{text} {call:?}");
                }
            }
        }
    }
}

/// A lapsed hold is refunded as of the time of its lapse. The time at which a call notices the
/// lapse, and the order of the holds, have no effect.
#[tokio::test]
async fn a_lapsed_hold_is_refunded_as_of_its_lapse_and_settled_as_in_the_core() {
    for text in [
        "p: fixed-window 20/100s",
        "p: fixed-window 20/100s anchored",
        "p: sliding-log 20/100s",
        "p: sliding-log 20/100s grain 7s",
        "p: sliding-counter 20/100s",
        "p: token-bucket 9/100s burst 20",
        "p: token-bucket 7/30s burst 20 by-interval",
    ] {
        let (policy, other) = (policy(text).refund_lapsed(), policy(text));
        let clock = ManualClock::new(Timestamp::from_micros(START));
        let store = store_at(&clock).await;
        let model = ModelStore::keeping_all(clock.clone());
        for (first, second) in [(30, 60), (60, 30), (70, 71), (90, 89)] {
            for (taken_after, settled_after) in [(0, 80), (31, 61), (65, 100), (71, 110), (95, 130)]
            {
                for (spent, actual) in [(0, 0), (2, 3), (6, 4)] {
                    let subject = format!("{first} {taken_after} {spent}");
                    let charge = [Charge::new(&policy, &subject)];
                    let other_charge = [Charge::new(&other, &subject)];
                    let ids = ["a", "b"].map(|id| format!("{subject} {id}"));
                    let mut time = 0;
                    for (at, operation, id, cost) in [
                        (0, Operation::Acquire, None, 1),
                        (1, Operation::Hold, Some((&ids[0], first)), 5),
                        (2, Operation::Hold, Some((&ids[1], second)), 7),
                        (2, Operation::SettleSoFar, Some((&ids[0], first)), spent),
                        (20, Operation::Extend, Some((&ids[0], 5)), 5),
                        (20, Operation::Peek, None, 9),
                        (taken_after.max(20), Operation::Acquire, None, 2),
                        (settled_after, Operation::Peek, None, 15),
                        (settled_after, Operation::Settle, Some((&ids[0], first)), actual),
                        (settled_after, Operation::Settle, Some((&ids[1], second)), 1),
                        (settled_after, Operation::Acquire, None, 30),
                    ] {
                        clock.advance(Duration::from_secs(at - time));
                        time = at;
                        let charges = [charge[0].cost(cost)];
                        let call = Call::new(operation, &charges);
                        let id = id.map(|(id, ttl)| CallId::new(id, Duration::from_secs(ttl)));
                        let call = id.map_or(call, |id| call.with_id(id));
                        let expected = summary(&model.decide(call).await);
                        assert_eq!(summary(&store.decide(call).await), expected, "{at} {call:?}");
                        let peek = Call::new(Operation::Peek, &other_charge);
                        let expected = summary(&model.decide(peek).await);
                        assert_eq!(summary(&store.decide(peek).await), expected, "{at} {call:?}");
                    }
                }
            }
        }
    }
}

/// The clock steps back after a hold has lapsed or expired. If a call had already written the
/// state, the hold stays refunded or removed. If calls had only read the state, the hold is as it
/// was before the lapse or expiry, as in the core.
#[tokio::test]
async fn a_lapse_stays_refunded_if_a_call_wrote_the_state() {
    let policy = policy("p: fixed-window 9/1d anchored block 5s refund-lapsed");
    let operations = [
        (Operation::Peek, 1),
        (Operation::Acquire, 1),
        (Operation::Acquire, 9),
        (Operation::Acquire, 10),
        (Operation::Charge, 0),
        (Operation::Charge, 1),
        (Operation::Refund, 0),
        (Operation::Refund, 9),
        (Operation::Undo { at: Timestamp::from_micros(1) }, 1),
        (Operation::Block { span: Duration::ZERO }, 1),
        (Operation::Block { span: Duration::from_secs(1) }, 1),
        (Operation::BlockAtLeast { span: Duration::ZERO }, 1),
        (Operation::Reset, 1),
        (Operation::Extend, 5),
        (Operation::SettleSoFar, 1),
        (Operation::Settle, 4),
    ];
    let clock = ManualClock::new(Timestamp::from_micros(START));
    let store = store_at(&clock).await;
    let model = ModelStore::keeping_all(clock.clone());
    for ((operation, cost), is_expired) in
        operations.into_iter().flat_map(|operation| [(operation, false), (operation, true)])
    {
        let subject = format!("{operation:?} {cost} {is_expired}");
        let charge = Charge::new(&policy, &subject);
        let both = async |operation: Operation, id: &str, seconds: u64, cost: u64| {
            let (id, charge) = (format!("{subject} {id}"), [charge.cost(cost)]);
            let id = CallId::new(&id, Duration::from_secs(seconds));
            let call = Call::new(operation, &charge);
            let call = if operation.is_of_hold() { call.with_id(id) } else { call };
            let expected = summary(&model.decide(call).await);
            assert_eq!(summary(&store.decide(call).await), expected, "{subject}: {call:?}");
        };
        clock.set(Timestamp::from_micros(START));
        both(Operation::Acquire, "", 0, 1).await;
        both(Operation::Hold, "a", 30, 3).await;
        both(Operation::Hold, "b", 100, 2).await;
        clock.advance(Duration::from_secs(40));
        if is_expired {
            both(Operation::Acquire, "", 0, 1).await; // refunds the lapsed hold
            clock.advance(Duration::from_secs(30));
        }
        both(operation, "b", 100, cost).await;
        clock.set(Timestamp::from_micros(START + 20_000_000));
        both(Operation::Peek, "", 0, 9).await;
        both(Operation::Settle, "a", 30, 1).await;
        both(Operation::Peek, "", 0, 9).await;
    }
}

/// Policies with different rates use the same bucket. A lapsed hold must be refunded by the rate of
/// the policy that wrote the bucket last.
#[tokio::test]
async fn a_lapsed_hold_is_refunded_by_the_rule_that_wrote_the_state_last() {
    let clock = ManualClock::new(Timestamp::from_micros(START));
    let store = store_at(&clock).await;
    let model = ModelStore::keeping_all(clock.clone());
    for suffix in ["burst 30", "burst 30 by-interval"] {
        let [slow, fast] =
            ["1/10s", "2/3s"].map(|rate| policy(&format!("p: token-bucket {rate} {suffix}")));
        let settings = [slow.clone(), fast.clone(), slow.refund_lapsed(), fast.refund_lapsed()];
        for (writer, holder) in (0..4).flat_map(|writer| [(writer, 2), (writer, 3)]) {
            for (number, operation) in [
                Operation::Peek,
                Operation::Acquire,
                Operation::Charge,
                Operation::Refund,
                Operation::AcquireUpTo { min: 1 },
                Operation::Undo { at: Timestamp::from_micros(clock.now().as_micros()) },
                Operation::Hold,
                Operation::Settle,
            ]
            .into_iter()
            .enumerate()
            {
                let subject = format!("{suffix} {writer} {holder} {number}");
                let charge =
                    |setting: usize, cost| [Charge::new(&settings[setting], &subject).cost(cost)];
                let other = format!("{subject} other");
                let both = async |operation: Operation, id: &str, charges: &[Charge<'_>]| {
                    let call = Call::new(operation, charges);
                    let id = CallId::new(id, Duration::from_secs(60));
                    let call = if operation.is_of_hold() { call.with_id(id) } else { call };
                    let expected = summary(&model.decide(call).await);
                    assert_eq!(summary(&store.decide(call).await), expected, "{subject}: {call:?}");
                };
                both(Operation::Acquire, "", &charge(holder, 8)).await;
                both(Operation::Hold, &subject, &charge(holder, 10)).await;
                if operation == Operation::Settle {
                    both(Operation::Hold, &other, &charge(writer, 2)).await;
                    both(Operation::Acquire, "", &charge(holder, 1)).await;
                }
                clock.advance(Duration::from_secs(10));
                both(operation, &other, &charge(writer, 3)).await;
                clock.advance(Duration::from_secs(50));
                for setting in 0..4 {
                    both(Operation::Peek, "", &charge(setting, 29)).await;
                }
                both(Operation::Settle, &subject, &charge(holder, 1)).await;
                both(Operation::Peek, "", &charge(holder, 29)).await;
            }
        }
    }
}

/// If a server evicts the record of a hold, the id can be used for another hold. The state then
/// contains both holds. The older hold cannot be settled any more, and lapses.
#[tokio::test]
async fn a_hold_whose_record_is_evicted_is_replaced_by_another_with_its_id() {
    let (clock, prefix) = (ManualClock::new(Timestamp::from_micros(START)), fresh_prefix());
    let store = builder_with(&prefix).await.clock(clock.clone()).build().unwrap();
    let mut client = client().await;
    let lapses = policy("p: fixed-window 99/1d anchored refund-lapsed");
    let charge = [Charge::new(&lapses, "s").cost(5)];
    let _ = decide(&store, Operation::Hold, "id", &charge).await.unwrap();
    client.call(&[&b"DEL"[..], &Keys::new(&prefix).id_key(&charge[0], b"id")]).await.unwrap();
    clock.advance(Duration::from_secs(60));
    let _ = decide(&store, Operation::Hold, "id", &[charge[0].cost(3)]).await.unwrap();
    assert_eq!(used(&store, &lapses).await, 8);
    let _ = decide(&store, Operation::SettleSoFar, "id", &[charge[0].cost(1)]).await.unwrap();
    clock.advance(HOUR - Duration::from_secs(60));
    assert_eq!(used(&store, &lapses).await, 3);
    clock.advance(Duration::from_secs(60));
    assert_eq!(used(&store, &lapses).await, 1);
    let settled = decide(&store, Operation::Settle, "id", &[charge[0].cost(2)]).await.unwrap();
    assert_eq!(settled.amounts(), [1]);
    assert_eq!(used(&store, &lapses).await, 2);
}

/// If a log is a list, a settlement finds the record of the hold only among the newest 128 records.
#[tokio::test]
async fn a_hold_of_a_long_log_is_settled_as_in_the_core() {
    for text in
        ["p: sliding-log 1000/1h", "p: sliding-log 1000/1h grain 10s", "p: sliding-log 99/1h"]
    {
        for after in [0, 1, 13, 14, 15, 126, 127, 128, 200] {
            let clock = ManualClock::new(Timestamp::from_micros(START));
            let store = store_at(&clock).await;
            let model = ModelStore::keeping_all(clock.clone());
            let log = policy(text);
            let charges = [Charge::new(&log, "s").cost(5)];
            let both = async |call: Call<'_>| {
                clock.advance(Duration::from_millis(1_700));
                let expected = summary(&model.decide(call).await);
                assert_eq!(summary(&store.decide(call).await), expected, "{text} {after} {call:?}");
            };
            for operation in
                [Operation::Settle, Operation::SettleSoFar, Operation::HoldUpTo { min: 2 }]
            {
                let id = CallId::new("id", HOUR);
                let other = format!("{operation:?}");
                let other_id = CallId::new(&other, HOUR);
                let single = [charges[0].cost(1)];
                for _ in 0..30 {
                    both(Call::acquire(&single)).await;
                }
                both(Call::new(Operation::Hold, &charges).with_id(id)).await;
                for _ in 0..after {
                    both(Call::acquire(&single)).await;
                }
                for cost in [7, 3] {
                    both(Call::new(operation, &[charges[0].cost(cost)]).with_id(other_id)).await;
                    both(Call::new(operation, &[charges[0].cost(cost)]).with_id(id)).await;
                }
                both(Call::new(Operation::Settle, &single).with_id(id)).await;
                both(Call::new(Operation::Settle, &single).with_id(other_id)).await;
                both(Call::new(Operation::Reset, &single)).await;
                clock.advance(2 * HOUR);
            }
        }
    }
}

#[tokio::test]
async fn a_settlement_whose_answer_is_lost_is_executed_once() {
    let redis = Redis::start().await.unwrap();
    let direct = patient_store(&redis.url());
    let (wide, log) =
        (policy("wide: fixed-window 100000/1d anchored"), policy("log: sliding-log 1000/1d"));
    let modes = [
        Mode::LoseAnswer(End::Close),
        Mode::LoseAnswer(End::Reset),
        Mode::HalveAnswer(End::Reset),
        Mode::SwallowAnswers,
    ];
    for (number, mode) in modes.into_iter().enumerate() {
        let proxy = Proxy::start(redis.port()).await.unwrap();
        let store = store(&proxy.url());
        let held = [Charge::new(&wide, "s").cost(10), Charge::new(&log, "s").cost(20)];
        for (case, range) in [0..1, 1..2, 0..2].into_iter().enumerate() {
            let id = format!("{number} {case}");
            let before = [used(&direct, &wide).await, used(&direct, &log).await];
            for (operation, costs, total) in [
                (Operation::Hold, [10, 20], [10, 20]),
                (Operation::SettleSoFar, [13, 5], [13, 20]),
                (Operation::Extend, [10, 20], [13, 20]),
                (Operation::SettleSoFar, [15, 21], [15, 21]),
                (Operation::Settle, [15, 4], [15, 5]),
            ] {
                let charges = [held[0].cost(costs[0]), held[1].cost(costs[1])];
                let charges = &charges[range.clone()];
                proxy.set(mode).await.unwrap();
                for _ in 0..2 {
                    let error = decide(&store, operation, &id, charges).await.unwrap_err();
                    assert!(
                        matches!(error.kind(), ErrorKind::Timeout | ErrorKind::Unavailable),
                        "{error}"
                    );
                }
                proxy.set(Mode::Pass).await.unwrap();
                let again = async || decide(&store, operation, &id, charges).await.ok();
                let first = eventually(SOON, "an answer", again).await.unwrap();
                if matches!(operation, Operation::Hold | Operation::Settle) {
                    assert_eq!(decide(&direct, operation, &id, charges).await.unwrap(), first);
                }
                let mut expected = before;
                range.clone().for_each(|index| expected[index] += total[index]);
                let after = [used(&direct, &wide).await, used(&direct, &log).await];
                assert_eq!(after, expected, "{mode:?} {case} {operation:?}");
            }
        }
    }
}

/// A hold is settled by its record on the server, so the settlement does not depend on the process
/// that made the hold.
#[tokio::test]
async fn a_hold_is_settled_after_a_restart_and_a_failover_that_kept_the_data() {
    let (redis, replica) = (Redis::start().await.unwrap(), Redis::start().await.unwrap());
    let (wide, bucket) =
        (policy("wide: fixed-window 99/10d anchored"), policy("b: gcra 1/1d burst 99"));
    let held = [Charge::new(&wide, "s").cost(7), Charge::new(&bucket, "s").cost(9)];
    let actual = [held[0].cost(2), held[1].cost(10)];
    let store_here = store(&redis.url());
    for id in ["a", "b"] {
        assert!(decide(&store_here, Operation::Hold, id, &held).await.unwrap().is_allowed());
    }
    let settle = async |store: &RedisStore, id| {
        let again = async || decide(store, Operation::Settle, id, &actual).await.ok();
        eventually(SOON, "an answer", again).await.unwrap()
    };
    redis.restart(Data::Kept).await.unwrap();
    let first = settle(&store(&redis.url()), "a").await;
    assert_eq!(first.amounts(), [5, 1]);
    assert_eq!(settle(&store_here, "a").await, first);

    replica.replica_of(&redis).await.unwrap();
    redis.kill().await.unwrap();
    replica.command(&["REPLICAOF", "NO", "ONE"]).await.unwrap();
    let store_there = store(&replica.url());
    assert_eq!(settle(&store_there, "a").await, first);
    assert_eq!(settle(&store_there, "b").await.amounts(), [5, 1]);
    assert_eq!([used(&store_there, &wide).await, used(&store_there, &bucket).await], [4, 20]);
}

#[tokio::test]
async fn a_foreign_value_under_the_key_of_a_hold_is_an_error_and_stays_unchanged() {
    let prefix = fresh_prefix();
    let store = builder_with(&prefix).await.build().unwrap();
    let mut client = client().await;
    let (p, q) = (policy("p: gcra 20/2h burst 9"), policy("q: sliding-log 9/1h"));
    let both = [Charge::new(&p, "s").cost(2), Charge::new(&q, "s").cost(3)];
    let operations =
        [Operation::Hold, Operation::Settle, Operation::SettleSoFar, Operation::Extend];
    for charges in [&both[..1], &both[..]] {
        assert!(decide(&store, Operation::Hold, "id", charges).await.unwrap().is_allowed());
        let key = Keys::new(&prefix).id_key(&charges[0], b"id");
        let valid = client.call(&[&b"GET"[..], &key]).await.unwrap();
        let Reply::Bytes(valid) = valid else { panic!("{valid:?}") };
        // Each of these values is the beginning of a valid value.
        let mut values: Vec<Vec<&[u8]>> =
            (0..valid.len()).map(|end| vec![&b"SET"[..], &key, &valid[..end]]).collect();
        values.extend([
            vec![&b"SET"[..], &key, b"42"],
            vec![b"RPUSH", &key, b"a"],
            vec![b"HSET", &key, b"a", b"b"],
        ]);
        for value in values {
            client.call(&[&b"DEL"[..], &key]).await.unwrap();
            client.call(&value).await.unwrap();
            let before = server().await.dump(&prefix).await.unwrap();
            for operation in operations {
                let error = decide(&store, operation, "id", charges).await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::ForeignValue, "{operation:?}: {error}");
            }
            assert_eq!(server().await.dump(&prefix).await.unwrap(), before, "{value:?}");
        }
        client.call(&[&b"DEL"[..], &key]).await.unwrap();
    }
}

/// If the state of any charge is foreign, the whole settlement fails and changes nothing.
#[tokio::test]
async fn a_settlement_on_a_foreign_state_changes_nothing() {
    let prefix = fresh_prefix();
    let store = builder_with(&prefix).await.build().unwrap();
    let mut client = client().await;
    for policy in policies() {
        let other = crate::common::policy("z: fixed-window 20/2h");
        let held = [Charge::new(&other, "s").cost(4), Charge::new(&policy, "s").cost(4)];
        for charges in [&held[1..], &held[..]] {
            let id = format!("{policy} {}", charges.len());
            assert!(decide(&store, Operation::Hold, &id, charges).await.unwrap().is_allowed());
            let key = Keys::new(&prefix).key(&held[1]);
            let copy = [&key[..], b"copy"].concat();
            client.call(&[&b"COPY"[..], &key, &copy]).await.unwrap();
            client.call(&[&b"SET"[..], &key, b"foreign"]).await.unwrap();
            let before = server().await.dump(&prefix).await.unwrap();
            for (operation, cost) in [
                (Operation::Settle, 1),
                (Operation::Settle, 9),
                (Operation::SettleSoFar, 9),
                (Operation::Extend, 1),
            ] {
                let charges: Vec<_> = charges.iter().map(|charge| charge.cost(cost)).collect();
                let error = decide(&store, operation, &id, &charges).await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::ForeignValue, "{id} {operation:?}: {error}");
            }
            assert_eq!(server().await.dump(&prefix).await.unwrap(), before);
            client.call(&[&b"RENAME"[..], &copy, &key]).await.unwrap();
            let actual: Vec<_> = charges.iter().map(|charge| charge.cost(1)).collect();
            let settled = decide(&store, Operation::Settle, &id, &actual).await.unwrap();
            assert!(settled.amounts().iter().all(|&amount| amount == 3), "{id}: {settled:?}");
        }
    }
}

#[tokio::test]
async fn a_server_without_memory_makes_and_settles_no_hold() {
    let redis = Redis::start().await.unwrap();
    let store = patient_store(&redis.url());
    let (wide, log) = (policy("w: fixed-window 99/1d"), policy("l: sliding-log 500/1d"));
    let held = [Charge::new(&wide, "s").cost(9), Charge::new(&log, "s").cost(9)];
    assert!(decide(&store, Operation::Hold, "id", &held).await.unwrap().is_allowed());
    redis.command(&["CONFIG", "SET", "maxmemory", "1"]).await.unwrap();
    let actual = [held[0].cost(2), held[1].cost(11)];
    for (operation, id) in [
        (Operation::Hold, "other"),
        (Operation::SettleSoFar, "id"),
        (Operation::Settle, "id"),
        (Operation::Extend, "id"),
    ] {
        let error = decide(&store, operation, id, &actual).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{operation:?}: {error}");
    }
    assert_eq!([used(&store, &wide).await, used(&store, &log).await], [9, 9]);
    redis.command(&["CONFIG", "SET", "maxmemory", "0"]).await.unwrap();
    let first = decide(&store, Operation::Settle, "id", &actual).await.unwrap();
    assert_eq!(first.amounts(), [7, 2]);
    redis.command(&["CONFIG", "SET", "maxmemory", "1"]).await.unwrap();
    assert_eq!(decide(&store, Operation::Settle, "id", &actual).await.unwrap(), first);
    redis.command(&["SCRIPT", "FLUSH"]).await.unwrap();
    assert_eq!(decide(&store, Operation::Settle, "id", &actual).await.unwrap(), first);
    assert_eq!([used(&store, &wide).await, used(&store, &log).await], [2, 11]);
}

/// By the server's clock, the key of the hold lives for twice the time to live of the hold. An
/// extension makes the key live longer, and a settlement does not.
#[tokio::test]
async fn the_key_of_a_hold_expires_by_itself() {
    let prefix = fresh_prefix();
    let store = builder_with(&prefix).await.build().unwrap();
    let mut client = client().await;
    for (number, policy) in policies().iter().enumerate() {
        let both = [Charge::new(policy, "s"), Charge::new(policy, "t")];
        for charges in [&both[..1], &both[..]] {
            let id = format!("{number} {}", charges.len());
            let key = Keys::new(&prefix).id_key(&charges[0], id.as_bytes());
            for (operation, seconds, lives) in [
                (Operation::Hold, 90, 180),
                (Operation::SettleSoFar, 900, 180),
                (Operation::Extend, 45, 180),
                (Operation::Extend, 200, 400),
                (Operation::Extend, 100, 400),
                (Operation::Settle, 900, 400),
            ] {
                let id = CallId::new(&id, Duration::from_secs(seconds));
                let call = Call::new(operation, charges).with_id(id);
                assert!(store.decide(call).await.unwrap().is_allowed());
                let life = client.call(&[&b"PTTL"[..], &key]).await.unwrap().text();
                let life: u64 = life.parse().unwrap();
                assert!(
                    (lives * 1_000 - 20_000..=lives * 1_000 + 1).contains(&life),
                    "{operation:?}: {life}"
                );
            }
            client.call(&[&b"PEXPIRE"[..], &key, b"1"]).await.unwrap();
            let is_gone = async || {
                let exists = server().await.command(&[&b"EXISTS"[..], &key]).await.unwrap();
                (exists == Reply::Integer(0)).then_some(())
            };
            eventually(SOON, "the key to expire", is_gone).await.unwrap();
            let error = decide(&store, Operation::Settle, &id, charges).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::UnknownHold);
        }
    }
}

#[tokio::test]
async fn a_batch_with_holds_is_decided_in_order() {
    let prefix = fresh_prefix();
    let store = builder_with(&prefix).await.build().unwrap();
    let p = policy("p: fixed-window 99/1d");
    let (one, ten, four) =
        ([Charge::new(&p, "s")], [Charge::new(&p, "s").cost(10)], [Charge::new(&p, "s").cost(4)]);
    let id = CallId::new("id", HOUR);
    let plain = Call::acquire(&one);
    let hold = Call::new(Operation::Hold, &ten).with_id(id);
    let settle = Call::new(Operation::Settle, &four).with_id(id);
    let calls = [plain, hold, plain, plain, hold, settle, plain, settle, hold];
    let remaining = |answer: Result<Decision, Error>| answer.unwrap().verdicts()[0].remaining();
    let answers = store.decide_many(&calls).await.into_iter().map(remaining);
    assert_eq!(answers.collect::<Vec<_>>(), [98, 88, 87, 86, 88, 92, 91, 92, 88]);
}

#[tokio::test]
async fn a_long_log_with_refund_lapsed_is_unsupported() {
    let store = builder_with(&fresh_prefix()).await.build().unwrap();
    let long = policy("p: sliding-log 129/1d refund-lapsed");
    let message = store.supports(&long).unwrap_err().to_string();
    assert!(message.contains("at most 128 records") && message.contains("129"), "{message}");
    let charges = [Charge::new(&long, "s").cost(10)];
    let answer = decide(&store, Operation::Hold, "id", &charges).await;
    assert_eq!(answer.unwrap_err().kind(), ErrorKind::Unsupported);
    assert_eq!(used(&store, &policy("p: sliding-log 129/1d")).await, 0);
    for text in
        ["p: sliding-log 128/1d refund-lapsed", "p: sliding-log 9000/1d grain 15m refund-lapsed"]
    {
        assert!(store.supports(&policy(text)).is_ok(), "{text}");
    }
}

/// All records of a list have expired, so the next hold begins a log that is a string. The script
/// must remove the list before it writes the state with the hold.
#[tokio::test]
async fn a_hold_replaces_a_list_whose_records_have_expired() {
    let (long, short) =
        (policy("p: sliding-log 500/1h"), policy("p: sliding-log 99/1h refund-lapsed"));
    let clock = ManualClock::new(Timestamp::from_micros(START));
    let store = store_at(&clock).await;
    let long = [Charge::new(&long, "s")];
    assert!(store.decide(Call::acquire(&long)).await.unwrap().is_allowed());
    clock.advance(2 * HOUR);
    let short = [Charge::new(&short, "s")];
    let hold = Call::new(Operation::Hold, &short).with_id(CallId::new("id", HOUR));
    assert_eq!(store.decide(hold).await.unwrap().verdicts()[0].remaining(), 98);
    assert_eq!(
        store.decide(Call::new(Operation::Peek, &short)).await.unwrap().unspent(),
        [Some(1)]
    );
}

/// A log stays a list if a policy with a lower limit replaces the policy that created the log. A
/// hold on such a list lapses too, but the waits of denied calls ignore the lapse.
#[tokio::test]
async fn a_hold_on_a_list_of_an_earlier_policy_lapses() {
    let (long, short) =
        (policy("p: sliding-log 500/1h"), policy("p: sliding-log 99/1h refund-lapsed"));
    for (before, after) in [(0, 0), (0, 3), (20, 0), (20, 3), (90, 3), (60, 30)] {
        let clock = ManualClock::new(Timestamp::from_micros(START));
        let store = store_at(&clock).await;
        let model = ModelStore::keeping_all(clock.clone());
        let remaining = async |call: Call<'_>| {
            clock.advance(Duration::from_secs(1));
            let expected = model.decide(call).await.unwrap();
            let answer = store.decide(call).await.unwrap();
            assert_eq!(answer.amounts(), expected.amounts(), "{before} {after} {call:?}");
            let remaining = |decision: &Decision| decision.verdicts()[0].remaining();
            assert_eq!(remaining(&answer), remaining(&expected), "{before} {after} {call:?}");
            assert!(answer.retry_after() >= expected.retry_after(), "{before} {after} {call:?}");
            assert_eq!(answer.unspent(), expected.unspent(), "{before} {after} {call:?}");
        };
        let id = CallId::new("id", Duration::from_secs(100));
        let (long_charge, short_charge) = ([Charge::new(&long, "s")], [Charge::new(&short, "s")]);
        remaining(Call::acquire(&long_charge)).await;
        for _ in 0..before {
            remaining(Call::acquire(&long_charge)).await;
        }
        let (held, other) = ([short_charge[0].cost(5)], CallId::new("other", HOUR));
        remaining(Call::new(Operation::Hold, &long_charge).with_id(other)).await;
        remaining(Call::new(Operation::Hold, &held).with_id(id)).await;
        remaining(Call::new(Operation::SettleSoFar, &[held[0].cost(2)]).with_id(id)).await;
        for _ in 0..after {
            remaining(Call::acquire(&long_charge)).await;
        }
        let costly = [98, 95, 80, 50].map(|cost| [short_charge[0].cost(cost)]);
        let peeks = costly.iter().chain([&short_charge, &long_charge]);
        for charges in peeks {
            remaining(Call::new(Operation::Peek, charges)).await;
        }
        clock.advance(Duration::from_secs(100));
        if after == 3 {
            remaining(Call::new(Operation::Extend, &long_charge).with_id(other)).await;
        }
        for call in [
            Call::new(Operation::Peek, &short_charge),
            Call::new(Operation::Peek, &long_charge),
            Call::acquire(&long_charge),
            Call::new(Operation::Settle, &[held[0].cost(4)]).with_id(id),
            Call::new(Operation::Refund, &[held[0].cost(200)]),
            Call::acquire(&long_charge),
        ] {
            remaining(call).await;
        }
    }
}

/// A state lives until its holds expire, because a later settlement needs the refunds that the
/// state has recorded.
#[tokio::test]
async fn a_state_lives_as_long_as_the_holds_on_it() {
    let prefix = fresh_prefix();
    let store = builder_with(&prefix).await.build().unwrap();
    let mut client = client().await;
    for text in [
        "a: fixed-window 20/2s",
        "b: fixed-window 20/2s anchored",
        "d: sliding-log 20/2s",
        "f: sliding-counter 20/2s",
        "g: token-bucket 20/2s",
        "h: token-bucket 20/2s by-interval",
    ] {
        let policy = policy(text).refund_lapsed();
        let key = Keys::new(&prefix).key(&Charge::new(&policy, "s"));
        let mut lives = async |seconds: u64, after: &str| {
            let life = client.call(&[&b"PTTL"[..], &key]).await.unwrap().text();
            let life: u64 = life.parse().unwrap();
            // A key can live up to a quarter longer than necessary.
            let range = (seconds * 1_000).saturating_sub(20_000)..=seconds * 1_250 + 1;
            assert!(range.contains(&life), "{text} after {after}: {life}");
        };
        let with = async |operation, id: &str, seconds, cost| {
            let charge = [Charge::new(&policy, "s").cost(cost)];
            let call = Call::new(operation, &charge);
            let id = format!("{text} {id}");
            let call = call.with_id(CallId::new(&id, Duration::from_secs(seconds)));
            assert!(store.decide(call).await.unwrap().is_allowed(), "{operation:?}");
        };
        with(Operation::Hold, "a", 100, 2).await;
        lives(200, "a hold").await;
        assert!(
            store.decide(Call::acquire(&[Charge::new(&policy, "s")])).await.unwrap().is_allowed()
        );
        lives(200, "an acquire").await;
        with(Operation::Hold, "b", 50, 2).await;
        lives(200, "a shorter hold").await;
        with(Operation::Extend, "b", 300, 2).await;
        lives(600, "an extension").await;
        with(Operation::SettleSoFar, "b", 300, 3).await;
        lives(600, "a settlement so far").await;
        let subject = [Charge::new(&policy, "s")];
        let block = Operation::Block { span: Duration::from_secs(1_000) };
        let _ = store.decide(Call::new(block, &subject)).await.unwrap();
        lives(1_000, "a block").await;
        let is_gone = async || {
            let exists = server().await.command(&[&b"EXISTS"[..], &key]).await.unwrap();
            exists == Reply::Integer(0)
        };
        let _ = store.decide(Call::new(Operation::Reset, &subject)).await.unwrap();
        assert!(is_gone().await, "{text}");
        with(Operation::Hold, "c", 100, 2).await;
        with(Operation::Settle, "c", 100, 0).await;
        assert!(is_gone().await, "{text}");
    }
}

/// A state with an overage takes longer to recover, so its key must live longer too.
#[tokio::test]
async fn a_settled_state_lives_for_as_long_as_it_matters() {
    let prefix = fresh_prefix();
    let store = builder_with(&prefix).await.build().unwrap();
    let mut client = client().await;
    for (number, text) in [
        "a: fixed-window 20/100s anchored",
        "b: sliding-log 20/100s",
        "c: sliding-counter 20/100s",
        "d: token-bucket 20/100s",
        "e: token-bucket 20/100s by-interval",
        "f: gcra 20/100s burst 20",
    ]
    .into_iter()
    .enumerate()
    {
        let policy = policy(text);
        for (held, actual) in [(1, 9), (9, 1), (9, 0), (5, 5)] {
            let subject = format!("{held} {actual}");
            let charge = [Charge::new(&policy, &subject).cost(held)];
            let id = format!("{number} {subject}");
            assert!(decide(&store, Operation::Hold, &id, &charge).await.unwrap().is_allowed());
            let settled = decide(&store, Operation::Settle, &id, &[charge[0].cost(actual)]).await;
            let matters = settled.unwrap().verdicts()[0].reset_after();
            let key = Keys::new(&prefix).key(&charge[0]);
            let life = client.call(&[&b"PTTL"[..], &key]).await.unwrap().text();
            let life: i64 = life.parse().unwrap();
            if actual == 0 {
                assert_eq!(life, -2, "{text}: the state was removed");
                continue;
            }
            // The test reads the life after the call, so the life can be up to a second shorter.
            let matters = i64::try_from(matters.as_millis()).unwrap();
            assert!(life + 1_000 >= matters && life <= 250_000, "{text} {subject}: {life}");
        }
    }
}

/// A state with holds is a foreign value for every operation if it is cut off or changed. If the
/// changed bytes are valid, the scripts decide with the changed bytes.
#[tokio::test]
async fn a_foreign_value_with_holds_is_an_error_and_stays_unchanged() {
    let prefix = fresh_prefix();
    let store = builder_with(&prefix).await.build().unwrap();
    let mut client = client().await;
    let texts = [
        "p: gcra 20/2h burst 9",
        "p: sliding-log 9/1h",
        "p: fixed-window 9/1h",
        "p: sliding-counter 9/1h",
    ];
    for (place, text) in texts.into_iter().enumerate() {
        let (plain, lapses) = (policy(text), policy(text).refund_lapsed());
        let (charge, plain_charge) =
            ([Charge::new(&lapses, "s").cost(2)], [Charge::new(&plain, "s")]);
        let key = Keys::new(&prefix).key(&charge[0]);
        for id in ["a", "b"] {
            let id = format!("{text} {id}");
            assert!(decide(&store, Operation::Hold, &id, &charge).await.unwrap().is_allowed());
        }
        let members =
            client.call(&[&b"ZRANGE"[..], &key, b"0", b"-1", b"WITHSCORES"]).await.unwrap();
        let Reply::List(members) = members else { panic!("{members:?}") };
        let members: Vec<Vec<u8>> = members
            .into_iter()
            .map(|member| match member {
                Reply::Bytes(bytes) => bytes,
                other => panic!("{other:?}"),
            })
            .collect();
        let [hold, lapse, other_hold, other_lapse, state, infinite] = &members[..] else {
            panic!("{members:?}")
        };
        assert_eq!(infinite, b"inf");
        let mut put = async |state: &[u8], hold: &[u8]| {
            client.call(&[&b"DEL"[..], &key]).await.unwrap();
            let add = [&b"ZADD"[..], &key, lapse, hold, other_lapse, other_hold, b"+inf", state];
            client.call(&add).await.unwrap();
        };
        let id = format!("{text} a");
        let calls = [
            Call::acquire(&charge),
            Call::acquire(&plain_charge),
            Call::new(Operation::Refund, &charge),
            Call::new(Operation::Peek, &plain_charge),
            Call::new(Operation::Settle, &charge).with_id(CallId::new(&id, HOUR)),
            Call::new(Operation::Extend, &charge).with_id(CallId::new(&id, HOUR)),
        ];
        let last = state.len() - 1;
        let mut states: Vec<Vec<u8>> = (0..state.len()).map(|end| state[..end].to_vec()).collect();
        // The changed values have another first or last byte, an unknown rule, or a number 0 that
        // would cause a division by 0.
        for (index, byte) in [(last, 0x9b), (last - 90, 0), (last - 90, 8), (0, 0x8f), (0, 0xd4)] {
            let mut changed = state.clone();
            changed[index] = byte;
            states.push(changed);
        }
        let mut changed = state.clone();
        changed[last - 89..last - 82].fill(0);
        states.push(changed);
        for state in states {
            put(&state, hold).await;
            let before = server().await.dump(&prefix).await.unwrap();
            for call in calls {
                let error = store.decide(call).await.unwrap_err();
                let kind = error.kind();
                assert_eq!(kind, ErrorKind::ForeignValue, "{text} {call:?} {state:?}: {error}");
            }
            for answer in store.decide_many(&calls[..4]).await {
                assert_eq!(answer.unwrap_err().kind(), ErrorKind::ForeignValue, "{text} {state:?}");
            }
            assert_eq!(server().await.dump(&prefix).await.unwrap(), before, "{text} {state:?}");
        }
        // If any byte of the state or of a hold is changed, the store must return an answer, and
        // the script must not break.
        let mut changed: Vec<(Vec<u8>, Vec<u8>)> = vec![];
        // The test writes one of four bytes at each index. Over the four policies, each index gets
        // all four bytes.
        let byte = |index: usize| [0, 1, 0x7f, 0xff][(index + place) % 4];
        for index in 0..state.len() {
            let mut state = state.clone();
            state[index] = byte(index);
            changed.push((state, hold.clone()));
        }
        for index in 0..hold.len() {
            let mut hold = hold.clone();
            hold[index] = byte(index);
            changed.push((state.clone(), hold));
        }
        changed.extend((0..hold.len()).map(|end| (state.clone(), hold[..end].to_vec())));
        for (state, hold) in changed {
            for call in calls {
                put(&state, &hold).await;
                match store.decide(call).await {
                    Ok(_) => {}
                    Err(error) => assert!(
                        !matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Timeout),
                        "{text} {state:?} {hold:?} {call:?}: {error}"
                    ),
                }
            }
        }
        client.call(&[&b"DEL"[..], &key]).await.unwrap();
    }
}

/// Guards against a defect: the record of a hold contained all open holds of its state. The memory
/// grew with the square of the number of holds. With more than 1,057 open holds, no settlement
/// could be read.
#[tokio::test]
async fn b99_the_record_of_a_hold_does_not_grow_with_other_holds() {
    let prefix = fresh_prefix();
    let store = builder_with(&prefix).await.build().unwrap();
    let mut client = client().await;
    for text in ["p: fixed-window 9000/1d refund-lapsed", "p: token-bucket 9000/1d refund-lapsed"] {
        let policy = policy(&format!("{text} max-open-holds 1500"));
        let charge = [Charge::new(&policy, "s").cost(2)];
        let mut sizes = vec![];
        for number in 0..1_200 {
            let id = format!("{text} {number:04}");
            assert!(decide(&store, Operation::Hold, &id, &charge).await.unwrap().is_allowed());
            if number % 400 == 399 {
                let key = Keys::new(&prefix).id_key(&charge[0], id.as_bytes());
                let settled = decide(&store, Operation::Settle, &id, &[charge[0].cost(1)]).await;
                assert_eq!(settled.unwrap().amounts(), [1]);
                sizes.push(client.call(&[&b"STRLEN"[..], &key]).await.unwrap());
            }
        }
        assert!(sizes.iter().all(|size| *size == sizes[0]), "{sizes:?}");
        assert!(matches!(sizes[0], Reply::Integer(..250)), "{sizes:?}");
        let id = format!("{text} 0000");
        assert!(decide(&store, Operation::Settle, &id, &charge).await.is_ok());
        assert_eq!(used(&store, &policy).await, 2 * 1_197 + 3);
    }
}

#[tokio::test]
async fn the_number_of_open_holds_is_bounded_as_in_the_core() {
    let clock = ManualClock::new(Timestamp::from_micros(START));
    let store = store_at(&clock).await;
    let model = ModelStore::keeping_all(clock.clone());
    let policies = [
        policy("p: fixed-window 99/1d refund-lapsed max-open-holds 3"),
        policy("q: sliding-log 99/1d refund-lapsed max-open-holds 2"),
        policy("r: token-bucket 99/1d"),
    ];
    let charges = policies.each_ref().map(|policy| Charge::new(policy, "s").cost(2));
    let both = async |operation, id: u8, charges: &[Charge<'_>]| {
        let id = [id];
        let call = Call::new(operation, charges).with_id(CallId::new(&id, HOUR));
        let expected = model.decide(call).await;
        assert_eq!(summary(&store.decide(call).await), summary(&expected), "{call:?}");
        expected.map(|decision| decision.is_allowed()).map_err(|error| error.kind())
    };
    let too_many = Err(ErrorKind::TooManyHolds);
    for id in 0..2 {
        assert_eq!(both(Operation::Hold, id, &charges).await, Ok(true));
    }
    assert_eq!(
        both(Operation::Hold, 2, &charges).await,
        too_many,
        "q has the maximum number of open holds"
    );
    assert_eq!(both(Operation::HoldUpTo { min: 1 }, 2, &charges[1..2]).await, too_many);
    assert_eq!(both(Operation::Hold, 2, &charges[..1]).await, Ok(true));
    assert_eq!(
        both(Operation::Hold, 3, &charges[..1]).await,
        too_many,
        "p has the maximum number of open holds"
    );
    // The states of `p` and `q` have the maximum number of open holds. This call adds no hold to
    // them: its charge under `p` costs 0, and its charge under `q` is check-only.
    let more = [charges[0].cost(0), charges[1].check_only(), charges[2]];
    assert_eq!(both(Operation::Hold, 4, &more).await, Ok(true));
    // A repeated call gets the same answer again. Settled and lapsed holds do not count as open.
    assert_eq!(both(Operation::Hold, 0, &charges).await, Ok(true));
    assert_eq!(both(Operation::Settle, 0, &charges).await, Ok(true));
    assert_eq!(both(Operation::Hold, 5, &charges).await, Ok(true));
    assert_eq!(both(Operation::Hold, 6, &charges).await, too_many);
    clock.advance(HOUR);
    assert_eq!(both(Operation::Hold, 6, &charges).await, Ok(true));
    let one = policy("s: fixed-window 99/1d refund-lapsed max-open-holds 1");
    let charge = [Charge::new(&one, "s")];
    assert_eq!(both(Operation::Hold, 7, &charge).await, Ok(true));
    assert_eq!(both(Operation::Hold, 8, &charge).await, too_many, "s has one open hold");
    // A shadow never refuses a call.
    let shadow = policy("t: fixed-window 99/1d refund-lapsed max-open-holds 1 shadow");
    let charges = [Charge::new(&shadow, "s"), Charge::new(&policies[2], "s")];
    for id in 9..12 {
        assert_eq!(both(Operation::Hold, id, &charges).await, Ok(true));
    }
    assert_eq!(both(Operation::Settle, 10, &charges).await, Ok(true));
}

/// The batch contains policies with and without `refund-lapsed`.
#[tokio::test]
async fn a_batch_on_states_with_holds_is_decided_as_in_the_core() {
    let clock = ManualClock::new(Timestamp::from_micros(START));
    let store = store_at(&clock).await;
    let model = ModelStore::keeping_all(clock.clone());
    let texts = ["p: fixed-window 9/1h", "q: token-bucket 9/1h", "r: sliding-log 9/1h"];
    let policies = texts.map(policy);
    let lapsing = policies.clone().map(Policy::refund_lapsed);
    let charges: Vec<_> =
        policies.iter().chain(&lapsing).map(|policy| [Charge::new(policy, "s")]).collect();
    let held: Vec<_> =
        lapsing.iter().map(|policy| Charge::new(policy, "s").tenant("").cost(4)).collect();
    let calls: Vec<_> = charges.iter().map(|charge| Call::acquire(charge)).collect();
    let peeks = charges.iter().map(|charge| Call::new(Operation::Peek, charge));
    for seconds in [0, 50, 49, 1, 100] {
        clock.advance(Duration::from_secs(seconds));
        for (number, charge) in held.iter().enumerate() {
            let id = number.to_le_bytes();
            let charge = [*charge];
            let call = Call::new(Operation::Hold, &charge);
            let call = call.with_id(CallId::new(&id, Duration::from_secs(100)));
            assert_eq!(summary(&store.decide(call).await), summary(&model.decide(call).await));
        }
        for calls in [calls.clone(), peeks.clone().collect()] {
            let answers = store.decide_many(&calls).await;
            let expected = model.decide_many(&calls).await;
            for ((answer, expected), call) in answers.iter().zip(&expected).zip(&calls) {
                assert_eq!(summary(answer), summary(expected), "{call:?}");
            }
        }
    }
}
