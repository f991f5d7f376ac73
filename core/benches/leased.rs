//! Measures the time that a caller needs for an admission from a leased chunk.
//!
//! Usage: `cargo bench -p tidegate-core --bench leased`

#![expect(clippy::unwrap_used, reason = "a benchmark stops where it does not work")]

use std::hint::black_box;
use std::time::Instant;

use tidegate_core::{Call, Charge, Lease, Policy, Store, StoreExt};
use tidegate_memory::MemoryStore;

const ROUNDS: u32 = 7;

const CALLS: u32 = 1_000_000;

fn main() {
    // As in a server, the tasks of the lease run on another thread than the calls.
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let _context = runtime.enter();
    let store = MemoryStore::new().leased(Lease::new());
    let policies: [Policy; 2] = ["a: fixed-window 1000000000000/1d", "b: gcra 1000000000/1s"]
        .map(|text| text.parse().unwrap());
    let charges = policies.each_ref().map(|policy| Charge::new(policy, "203.0.113.9"));
    for (name, charges) in [("one policy", &charges[..1]), ("two policies", &charges[..])] {
        let call = Call::acquire(charges);
        let mut times: Vec<_> = (0..ROUNDS)
            .map(|_| {
                let start = Instant::now();
                for _ in 0..CALLS {
                    let _ = black_box(store.decide(black_box(call)).into_ready());
                }
                start.elapsed() / CALLS
            })
            .collect();
        times.sort_unstable();
        println!("{name}: {:?}", times.get(times.len() / 2));
    }
    let stats = store.stats();
    println!("{} of {} admitted from chunks", stats.local(), stats.local() + stats.passed());
}
