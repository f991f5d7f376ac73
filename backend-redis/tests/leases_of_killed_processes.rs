//! Tests leases of real processes. The test kills half of the processes. All processes together
//! must admit at most the limit.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a helper of a test that fails panics, as the test does"
)]

mod processes;

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use tidegate_redis::{Call, Charge, Lease, Operation, Policy, RedisStore, Store, StoreExt};
use tidegate_test_servers::{Redis, eventually};

use processes::Process;

const PROCESSES: usize = 8;

const LIMIT: u64 = 100_000;

const PATIENCE: Duration = Duration::from_secs(120);

fn store(url: &str) -> RedisStore {
    let builder = RedisStore::builder().url(url).connect_timeout(PATIENCE);
    builder.response_timeout(PATIENCE).build().unwrap()
}

/// Runs processes that share a limit by leases, and kills half of the processes. Then checks the
/// amount that all processes together have admitted.
async fn check_with_half_killed(policy: &str) {
    let redis = Redis::start().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let ledger = |number: usize| folder.path().join(number.to_string());
    let start = folder.path().join("start");
    let mut processes: Vec<_> = (0..PROCESSES)
        .map(|number| {
            Process::start("process_that_may_be_killed", |command| {
                command
                    .env("LEASES_URL", redis.socket_url())
                    .env("LEASES_POLICY", policy)
                    .env("LEASES_LEDGER", ledger(number))
                    .env("LEASES_START", &start)
            })
        })
        .collect();
    // All processes begin to admit at the same time, so that each gets a part of the limit even on
    // a busy machine.
    let all_are_ready = async || (0..PROCESSES).all(|number| ledger(number).exists()).then_some(());
    eventually(PATIENCE, "all processes to be ready", all_are_ready).await.unwrap();
    File::create(&start).unwrap();
    // Each process writes one byte per admission.
    let admitted = |number: usize| fs::metadata(ledger(number)).map_or(0, |file| file.len());
    let total = || (0..PROCESSES).map(admitted).sum::<u64>();
    let all_admit = async || {
        let all = (0..PROCESSES).all(|number| admitted(number) > LIMIT / 1_000);
        (all && total() > LIMIT / 5).then_some(())
    };
    eventually(PATIENCE, "all processes to admit", all_admit).await.unwrap();
    processes.drain(..PROCESSES / 2);
    let when_killed = total();
    for process in &mut processes {
        assert!(process.0.wait().unwrap().success());
    }

    let policy: Policy = policy.parse().unwrap();
    let charges = [Charge::new(&policy, "s").cost(0)];
    let direct = store(&redis.socket_url());
    let peek = direct.decide(Call::new(Operation::Peek, &charges)).await.unwrap();
    let (total, remaining) = (total(), peek.verdicts()[0].remaining());
    println!(
        "{policy}: {when_killed} admitted when half were killed, {total} at the end, {remaining} remaining"
    );
    assert!(when_killed < LIMIT, "the processes must be killed while they admit");
    assert!(total <= LIMIT, "{total} are admitted");
    // The processes that were not killed can use the whole limit except the chunks of the killed
    // processes.
    assert!(total >= LIMIT - LIMIT / 20, "{total} are admitted");
    // One token can remain, because a bucket refills during the test.
    assert!(remaining <= 1, "the processes admit until the limit is used up");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_window_is_not_exceeded_if_half_the_processes_are_killed() {
    check_with_half_killed("p: fixed-window 100000/10d anchored").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bucket_is_not_exceeded_if_half_the_processes_are_killed() {
    check_with_half_killed("p: gcra 1/1h burst 100000").await;
}

/// The code that each process of these tests runs: it admits calls until it has been refused for a
/// while.
#[tokio::test]
#[ignore = "is run by the tests above"]
async fn process_that_may_be_killed() {
    let Ok(url) = std::env::var("LEASES_URL") else { return };
    let policy: Policy = std::env::var("LEASES_POLICY").unwrap().parse().unwrap();
    let ledger = std::env::var_os("LEASES_LEDGER").unwrap();
    let start = std::env::var_os("LEASES_START").unwrap();
    let lease = Lease::new().span(Duration::from_millis(500));
    let store = store(&url).coalesced().leased(lease);
    store.ready().await.unwrap();
    let mut ledger = File::create(Path::new(&ledger)).unwrap();
    eventually(PATIENCE, "the start", async || Path::new(&start).exists().then_some(()))
        .await
        .unwrap();
    let charges = [Charge::new(&policy, "s")];
    let mut refused = 0;
    // The process ends only after refusals for a second, because another process possibly returns a
    // part of a chunk within a span of 500 ms.
    while refused < 1_000 {
        for _ in 0..10 {
            if store.decide(Call::acquire(&charges)).await.unwrap().is_allowed() {
                ledger.write_all(b".").unwrap();
                refused = 0;
            } else {
                refused += 1;
            }
        }
        tokio::time::sleep(Duration::from_millis(if refused > 0 { 10 } else { 1 })).await;
    }
    assert!(store.stats().local() > 0, "{:?}", store.stats());
    store.close().await;
}
