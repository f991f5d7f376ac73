//! Measures requests on a limiter: requests with one subject, requests with several subjects, and
//! requests that contain their own policy.
//!
//! ```sh
//! cargo bench -p tidegate-memory --bench requests
//! ```
//!
//! The benchmark uses one thread and one hot key per policy. In each of 41 rounds, it measures all
//! rows of the output one after the other. It prints the median of each row.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a benchmark fails by panicking")]

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use tidegate_memory::{Charge, Limiter, MemoryStore, Policy, Store, TokenBucket};

const ROUNDS: usize = 41;
const CHECKS: u32 = 50_000;
const USER: &str = "subject:000000000007";

/// Polls a future once, and returns its output. The future must be ready at the first poll.
fn ready<T>(future: impl Future<Output = T>) -> T {
    match std::pin::pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer,
        Poll::Pending => panic!("the memory store is ready at once"),
    }
}

fn main() {
    let parse = |text: &str| -> Policy { text.parse().unwrap() };
    let bucket = "token-bucket 1000000/1s burst 1000000";
    let policies = ["ip", "user", "all"].map(|name| parse(&format!("{name}: {bucket}")));
    // Each row of the output has its own store, so that two rows do not share states.
    let one = || Limiter::new(MemoryStore::new(), [policies[1].clone()]).unwrap();
    let three = || Limiter::new(MemoryStore::new(), policies.clone()).unwrap();
    let singles = [(); 5].map(|()| one());
    let [two_names, two_policies, two_built, three_names] = [(); 4].map(|()| three());
    let build = || {
        let bucket = TokenBucket::new(1_000_000, Duration::from_secs(1)).burst(1_000_000);
        Policy::new("user", bucket).unwrap()
    };
    let plan = parse(&format!("user: {bucket}"));
    let ip = IpAddr::from(Ipv4Addr::new(203, 0, 113, 9));
    let (user, store) = (&policies[1], MemoryStore::new());

    let mut rows: [(&str, &dyn Fn()); 10] = [
        ("`limiter.acquire(user)`", &|| {
            let _ = black_box(ready(singles[0].acquire(black_box(USER))));
        }),
        ("`limiter.by(\"user\", user)`", &|| {
            let _ = black_box(ready(singles[1].by("user", black_box(USER)).acquire()));
        }),
        ("`limiter.by(&policy, user)`, a policy of the request", &|| {
            let _ = black_box(ready(singles[2].by(black_box(&plan), black_box(USER)).acquire()));
        }),
        ("the same, built for each request", &|| {
            let plan = build();
            let _ = black_box(ready(singles[3].by(&plan, black_box(USER)).acquire()));
        }),
        ("`limiter.by(\"user\", 42_u64)`", &|| {
            let _ = black_box(ready(singles[4].by("user", black_box(42_u64)).acquire()));
        }),
        ("`store.decide` of two charges", &|| {
            let charges = [Charge::new(user, black_box(USER)), Charge::new(&policies[2], b"")];
            let _ = black_box(ready(store.decide(tidegate_memory::Call::acquire(&charges))));
        }),
        ("`limiter.by(\"user\", user).by(\"all\", ())`", &|| {
            let _ = black_box(ready(two_names.by("user", black_box(USER)).by("all", ()).acquire()));
        }),
        ("`limiter.by(&policy, user).by(\"all\", ())`", &|| {
            let _ = black_box(ready(
                two_policies.by(black_box(&plan), black_box(USER)).by("all", ()).acquire(),
            ));
        }),
        ("the same, built for each request", &|| {
            let plan = build();
            let _ = black_box(ready(two_built.by(&plan, black_box(USER)).by("all", ()).acquire()));
        }),
        ("`limiter.by(\"ip\", ip).by(\"user\", user).by(\"all\", ())`", &|| {
            let request =
                three_names.by("ip", black_box(ip)).by("user", black_box(USER)).by("all", ());
            let _ = black_box(ready(request.acquire()));
        }),
    ];
    let mut nanos = vec![vec![]; rows.len()];
    for _ in 0..ROUNDS {
        for ((_, check), nanos) in rows.iter_mut().zip(&mut nanos) {
            let started = Instant::now();
            (0..CHECKS).for_each(|_| check());
            nanos.push(started.elapsed().as_nanos() / u128::from(CHECKS));
        }
    }
    println!("| request | ns |\n|---|--:|");
    for ((name, _), mut nanos) in rows.into_iter().zip(nanos) {
        nanos.sort_unstable();
        println!("| {name} | {} |", nanos[ROUNDS / 2]);
    }
}
