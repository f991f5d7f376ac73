//! Compares the time of a refusal by the deny cache with the time of a check on the memory store.

use std::hint::black_box;
use std::time::Instant;

use tidegate_memory::{Call, Charge, DenyCache, MemoryStore, Policy, Store, StoreExt};

use crate::Outcome;
use crate::harness::middle;

const CALLS: u32 = 1_000_000;

const SUBJECTS: [usize; 2] = [1, 10_000];

pub(crate) fn report(rounds: usize) -> Outcome<()> {
    let policy: Policy = "sliding-counter 1/24h".parse()?;
    println!(
        "| refused on the memory store, one thread | ns, the store's own check | ns, from the cache |"
    );
    println!("|---|--:|--:|");
    for count in SUBJECTS {
        let subjects: Vec<String> = (0..count).map(|n| format!("subject:{n:012}")).collect();
        let (plain, cached) = (MemoryStore::new(), MemoryStore::new().deny_cache(DenyCache::new()));
        let (mut without, mut with) = (vec![], vec![]);
        for _ in 0..rounds {
            without.push(time(&plain, &policy, &subjects)?);
            with.push(time(&cached, &policy, &subjects)?);
        }
        let noun = if count == 1 { "subject" } else { "subjects in turn" };
        println!("| {count} {noun} | {} | {} |", middle(without), middle(with));
    }
    Ok(())
}

fn time(store: &impl Store, policy: &Policy, subjects: &[String]) -> Outcome<u128> {
    let ask = |subject: &String| {
        let charge = [Charge::new(policy, subject)];
        black_box(store.decide(black_box(Call::acquire(&charge))).into_ready().is_ok())
    };
    // The store refuses the second call of each subject, and the cache stores the denial.
    for _ in 0..2 {
        subjects.iter().for_each(|subject| assert!(ask(subject)));
    }
    let started = Instant::now();
    let mut answered = 0;
    for subject in subjects.iter().cycle().take(CALLS as usize) {
        answered += u32::from(ask(subject));
    }
    let took = started.elapsed();
    if answered < CALLS {
        return Err("the memory store did not answer immediately".into());
    }
    Ok(took.as_nanos() / u128::from(CALLS))
}
