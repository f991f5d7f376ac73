//! Tests of refusals that are too early: a node never refuses because of its own chunks, and rarely
//! because of the chunks of other nodes.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::{Call, Charge, Lease, Store};
use tokio::time::sleep;

use super::chunks::{eager, load, policy, remaining};
use super::world::{Quality, Random, Server, node_with};

/// If there is only one node, no call is refused before the limit is reached.
#[test]
fn one_node_gets_just_the_limit() {
    for text in ["p: fixed-window 1000/1h", "p: gcra 1/1h burst 1000", "p: sliding-log 1000/1h"] {
        for costs in [1, 3] {
            crate::run(async {
                let (server, policy) = (Server::new(), policy(text));
                let (store, _) = super::world::node(&server, eager().sliding(), Quality::GOOD);
                let (mut admitted, mut refused, mut call) = (0, false, 0);
                while !refused || admitted < 1_000 {
                    call += 1;
                    let cost = if refused { 1 } else { 1 + call % costs };
                    let charges = [Charge::new(&policy, "s").cost(cost)];
                    let decision = store.decide(Call::acquire(&charges)).await.unwrap();
                    if decision.is_allowed() {
                        admitted += cost;
                    } else {
                        assert!(admitted + cost > 1_000, "{text}: refused at {admitted}");
                        refused = true;
                    }
                    sleep(Duration::from_micros(300)).await;
                }
                assert!(store.stats().local() > 200, "{text}: {:?}", store.stats());
                assert_eq!(remaining(&server, &policy), 0);
            });
        }
    }
}

/// As many requests as the limit are spread over 8 nodes. At most 0.5 % of the requests are refused
/// too early, and at most 1 % of the limit is unused at the end.
#[test]
fn little_is_refused_too_early_over_eight_nodes() {
    const LIMIT: u64 = 40_000;
    crate::run(async {
        let server = Server::new();
        let policy = policy("p: fixed-window 40000/1h");
        let mut tasks = vec![];
        for number in 0..8 {
            let quality = Quality { max_delay: 1_000, lost: 0 };
            let (store, _) = node_with(&server, Lease::new(), quality, number, 0);
            let policy = policy.clone();
            tasks.push(tokio::spawn(async move {
                let mut random = Random(number);
                let (mut refused, mut local) = (0_u64, 0_u64);
                for _ in 0..LIMIT / 8 {
                    sleep(Duration::from_micros(random.below(400))).await;
                    let charges = [Charge::new(&policy, "s")];
                    match store.decide(Call::acquire(&charges)).into_ready() {
                        Ok(_) => local += 1,
                        Err(later) => refused += u64::from(later.await.unwrap().is_denied()),
                    }
                }
                (refused, local, store)
            }));
        }
        let (mut refused, mut local, mut stores) = (0, 0, vec![]);
        for task in tasks {
            let (node_refused, node_local, store) = task.await.unwrap();
            (refused, local) = (refused + node_refused, local + node_local);
            stores.push(store);
        }
        println!(
            "of {LIMIT} requests, {local} were admitted from chunks, and {refused} were refused too early"
        );
        assert!(refused <= LIMIT / 200, "{refused}");
        assert!(local > LIMIT / 2, "{local}");
        assert!(remaining(&server, &policy) <= LIMIT / 100);
        for store in stores {
            store.close().await;
        }
        assert_eq!(
            remaining(&server, &policy),
            refused,
            "the cost of the refused requests remains at the end"
        );
    });
}

/// If a node is killed, the unspent cost of its chunks stays charged. This cost is at most 1 % of
/// the limit.
#[test]
fn little_is_stranded_by_a_killed_node() {
    for rate in [2_000, 20_000] {
        crate::run(async {
            let (server, policy) = (Server::new(), policy("p: fixed-window 100000/1h"));
            let server = Arc::clone(&server);
            let (store, link) = super::world::node(&server, Lease::new(), Quality::GOOD);
            load(&store, &policy, rate, Duration::from_millis(1_500)).await;
            link.kill();
            let used = store.stats().local() + store.stats().passed();
            let stranded = 100_000 - remaining(&server, &policy) - used;
            println!("at {rate}/s, {stranded} of 100,000 were stranded");
            assert!(stranded <= 1_000, "{stranded}");
        });
    }
}
