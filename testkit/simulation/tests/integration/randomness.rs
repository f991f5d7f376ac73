//! Tests of the sources of random numbers. The seed determines each source, and all sources differ.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use tidegate_core::Clock;
use tidegate_simulation::{Fate, Link, Load, Simulation};

use super::{millis, policy, server};

/// Runs a simulation. Returns the first random numbers of each source, by the name of the source.
fn sources(seed: u64) -> BTreeMap<String, Vec<u64>> {
    let sources = Arc::new(Mutex::new(BTreeMap::new()));
    let in_scenario = Arc::clone(&sources);
    let link = Link::new().delay(millis(0)..=millis(900)).timeout(millis(2_000));
    let ledger = Simulation::new(seed).nodes(3).link(link).run(
        server,
        |host| host.link(),
        async move |world| {
            let add = |name: String, number| {
                in_scenario.lock().unwrap().insert(name, vec![number]);
            };
            for node in world.nodes() {
                add(format!("clock {}", node.number()), node.clock().now().as_micros());
            }
            for number in 0..3 {
                add(format!("of the scenario {number}"), world.random(number).number());
            }
            add("pauses of callers".to_owned(), fastrand::u64(..));
            let policy = policy("p: fixed-window 1000000/1h");
            let load = Load::new(&policy).per_second(30).requests(60).lasting(millis(60_000));
            let loads = [1, 2].map(|cost| world.start(load.clone().cost(cost..=cost)));
            for load in loads {
                load.await;
            }
        },
    );
    let mut sources = std::mem::take(&mut *sources.lock().unwrap());
    let mut add = |name, number| sources.entry(name).or_default().push(number);
    for call in ledger.calls() {
        let (Some(executed), Fate::Answered(answered)) = (call.executed, call.fate) else {
            panic!("nothing is lost")
        };
        add(format!("delays to the server from {}", call.node), executed.at - call.sent_at);
        add(format!("delays from the server to {}", call.node), answered - executed.at);
        let load = format!("arrivals of the load {} at {}", call.cost, call.node);
        add(load, call.sent_at);
    }
    sources
}

#[test]
fn the_seed_determines_each_source_and_no_two_sources_are_equal() {
    let mut all = vec![];
    for seed in 1..5 {
        let here = sources(seed);
        assert_eq!(here, sources(seed));
        assert_eq!(here.len(), 3 + 3 + 1 + 4 * 3);
        all.extend(here.into_iter().map(|(name, numbers)| (numbers, format!("{seed}: {name}"))));
    }
    all.sort();
    for two in all.windows(2) {
        assert!(two[0].0 != two[1].0, "{} is {}", two[0].1, two[1].1);
    }
}

/// Checks that arrivals are a Poisson process: the variance of the number of arrivals per
/// millisecond equals the mean of this number.
#[test]
fn arrivals_are_a_poisson_process() {
    let ledger = Simulation::new(3).run(
        server,
        |host| host.link(),
        async |world| {
            let load = Load::new(&policy("p: fixed-window 1000000/1h")).per_second(20_000);
            world.run(load.lasting(millis(2_000))).await;
        },
    );
    let mut counts = vec![0_i64; 2_000];
    for request in ledger.requests() {
        counts[usize::try_from(request.made_at / 1_000).unwrap()] += 1;
    }
    let mean = 20;
    let variance = counts.iter().map(|count| (count - mean) * (count - mean)).sum::<i64>() / 2_000;
    assert!((17..24).contains(&variance), "{variance}");
}
