//! Leases of real processes, of which half are killed: what they have admitted in all is at most the limit.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a helper of a test that fails panics, as the test does"
)]

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tidegate_redis::{Call, Charge, Lease, Operation, Policy, RedisStore, Store, StoreExt};
use tidegate_testkit::servers::{Redis, eventually};

const PROCESSES: usize = 8;

const LIMIT: u64 = 100_000;

const PATIENCE: Duration = Duration::from_secs(120);

/// Killed when the test ends, whether it fails or not.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // SIGKILL: nothing of the process runs after it.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn store(url: &str) -> RedisStore {
    let builder = RedisStore::builder().url(url).connect_timeout(PATIENCE);
    builder.response_timeout(PATIENCE).build().unwrap()
}

async fn half_are_killed(policy: &str) {
    let redis = Redis::start().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let ledger = |number: usize| folder.path().join(number.to_string());
    let start = folder.path().join("start");
    let mut processes: Vec<_> = (0..PROCESSES)
        .map(|number| {
            let child = Command::new(std::env::current_exe().unwrap())
                .args(["--ignored", "--exact", "the_process_that_may_be_killed"])
                .env("LEASES_URL", redis.socket_url())
                .env("LEASES_POLICY", policy)
                .env("LEASES_LEDGER", ledger(number))
                .env("LEASES_START", &start)
                .stdout(Stdio::null())
                .spawn();
            Process(child.unwrap())
        })
        .collect();
    // All begin together, so that none is left without a part on a busy machine.
    let all_are_there = async || (0..PROCESSES).all(|number| ledger(number).exists()).then_some(());
    eventually(PATIENCE, "all processes to be there", all_are_there).await.unwrap();
    File::create(&start).unwrap();
    // A byte for each admission.
    let admitted = |number: usize| fs::metadata(ledger(number)).map_or(0, |file| file.len());
    let total = || (0..PROCESSES).map(admitted).sum::<u64>();
    let all_are_at_it = async || {
        let all = (0..PROCESSES).all(|number| admitted(number) > LIMIT / 1_000);
        (all && total() > LIMIT / 5).then_some(())
    };
    eventually(PATIENCE, "all processes to admit", all_are_at_it).await.unwrap();
    processes.drain(..PROCESSES / 2);
    let when_killed = total();
    for process in &mut processes {
        assert!(process.0.wait().unwrap().success());
    }

    let policy: Policy = policy.parse().unwrap();
    let charges = [Charge::new(&policy, "s").cost(0)];
    let direct = store(&redis.socket_url());
    let peek = direct.decide(Call::new(Operation::Peek, &charges)).await.unwrap();
    let (total, left) = (total(), peek.verdicts()[0].remaining());
    println!(
        "{policy}: {when_killed} admitted when half were killed, {total} in the end, {left} left"
    );
    assert!(when_killed < LIMIT, "they were killed while they admitted");
    assert!(total <= LIMIT, "{total} are admitted");
    // Those that live get all but what the others held.
    assert!(total >= LIMIT - LIMIT / 20, "{total} are admitted");
    // A part of a token may have come back.
    assert!(left <= 1, "what is left was refused");
}

#[tokio::test(flavor = "multi_thread")]
async fn half_the_processes_are_killed_and_the_window_holds() {
    half_are_killed("p: fixed-window 100000/10d anchored").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn half_the_processes_are_killed_and_the_bucket_holds() {
    half_are_killed("p: gcra 1/1h burst 100000").await;
}

/// A process of the tests above: it admits until it is refused for a while.
#[tokio::test]
#[ignore = "is run by the tests above"]
async fn the_process_that_may_be_killed() {
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
    // Longer than a chunk of another process lasts.
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
