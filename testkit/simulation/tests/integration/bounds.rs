//! Tests of the maximum cost that nodes admit. The maximum must not be exceeded with any layer,
//! seed or fault.

use std::time::Duration;

use proptest::prelude::*;
use tidegate_core::{Breaker, DenyCache, Lease, Policy, Share, Store, StoreExt};
use tidegate_simulation::{Host, Ledger, Link, Load, Simulation};

use super::{micros, millis, policy, server};

/// The layers around the `LinkStore` of a node.
#[derive(Debug, Clone, Copy)]
enum Layers {
    None,
    Coalesced,
    Leased,
    LeasedAndCoalesced,
    Cached,
    Broken,
}

#[derive(Debug, Clone)]
struct Scenario {
    seed: u64,
    layers: Layers,
    nodes: usize,
    max_delay: u64,
    lost: u32,
    span: u64,
    rate: u64,
    killed: usize,
    is_away: bool,
}

fn scenarios() -> impl Strategy<Value = Scenario> {
    let layers = prop_oneof![
        Just(Layers::None),
        Just(Layers::Coalesced),
        Just(Layers::Leased),
        Just(Layers::LeasedAndCoalesced),
        Just(Layers::Cached),
        Just(Layers::Broken),
    ];
    let link = (prop_oneof![Just(200_u64), Just(5_000), Just(60_000)], 0..15_u32);
    let load = (prop_oneof![Just(20_u64), Just(150), Just(700)], 500..8_000_u64);
    (any::<u64>(), layers, 1..20_usize, link, load, 0..4_usize, any::<bool>()).prop_map(
        |(seed, layers, nodes, (max_delay, lost), (span, rate), killed, is_away)| Scenario {
            seed,
            layers,
            nodes,
            max_delay,
            lost,
            span,
            rate,
            killed,
            is_away,
        },
    )
}

fn store(layers: Layers, host: &Host, span: u64) -> Box<dyn Store> {
    let (link, clock) = (host.link(), host.clock());
    let share = Share::new(1, 4).unwrap();
    let lease = Lease::new().span(millis(span)).hot_after(3).max_share(share).clock(clock.clone());
    match layers {
        Layers::None => Box::new(link),
        Layers::Coalesced => Box::new(link.coalesced()),
        Layers::Leased => Box::new(link.leased(lease)),
        Layers::LeasedAndCoalesced => Box::new(link.coalesced().leased(lease)),
        Layers::Cached => Box::new(link.deny_cache(DenyCache::new().clock(clock))),
        Layers::Broken => {
            let breaker = Breaker::new().failures(3).open_for(millis(20)).clock(clock);
            Box::new(link.timeout(millis(40)).breaker(breaker).or_fail_closed())
        }
    }
}

fn play(scenario: &Scenario, policy: &Policy) -> Ledger {
    let lost = Share::new(scenario.lost, 100).unwrap();
    let link = Link::new().delay(micros(20)..=micros(scenario.max_delay)).lost(lost);
    let simulation = Simulation::new(scenario.seed).nodes(scenario.nodes).clock_error(999);
    let (layers, span) = (scenario.layers, scenario.span);
    let (scenario, policy) = (scenario.clone(), policy.clone());
    simulation.link(link.timeout(millis(200))).run(
        server,
        |host| store(layers, &host, span),
        async move |world| {
            let load = Load::new(&policy).per_second(scenario.rate).lasting(millis(1_000));
            let load = world.start(load.cost(1..=2));
            for node in world.nodes().iter().take(scenario.killed) {
                world.sleep(millis(100)).await;
                node.kill();
            }
            if scenario.is_away {
                world.set_server_away(true);
                world.sleep(millis(100)).await;
                world.set_server_away(false);
            }
            load.await;
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn never_more_than_the_limit_in_a_fixed_window(scenario in scenarios(), limit in 20..600_u64, is_short: bool) {
        let window = millis(if is_short { 250 } else { 1_000 });
        let ledger = play(&scenario, &policy(&format!("p: fixed-window {limit}/{}ms", window.as_millis())));
        for admitted in ledger.admissions().in_windows(window) {
            prop_assert!(admitted <= limit, "{admitted} of {limit}");
        }
    }

    /// Checks the bound of a bucket with burst `B` and rate `R`. With leases, the cost that is
    /// admitted in any time `t` is at most `B + R·(t + span)`. Without leases, it is at most `B +
    /// R·t`.
    #[test]
    fn a_bucket_is_shifted_by_the_span_at_most(scenario in scenarios(), burst in 20..200_u64, rate in 50..2_000_u64) {
        let ledger = play(&scenario, &policy(&format!("p: token-bucket {rate}/1s burst {burst}")));
        let span = match scenario.layers {
            Layers::Leased | Layers::LeasedAndCoalesced => scenario.span,
            _ => 0,
        };
        let max = burst + (rate * span).div_ceil(1_000);
        let burst = ledger.admissions().burst_above(rate);
        prop_assert!(burst <= max, "{burst}, at most {max}");
    }

    /// Checks that one node can use the whole limit if there are no faults.
    #[test]
    fn one_node_can_use_the_whole_limit(scenario in scenarios(), limit in 20..200_u64) {
        let scenario = Scenario {
            nodes: 1, lost: 0, killed: 0, is_away: false, rate: 2_000, max_delay: 500, ..scenario
        };
        let ledger = play(&scenario, &policy(&format!("p: fixed-window {limit}/1h")));
        // The requests have costs of 1 and 2. If the remaining amount is 1 and all later requests
        // have a cost of 2, this amount stays unused.
        prop_assert!(ledger.admissions().total() + 1 >= limit, "{} of {limit}", ledger.admissions().total());
        prop_assert_eq!(ledger.admissions().max_within(Duration::from_secs(3_600)), ledger.admissions().total());
    }
}
