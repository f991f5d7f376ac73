//! Measures the time of a call in two cases: the state of the subject recovers before the next call
//! for the subject, or it does not.
//!
//! ```sh
//! cargo bench -p tidegate-memory --bench recovering
//! ```
//!
//! The benchmark uses one thread. It makes a call for each subject in turn. In each of 21 rounds,
//! it measures all rows of the output one after the other. It prints the median of each row.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a benchmark fails by panicking")]

use std::hint::black_box;
use std::time::Instant;

use tidegate_memory::{Call, Charge, MemoryStore, Policy};

const ROUNDS: usize = 21;
const CHECKS: usize = 1_000_000;

struct Row {
    store: MemoryStore,
    policy: Policy,
    nanos: Vec<u128>,
}

impl Row {
    fn new(policy: &str) -> Self {
        Self { store: MemoryStore::new(), policy: policy.parse().unwrap(), nanos: vec![] }
    }

    fn measure(&mut self, subjects: &[String]) {
        let started = Instant::now();
        for subject in subjects.iter().cycle().take(CHECKS) {
            let charge = [Charge::new(&self.policy, black_box(subject.as_str()))];
            let _ = black_box(self.store.decide_now(&Call::acquire(&charge)));
        }
        self.nanos.push(started.elapsed().as_nanos() / CHECKS as u128);
    }

    fn median(&mut self) -> u128 {
        self.nanos.sort_unstable();
        self.nanos[ROUNDS / 2]
    }
}

fn main() {
    println!("| subjects | stay, ns | recover, ns |\n|--:|--:|--:|");
    for count in [10_000, 100_000] {
        let subjects: Vec<_> = (0..count).map(|n| format!("subject:{n:012}")).collect();
        // Both policies need the same arithmetic. The first policy refills a charged cost slowly,
        // so that a state does not recover before the next call for its subject. The second policy
        // refills the cost within a millisecond.
        let mut stay = Row::new("token-bucket 1000/1h burst 100000000");
        let mut recover = Row::new("token-bucket 1000/1s burst 100000000");
        for _ in 0..ROUNDS {
            stay.measure(&subjects);
            recover.measure(&subjects);
        }
        println!("| {count} | {} | {} |", stay.median(), recover.median());
    }
}
