//! Measures the time of a decision through the layers around a store, while the store works and
//! while it is down.
//!
//! Usage: `cargo bench -p tidegate-core --bench degraded`. An optional argument sets the number of
//! decisions that are measured for each case.

#![expect(clippy::unwrap_used, reason = "a benchmark stops where it does not work")]

use std::time::{Duration, Instant};

use tidegate_core::{
    Answer, Breaker, Call, Charge, Decision, Error, ErrorKind, Policy, Share, Store, StoreExt,
    Timestamp,
};
use tidegate_memory::MemoryStore;

/// A store that is down and answers each call with an error.
#[derive(Debug)]
struct Dead;

impl Store for Dead {
    fn decide<'a>(&'a self, _: Call<'a>) -> Answer<'a, Result<Decision, Error>> {
        Answer::ready(Err(Error::new(ErrorKind::Unavailable, "down")))
    }

    fn now(&self) -> Answer<'_, Result<Timestamp, Error>> {
        Answer::ready(Err(Error::new(ErrorKind::Unavailable, "down")))
    }
}

fn main() {
    let count = std::env::args().filter_map(|argument| argument.parse().ok()).next();
    let count = count.unwrap_or(1_000_000);
    let hour = Duration::from_secs(3_600);
    let opened = || Dead.breaker(Breaker::new().failures(1).open_for(hour));
    let half = Share::new(1, 2).unwrap();

    println!("decisions: {count} each        p50        p99      p99.9");
    measure("memory", &MemoryStore::new(), count);
    measure("+ breaker, closed", &MemoryStore::new().breaker(Breaker::new()), count);
    let store = MemoryStore::new().breaker(Breaker::new()).or_fail_open();
    measure("+ failure policy", &store, count);
    measure("circuit open", &opened(), count);
    measure("open, fails open", &opened().or_fail_open(), count);
    measure("open, fails closed", &opened().or_fail_closed(), count);
    measure("open, falls back", &opened().or_fall_back_to(MemoryStore::new(), half), count);
}

fn measure(name: &str, store: &dyn Store, count: usize) {
    let policy: Policy = "p: token-bucket 1000/1s burst 1000".parse().unwrap();
    let charges = [Charge::new(&policy, "203.0.113.9")];
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let mut times: Vec<Duration> = runtime.block_on(async {
        let _ = store.decide(Call::acquire(&charges)).await; // opens the circuit
        let mut times = Vec::with_capacity(count);
        for _ in 0..count {
            let start = Instant::now();
            let answer = store.decide(Call::acquire(&charges)).await;
            times.push(start.elapsed());
            drop(answer);
        }
        times
    });
    times.sort_unstable();
    let at = |per_mille: usize| times[(count - 1) * per_mille / 1_000];
    println!("{name:20} {:>12?} {:>10?} {:>10?}", at(500), at(990), at(999));
}
