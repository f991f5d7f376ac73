//! Compares the memory in the output of `tidegate plan` with the memory of a real Redis.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a helper of a test that fails panics, as the test does"
)]

use std::time::Duration;

use tidegate::plan::memory::{Entries, Names, busy_log, state_bytes};
use tidegate::plan::{Plan, Wanted};
use tidegate_core::{
    Call, CallId, Charge, Clock, ManualClock, Operation, Policy, Store, SystemClock,
};
use tidegate_redis::RedisStore;
use tidegate_redis::protocol::Keys;
use tidegate_test_servers::{Redis, Reply, eventually};

/// A timeout that is long enough for a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

async fn number(server: &Redis, command: &[&str]) -> u64 {
    match server.command(command).await.unwrap() {
        Reply::Integer(number) => number.try_into().unwrap(),
        reply => panic!("{reply:?}"),
    }
}

/// Waits until the store has disconnected, and returns the bytes that the server uses. The server
/// counts the buffers of a busy connection late and shrinks them late, so an open connection would
/// change the result.
async fn taken(server: &Redis) -> u64 {
    let number = async |field| server.info(field).await.unwrap().parse::<u64>().unwrap();
    let is_alone = async || (number("connected_clients").await <= 1).then_some(());
    eventually(PATIENCE, "the store to hang up", is_alone).await.unwrap();
    number("used_memory").await
}

/// The lease of slots, and the time to live of holds.
const LEASE: Duration = Duration::from_secs(3_600);

fn subject(number: u64) -> String {
    format!("subject:{number:012}")
}

fn charge<'a>(policy: &'a Policy, subject: &'a str, names: &Names) -> Charge<'a> {
    Charge::new(policy, subject).tenant(&"tenant"[..names.tenant_bytes])
}

/// Returns a number of states with which the other memory of the server hardly counts. Logs of 100
/// records take much more memory than other states.
const fn enough_states(times: u64) -> u64 {
    if times >= 100 { 1_500 } else { 5_000 }
}

/// Charges `states` subjects `times` times, a tenth of a second apart. Returns the bytes of a state
/// as two averages: the result of MEMORY USAGE, and the increase of the server's memory.
async fn measure(
    server: &Redis,
    policy: &Policy,
    names: &Names,
    times: u64,
    states: u64,
) -> (u64, u64) {
    server.command(&["FLUSHALL"]).await.unwrap();
    let clock = ManualClock::new(SystemClock::new().now());
    let store = || {
        let builder = RedisStore::builder().url(server.url()).prefix(&names.prefix);
        builder.response_timeout(PATIENCE).clock(clock.clone()).build().unwrap()
    };
    let subjects: Vec<String> = (0..states).map(subject).collect();
    // Before the first measurement, the server must load the scripts, because their memory is not a
    // part of the states.
    let first = [charge(policy, "before", names).cost(0)];
    store().decide_many(&[Call::acquire(&first), Call::acquire(&first)]).await;
    let before = taken(server).await;
    let store = store();
    for _ in 0..times {
        let charges: Vec<_> =
            subjects.iter().map(|subject| [charge(policy, subject, names)]).collect();
        let calls: Vec<_> = charges.iter().map(|charge| Call::acquire(charge)).collect();
        for decision in store.decide_many(&calls).await {
            assert!(decision.unwrap().is_allowed());
        }
        clock.advance(Duration::from_millis(100));
    }
    drop(store);
    let after = taken(server).await;
    let keys = Keys::new(&names.prefix);
    let mut told = 0;
    for subject in subjects.iter().take(20) {
        let key = String::from_utf8(keys.key(&charge(policy, subject, names))).unwrap();
        told += number(server, &["MEMORY", "USAGE", &key, "SAMPLES", "0"]).await;
    }
    assert_eq!(number(server, &["DBSIZE"]).await, states);
    (told / 20, (after - before) / states)
}

