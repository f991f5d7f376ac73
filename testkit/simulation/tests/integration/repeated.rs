//! Tests that two simulations with the same seed have the same ledger.

use tidegate_core::{DenyCache, Lease, Share, StoreExt};
use tidegate_simulation::{Ledger, Link, Load, Simulation};

use super::{micros, millis, policy, server};

fn run(seed: u64, nodes: usize, rate: u64) -> Ledger {
    let link = Link::new().delay(micros(50)..=millis(4)).lost(Share::new(1, 50).unwrap());
    Simulation::new(seed).nodes(nodes).link(link.timeout(millis(100))).clock_error(500).run(
        server,
        |host| {
            let lease = Lease::new().hot_after(3).span(millis(300)).max_leases(20);
            let leased = host.link().coalesced().leased(lease.clock(host.clock()));
            leased.deny_cache(DenyCache::new().max_bytes(4_096).clock(host.clock()))
        },
        async move |world| {
            let policy = policy("p: fixed-window 3000/200ms");
            let load = Load::new(&policy).subjects(40).per_second(rate).lasting(millis(500));
            let load = world.start(load);
            for node in world.nodes().iter().step_by(3) {
                world.sleep(micros(500)).await;
                node.kill();
            }
            load.await;
            for node in world.nodes() {
                tokio::spawn({
                    let node = node.clone();
                    async move { node.store().inner().close().await }
                });
            }
            world.sleep(millis(50)).await;
        },
    )
}

#[test]
fn the_same_seed_gives_the_same_ledger() {
    for seed in 0..4 {
        let (one, two) = (run(seed, 12, 30_000), run(seed, 12, 30_000));
        assert!(one.admitted_at_once() > 1_000, "{}", one.admitted_at_once());
        assert!(one.to_string() == two.to_string(), "seed {seed}");
        assert!(one == two);
    }
    assert!(run(1, 12, 30_000).to_string() != run(2, 12, 30_000).to_string());
}

#[test]
fn a_thousand_nodes_give_the_same_ledger() {
    let (one, two) = (run(7, 1_000, 100_000), run(7, 1_000, 100_000));
    assert!(one.to_string() == two.to_string());
    let nodes: std::collections::BTreeSet<_> =
        one.requests().iter().map(|request| request.node).collect();
    // Not all nodes make requests: some nodes are killed before their first request.
    assert!(nodes.len() > 900, "{}", nodes.len());
    assert!(one.requests().len() > 30_000, "{}", one.requests().len());
}
