//! Measures the mean time of a call on the store, and the time of the slowest calls.
//!
//! ```sh
//! cargo bench -p tidegate-memory --bench store
//! ```
//!
//! The benchmark uses one thread and subjects of 20 bytes, and prints medians of 5 runs. The column
//! `worst` is the time of the slowest 16 consecutive calls of a run. It includes times in which a
//! busy machine did not run the thread.

#![allow(clippy::unwrap_used, reason = "a benchmark fails by panicking")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use tidegate_memory::{Call, Charge, Clock, ManualClock, MemoryStore, Policy, Timestamp};

const MILLION: u32 = 1_000_000;
const RUNS: usize = 5;

fn main() {
    let subjects: Vec<String> = (0..MILLION).map(|n| format!("subject:{n:012}")).collect();
    println!("| check | ns, median | worst, median | bytes per key |");
    println!("|---|---|---|---|");
    for text in [
        "token-bucket 1000/1s burst 1000000",
        "fixed-window 1000000000/1h",
        "sliding-counter 100000/1h",
        "sliding-log 100/1s",
    ] {
        let policy: Policy = text.parse().unwrap();
        row(&format!("one hot key, `{text}`"), || hot(&policy, &subjects));
    }
    let policy: Policy = "gcra 60/1m burst 1000".parse().unwrap();
    for keys in [100_000, MILLION] {
        row(&format!("{keys} known keys, in random order"), || known(&policy, &subjects, keys));
    }
    row("1,000,000 keys come", || come(&policy, &subjects).0);
    row("1,000,000 keys have expired, as many others come", || expired(&policy, &subjects));
    row("a flood of new keys on a full store", || flood(&policy));
}

struct Run {
    per_call: Duration,
    worst: Duration,
    bytes_per_key: usize,
}

fn row(name: &str, mut run: impl FnMut() -> Run) {
    let runs: Vec<Run> = (0..RUNS).map(|_| run()).collect();
    let median = |of: &dyn Fn(&Run) -> Duration| {
        let mut all: Vec<Duration> = runs.iter().map(of).collect();
        all.sort();
        all[RUNS / 2]
    };
    println!(
        "| {name} | {} | {:?} | {} |",
        median(&|run| run.per_call).as_nanos(),
        median(&|run| run.worst),
        runs[0].bytes_per_key,
    );
}

/// Makes one call per subject. Measures the total time, and the time of each sequence of 16 calls.
fn time<'s>(
    store: &MemoryStore<impl Clock>,
    policy: &Policy,
    subjects: impl Iterator<Item = &'s [u8]>,
) -> Run {
    let (mut calls, mut worst) = (0, Duration::ZERO);
    let started = Instant::now();
    let mut last = started;
    for subject in subjects {
        let charge = [Charge::new(policy, subject)];
        let _ = black_box(store.decide_now(black_box(&Call::acquire(&charge)))).unwrap();
        calls += 1;
        if calls % 16 == 0 {
            // The clock is read after 16 calls, because reading the clock takes as long as a call.
            let now = Instant::now();
            worst = worst.max(now - last);
            last = now;
        }
    }
    let per_call = started.elapsed() / calls;
    Run { per_call, worst, bytes_per_key: store.bytes() / store.len() }
}

fn hot(policy: &Policy, subjects: &[String]) -> Run {
    let store = MemoryStore::new();
    time(&store, policy, std::iter::repeat_n(subjects[0].as_bytes(), 2_000_000))
}

fn random(n: u64) -> u64 {
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 16
}

fn known(policy: &Policy, subjects: &[String], keys: u32) -> Run {
    let store = MemoryStore::builder().max_keys(1 << 21).build();
    let place = |n: u64| usize::try_from(random(n) % u64::from(keys)).unwrap();
    time(&store, policy, subjects[..keys as usize].iter().map(String::as_bytes));
    time(&store, policy, (0..2_000_000).map(|n| subjects[place(n)].as_bytes()))
}

fn come(policy: &Policy, subjects: &[String]) -> (Run, MemoryStore<ManualClock>, ManualClock) {
    let clock = ManualClock::new(Timestamp::from_micros(1_790_000_000_000_000));
    let store = MemoryStore::builder().max_keys(1 << 21).clock(clock.clone()).build();
    (time(&store, policy, subjects.iter().map(String::as_bytes)), store, clock)
}

fn expired(policy: &Policy, subjects: &[String]) -> Run {
    let (_, store, clock) = come(policy, subjects);
    clock.advance(Duration::from_secs(86_400));
    let others: Vec<String> =
        subjects.iter().map(|subject| subject.replace("sub", "SUB")).collect();
    time(&store, policy, others.iter().map(String::as_bytes))
}

fn flood(policy: &Policy) -> Run {
    let store = MemoryStore::builder().max_keys(100_000).build();
    let keys: Vec<[u8; 20]> = (0..1_000_000_u64)
        .map(|n| {
            let mut key = [0; 20];
            key[..8].copy_from_slice(&random(n).to_le_bytes());
            key
        })
        .collect();
    time(&store, policy, keys[..200_000].iter().map(|key| &key[..]));
    time(&store, policy, keys[200_000..].iter().map(|key| &key[..]))
}
