//! Tests slots of real processes. The test pauses some of the processes and kills others. The
//! holders that obey their deadlines must never be more than there are slots.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a helper of a test that fails panics, as the test does"
)]

mod processes;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

use tidegate_redis::{HoldGuard, Limiter, OnDrop, RedisStore};
use tidegate_test_servers::{Redis, eventually};

use processes::Process;

const PROCESSES: usize = 20;
const SLOTS: u64 = 4;
const LEASE: Duration = Duration::from_secs(1);
const POLICY: &str = "slots: concurrent 4 lease 1s";
const MINUTE: Duration = Duration::from_secs(60);
const MILLI: Duration = Duration::from_millis(1);

fn signal(process: &Process, name: &str) {
    let mut kill = Command::new("kill");
    assert!(kill.args(["-s", name, &process.0.id().to_string()]).status().unwrap().success());
}

fn limiter(url: &str) -> Limiter<RedisStore> {
    let builder = RedisStore::builder().url(url).connect_timeout(MINUTE);
    let store = builder.response_timeout(MINUTE).build().unwrap();
    Limiter::new(store, [POLICY.parse().unwrap()]).unwrap()
}

fn micros_since_1970() -> u128 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_micros()
}

/// The work of one holder: its fence, the times at which it asked for the slot and got it, and the
/// last time at which it worked. The times are in microseconds since 1970.
#[derive(Debug, Clone, Copy)]
struct Work {
    fence: u64,
    asked_at: u128,
    granted_at: u128,
    worked_until: u128,
}

/// Reads the ledger of a process. A killed process has possibly not written its last line to the
/// end, so the last line without a line end is ignored.
fn read_ledger(path: &Path) -> Vec<Work> {
    let text = fs::read_to_string(path).unwrap();
    let mut works: Vec<Work> = vec![];
    for line in text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')) {
        let numbers: Vec<u128> = line.split(' ').map(|number| number.parse().unwrap()).collect();
        match (&numbers[..], works.last_mut()) {
            (&[fence, asked_at, granted_at], _) => works.push(Work {
                fence: u64::try_from(fence).unwrap(),
                asked_at,
                granted_at,
                worked_until: granted_at,
            }),
            (&[worked_until], Some(work)) => work.worked_until = worked_until,
            other => panic!("{other:?} in {path:?}"),
        }
    }
    works
}

/// Returns the maximum number of works at a time, which is reached when one of them begins.
fn max_at_once(works: &[Work]) -> usize {
    let works_at = |at| {
        let is_on = |work: &&Work| work.granted_at <= at && at < work.worked_until;
        works.iter().filter(is_on).count()
    };
    works.iter().map(|work| works_at(work.granted_at)).max().unwrap_or(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn never_more_than_the_slots_work_if_processes_are_paused_and_killed() {
    let redis = Redis::start().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let ledger = |number: usize| folder.path().join(number.to_string());
    let mut processes: BTreeMap<usize, Process> = (0..PROCESSES)
        .map(|number| {
            let process = Process::start("process_that_holds_slots", |command| {
                command.env("SLOTS_URL", redis.socket_url()).env("SLOTS_LEDGER", ledger(number))
            });
            (number, process)
        })
        .collect();
    let grants =
        || (0..PROCESSES).map(|number| fs::metadata(ledger(number)).map_or(0, |file| file.len()));
    let all_work = async || grants().all(|bytes| bytes > 0).then_some(());
    eventually(MINUTE, "all processes to hold a slot", all_work).await.unwrap();

    // Five processes at a time are paused for longer than the lease, and one process is killed.
    for round in 0..4 {
        let paused: Vec<usize> =
            processes.keys().copied().filter(|number| number % 4 == round).collect();
        for number in &paused {
            signal(&processes[number], "STOP");
        }
        tokio::time::sleep(LEASE + LEASE / 4).await;
        for number in &paused {
            signal(&processes[number], "CONT");
        }
        processes.remove(&round);
        tokio::time::sleep(LEASE / 4).await;
    }
    // All other processes are killed while they work. Their slots are free after the lease.
    let killed_at = Instant::now();
    processes.clear();
    let limiter = limiter(&redis.socket_url());
    let all_free = async || {
        let peek = limiter.subject("s").cost(0).peek().await.unwrap();
        (peek.verdicts()[0].remaining() == SLOTS).then_some(())
    };
    eventually(MINUTE, "all slots to be free", all_free).await.unwrap();
    let free_after = killed_at.elapsed();

    let works: Vec<Vec<Work>> = (0..PROCESSES).map(|number| read_ledger(&ledger(number))).collect();
    for works in &works {
        assert!(works.is_sorted_by(|one, other| one.fence < other.fence), "{works:?}");
    }
    let mut works: Vec<Work> = works.concat();
    println!(
        "{} grants, at most {} at once, all slots free {free_after:?} after the last kill",
        works.len(),
        max_at_once(&works)
    );
    assert!(works.len() > PROCESSES + PROCESSES / 2, "{}", works.len());
    assert_eq!(max_at_once(&works), usize::try_from(SLOTS).unwrap());
    assert!(free_after <= LEASE + Duration::from_secs(1), "{free_after:?}");
    works.sort_unstable_by_key(|work| work.granted_at);
    for (index, work) in works.iter().enumerate() {
        // A call that was sent after the answer to an earlier call has a higher fence.
        for later in works.iter().skip(index + 1).filter(|later| later.asked_at > work.granted_at) {
            assert!(work.fence < later.fence, "{work:?} {later:?}");
        }
    }
    let mut fences: Vec<u64> = works.iter().map(|work| work.fence).collect();
    fences.sort_unstable();
    fences.dedup();
    assert_eq!(fences.len(), works.len(), "each grant has its own fence");
}

/// The code of each process: it waits for a slot, works for a while, frees the slot, and repeats
/// this. A quarter of the work takes three leases, so that the guard must renew the slot.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "is run by the test above"]
async fn process_that_holds_slots() {
    let Ok(url) = std::env::var("SLOTS_URL") else { return };
    let mut ledger = File::create(std::env::var_os("SLOTS_LEDGER").unwrap()).unwrap();
    let limiter = limiter(&url);
    for number in 0.. {
        let id = format!("{} {number}", std::process::id());
        let asked_at = micros_since_1970();
        let hold = limiter.subject("s").hold_within(&id, MINUTE, MINUTE).await.unwrap();
        let Ok(ticket) = hold.into_ticket() else { continue };
        let fence = ticket.fence("slots").unwrap();
        let guard = HoldGuard::new(&limiter, ticket, OnDrop::Settle).unwrap();
        let mut line = format!("{fence} {asked_at} {}\n", micros_since_1970());
        let work = if number % 4 < 3 { LEASE / 10 } else { LEASE * 3 };
        let started = tokio::time::Instant::now();
        loop {
            // The time is read first. So if the process is paused between these lines, the ledger
            // contains a time before the pause, or the deadline has passed.
            let (now, worked_at) = (tokio::time::Instant::now(), micros_since_1970());
            if now >= guard.deadline().unwrap() || now >= started + work {
                break;
            }
            ledger.write_all(line.as_bytes()).unwrap();
            line = format!("{worked_at}\n");
            tokio::time::sleep(5 * MILLI).await;
        }
        guard.settle([]).await.unwrap();
    }
}
