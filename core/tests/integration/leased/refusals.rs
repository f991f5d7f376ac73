//! A node does not refuse what it holds itself: in a chunk, or on its way to it or back to the store.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::{Call, Charge, Policy, Share, Store};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::chunks::{eager, load, policy, remaining};
use super::world::{NodeStore, Quality, Server, node};

/// Each direction takes up to 30 ms.
const SLOW: Quality = Quality { max_delay: 30_000, lost: 0 };

const SPAN: Duration = Duration::from_millis(200);

async fn ask(store: &NodeStore, policy: &Policy, cost: u64) -> bool {
    let charges = [Charge::new(policy, "s").cost(cost)];
    store.decide(Call::acquire(&charges)).await.unwrap().is_allowed()
}

/// A node that has made requests, and so leases. All that it does not hold has been taken by others. Tells what it holds:
/// in chunks, or on the way.
async fn all_that_is_left(server: &Arc<Server>, policy: &Policy) -> (NodeStore, u64) {
    let share = Share::new(1, 4).unwrap();
    let (store, _) = node(server, eager().span(SPAN).max_share(share), SLOW);
    load(&store, policy, 500, Duration::from_millis(400)).await;
    let (used, left) = (store.stats().local() + store.stats().passed(), remaining(server, policy));
    let others = [Charge::new(policy, "s").cost(left)];
    assert!(server.store.decide_now(&Call::acquire(&others)).unwrap().is_allowed());
    (store, 1_000 - used - left)
}

/// At each moment in the life of the chunks, until all is back.
fn at_each_moment(test: impl AsyncFn(&Arc<Server>, Policy, NodeStore, u64)) {
    let mut held_at_all = 0;
    for after in (0..600).step_by(2) {
        crate::run(async {
            let (server, policy) = (Server::new(), policy("p: fixed-window 1000/1h"));
            let (store, held) = all_that_is_left(&server, &policy).await;
            held_at_all += held;
            sleep(Duration::from_millis(after)).await;
            test(&server, policy, store, held).await;
        });
    }
    assert!(held_at_all > 5_000, "{held_at_all}");
}

#[test]
fn what_a_node_holds_is_admitted_at_any_moment() {
    at_each_moment(async |_, policy, store, held| {
        let mut callers = JoinSet::new();
        for _ in 0..2 * held {
            let (store, policy) = (store.clone(), policy.clone());
            callers.spawn(async move { ask(&store, &policy, 1).await });
        }
        let admitted = callers.join_all().await.into_iter().filter(|it| *it).count();
        assert_eq!(admitted as u64, held);
    });
}

#[test]
fn a_caller_that_gives_up_loses_nothing_of_what_goes_back_for_it() {
    at_each_moment(async |server, policy, store, held| {
        for patience in [1, 10, 40] {
            // At once more than a chunk has.
            let _ = timeout(Duration::from_millis(patience), ask(&store, &policy, held)).await;
        }
        sleep(Duration::from_secs(2)).await;
        let left = remaining(server, &policy);
        assert!(left == held || left == 0, "{left} of {held}");
    });
}