#[tokio::test]
async fn a_state_takes_what_is_planned_for_it_within_a_tenth() {
    let server = Redis::start().await.unwrap();
    let names = Names { prefix: "tidegate".into(), tenant_bytes: 0, subject_bytes: 20 };
    let mut wrong = vec![];
    for (policy, times) in [
        ("api: fixed-window 100/1d", 3),
        ("api: sliding-counter 100/1d", 3),
        ("api: token-bucket 10/1h burst 20", 3),
        ("api: gcra 10/1h burst 20", 3),
        ("api: token-bucket 10/1h burst 20 by-interval", 3),
        ("api: quota 100/month in UTC", 3),
        ("api: quota 100/month in UTC rollover 1/2", 3),
        ("api: sliding-log 1/1h", 1),
        ("api: sliding-log 10/1h", 10),
        ("api: sliding-log 100/1h", 100),
        ("api: sliding-log 150/1h", 150),
    ] {
        let parsed: Policy = policy.parse().unwrap();
        let planned = state_bytes(&parsed, &names, Entries::default(), false);
        let (told, taken) = measure(&server, &parsed, &names, times, enough_states(times)).await;
        println!(
            "{policy}: {told} told, {} planned; {taken} taken, {} planned",
            planned.told(),
            planned.total()
        );
        if planned.told().abs_diff(told) * 10 > told || planned.total().abs_diff(taken) * 10 > taken
        {
            wrong.push(policy);
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[tokio::test]
async fn a_quota_with_grants_takes_what_is_planned() {
    let server = Redis::start().await.unwrap();
    let names = Names { prefix: "tidegate".into(), tenant_bytes: 0, subject_bytes: 20 };
    let store = RedisStore::builder().url(server.url()).response_timeout(PATIENCE).build().unwrap();
    let policy: Policy = "api: quota 100/month in UTC".parse().unwrap();
    let subject = subject(0);
    let charge = charge(&policy, &subject, &names);
    let now = store.now().await.unwrap();
    for grants in 1..=16 {
        let ends_at = Some(now.saturating_add(LEASE * grants));
        let (charge, id) = ([charge], grants.to_be_bytes());
        let grant = Call::new(Operation::Grant { ends_at }, &charge);
        let _ = store.decide(grant.with_id(CallId::new(&id, LEASE))).await.unwrap();
        let key = String::from_utf8(Keys::new(&names.prefix).key(&charge[0])).unwrap();
        let told = number(&server, &["MEMORY", "USAGE", &key, "SAMPLES", "0"]).await;
        let entries = Entries { grants: grants.into(), ..Entries::default() };
        let planned = state_bytes(&policy, &names, entries, false).told();
        assert!(planned.abs_diff(told) * 10 <= told, "{grants}: {told} told, {planned} planned");
    }
}

#[tokio::test]
async fn a_fair_pool_takes_what_is_planned_for_its_members() {
    let server = Redis::start().await.unwrap();
    let names = Names { prefix: "tidegate".into(), tenant_bytes: 0, subject_bytes: 20 };
    let store = RedisStore::builder().url(server.url()).response_timeout(PATIENCE).build().unwrap();
    let policy: Policy = "api: fair-pool 100000/1d".parse().unwrap();
    let mut members = 0;
    for more in [1, 9, 90, 900, 200] {
        let subjects: Vec<String> = (members..members + more).map(subject).collect();
        let charges: Vec<_> =
            subjects.iter().map(|subject| [charge(&policy, subject, &names)]).collect();
        let calls: Vec<_> = charges.iter().map(|charge| Call::acquire(charge)).collect();
        for decision in store.decide_many(&calls).await {
            assert!(decision.unwrap().is_allowed());
        }
        members += more;
        let key = String::from_utf8(Keys::new(&names.prefix).key(&charges[0][0])).unwrap();
        let told = number(&server, &["MEMORY", "USAGE", &key, "SAMPLES", "0"]).await;
        let entries = Entries { members, ..Entries::default() };
        let planned = state_bytes(&policy, &names, entries, false).told();
        assert!(planned.abs_diff(told) * 10 <= told, "{members}: {told} told, {planned} planned");
        assert_eq!(number(&server, &["DBSIZE"]).await, 1);
    }
}

/// All states belong to one tenant and so are in one slot, because a `RedisStore` does not split a
/// batch by slots.
#[tokio::test]
async fn a_state_on_a_node_of_a_cluster_takes_what_is_planned_within_a_tenth() {
    let server = Redis::builder().config("cluster-enabled", "yes").start().await.unwrap();
    server.command(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]).await.unwrap();
    let is_up = async || {
        let info = server.command(&["CLUSTER", "INFO"]).await.unwrap().text();
        info.contains("cluster_state:ok").then_some(())
    };
    eventually(PATIENCE, "all slots", is_up).await.unwrap();
    let names = Names { prefix: "tidegate".into(), tenant_bytes: 6, subject_bytes: 20 };
    for policy in ["api: fixed-window 100/1d", "api: token-bucket 10/1h burst 20"] {
        let policy: Policy = policy.parse().unwrap();
        let planned = state_bytes(&policy, &names, Entries::default(), true);
        let (told, taken) = measure(&server, &policy, &names, 3, enough_states(3)).await;
        println!(
            "{policy}: {told} told, {} planned; {taken} taken, {} planned",
            planned.told(),
            planned.total()
        );
        assert!(planned.told().abs_diff(told) * 10 <= told, "{policy}");
        assert!(planned.total().abs_diff(taken) * 10 <= taken, "{policy}");
    }
}

#[tokio::test]
async fn a_log_that_stays_full_takes_at_most_what_is_said_of_it() {
    let server = Redis::start().await.unwrap();
    let names = Names { prefix: "tidegate".into(), tenant_bytes: 0, subject_bytes: 20 };
    // In each window of 5 s, 50 requests arrive. So the log always contains 50 records, which is
    // its maximum.
    let policy: Policy = "api: sliding-log 50/5s".parse().unwrap();
    let (planned, busy) = (
        state_bytes(&policy, &names, Entries::default(), false),
        busy_log(&policy, &names, Entries::default(), false).unwrap(),
    );
    let mut most = 0;
    for times in [60, 75, 90, 99] {
        // The memory of the whole server is not compared, so a few states are enough.
        most = measure(&server, &policy, &names, times, 20).await.0.max(most);
    }
    println!("{most} told, {} full, {} busy", planned.told(), busy.told());
    assert!(most > planned.told() && most <= busy.told());
    assert!(busy.told() - most <= busy.told() / 10);
}

/// Makes `holders` holds for each of `count` subjects. Returns the increase of the server's memory.
async fn measure_holds(
    server: &Redis,
    policies: &[Policy],
    names: &Names,
    holders: u64,
    count: u64,
) -> u64 {
    server.command(&["FLUSHALL"]).await.unwrap();
    let subjects: Vec<String> = (0..count).map(subject).collect();
    let ids: Vec<String> = (0..count * holders).map(|number| format!("{number:036}")).collect();
    let make = async |subjects: &[String], ids: &[String]| {
        let builder = RedisStore::builder().url(server.url()).prefix(&names.prefix);
        let store = builder.response_timeout(PATIENCE).build().unwrap();
        let charges: Vec<Vec<Charge<'_>>> = subjects
            .iter()
            .map(|subject| policies.iter().map(|policy| charge(policy, subject, names)).collect())
            .collect();
        for ids in ids.chunks(subjects.len()) {
            let holds = ids.iter().zip(&charges).map(|(id, charges)| {
                Call::new(Operation::Hold, charges).with_id(CallId::new(id, LEASE))
            });
            for decision in store.decide_many(&holds.collect::<Vec<_>>()).await {
                assert!(decision.unwrap().is_allowed());
            }
        }
    };
    // Before the first measurement, the server must load the scripts.
    make(&["before".to_owned()], &["before".to_owned()]).await;
    let before = taken(server).await;
    make(&subjects, &ids).await;
    taken(server).await - before
}

#[tokio::test]
async fn holds_take_what_is_planned_within_a_tenth() {
    let server = Redis::start().await.unwrap();
    let names = Names { prefix: "tidegate".into(), tenant_bytes: 0, subject_bytes: 20 };
    let slots = "slots: concurrent 1000 lease 1h";
    for (texts, holders, count) in [
        (&[slots][..], 1, 2_000),
        (&[slots], 10, 2_000),
        (&[slots], 1_000, 20),
        (&["rate: fixed-window 1000/1h", slots], 3, 2_000),
        (&[slots, "tokens: token-bucket 1000/1h refund-lapsed"], 3, 2_000),
    ] {
        let policies: Vec<Policy> = texts.iter().map(|text| text.parse().unwrap()).collect();
        let taken = measure_holds(&server, &policies, &names, holders, count).await;
        let wanted = Wanted {
            policies: policies.clone(),
            subjects: count,
            rate_per_hour: 0,
            node_memory: 16 << 30,
            node_decisions: None,
            is_coalesced: false,
            local_percent: 0,
            replicas: 0,
            names: names.clone(),
            log_records: None,
            grants: 0,
            holders: Some(holders),
        };
        let plan = Plan::new(wanted);
        println!("{texts:?}, {holders} holders: {taken} taken, {} planned", plan.memory);
        let planned = u64::try_from(plan.memory).unwrap();
        assert!(planned.abs_diff(taken) * 10 <= taken, "{texts:?}");

        let hold = [charge(&policies[0], "subject:000000000000", &names)];
        let id = format!("{:036}", 0);
        let keys = Keys::new(&names.prefix);
        let record = String::from_utf8(keys.id_key(&hold[0], id.as_bytes())).unwrap();
        let length = async || number(&server, &["MEMORY", "USAGE", &record]).await;
        let holds = plan.holds.unwrap();
        assert_eq!(length().await, holds.record.told());
        let all: Vec<_> = policies
            .iter()
            .map(|policy| charge(policy, "subject:000000000000", &names).cost(0))
            .collect();
        let settle = Call::new(Operation::Settle, &all).with_id(CallId::new(&id, LEASE));
        let store = RedisStore::builder().url(server.url()).prefix(&names.prefix).build().unwrap();
        let _ = store.decide(settle).await.unwrap();
        assert_eq!(length().await, holds.settled.told());
        // The key of the slots expires at the end of its planned life.
        let key = policies.iter().find(|policy| policy.is_concurrent()).unwrap();
        let key = keys.key(&charge(key, "subject:000000000001", &names));
        let left = number(&server, &["PTTL", &String::from_utf8(key).unwrap()]).await;
        let slots = plan.policies.iter().find(|needs| needs.policy.is_concurrent()).unwrap();
        let lives = u64::try_from(slots.lives.as_millis()).unwrap();
        assert!(left <= lives && left + 60_000 > lives, "{left} of {lives}");
    }
}
