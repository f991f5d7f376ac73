//! A node does not refuse what it holds itself: in a chunk, or on its way to it or back to the store.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::{Call, Charge, Operation, Policy, Share, Store};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::chunks::{eager, load, policy, remaining};
use super::world::{NodeStore, Quality, Server, node_with};

/// Each direction takes up to 30 ms.
const SLOW: Quality = Quality { max_delay: 30_000, lost: 0 };

const SPAN: Duration = Duration::from_millis(200);

async fn ask(store: &NodeStore, policy: &Policy, cost: u64) -> bool {
    let charges = [Charge::new(policy, "s").cost(cost)];
    store.decide(Call::acquire(&charges)).await.unwrap().is_allowed()
}

const LIMIT: u64 = 1_000;

/// What is left in the store.
const SPARE: u64 = 5;

/// A node that has made requests, and so leases. Others have taken all that it does not hold, but for [`SPARE`]. Tells what
/// it holds: in chunks, or on the way.
async fn all_that_is_left(server: &Arc<Server>, policy: &Policy, seed: u64) -> (NodeStore, u64) {
    let share = Share::new(1, 4).unwrap();
    let lease = eager().span(SPAN).max_share(share);
    let (store, _) = node_with(server, lease, SLOW, seed, 0);
    load(&store, policy, 500, Duration::from_millis(400)).await;
    let (used, left) = (store.stats().local() + store.stats().passed(), remaining(server, policy));
    let others = [Charge::new(policy, "s").cost(left - SPARE)];
    assert!(server.store.decide_now(&Call::acquire(&others)).unwrap().is_allowed());
    (store, LIMIT - used - left)
}

/// At each moment in the life of the chunks, until all is back.
fn at_each_moment(test: &impl AsyncFn(&Arc<Server>, Policy, NodeStore, u64)) {
    let mut held_at_all = 0;
    for after in (0..600).step_by(2) {
        crate::run(async {
            let (server, policy) = (Server::new(), policy("p: fixed-window 1000/1h"));
            let (store, held) = all_that_is_left(&server, &policy, after).await;
            held_at_all += held;
            sleep(Duration::from_millis(after)).await;
            test(&server, policy, store, held).await;
        });
    }
    assert!(held_at_all > 5_000, "{held_at_all}");
}

#[test]
fn what_a_node_holds_is_admitted_at_any_moment() {
    at_each_moment(&async |_, policy, store, held| {
        let mut callers = JoinSet::new();
        for _ in 0..held + SPARE {
            let (store, policy) = (store.clone(), policy.clone());
            callers.spawn(async move { ask(&store, &policy, 1).await });
        }
        let admitted = callers.join_all().await.into_iter().filter(|it| *it).count();
        assert_eq!(admitted as u64, held + SPARE);
    });
}

#[test]
fn a_caller_that_gives_up_loses_nothing_of_what_goes_back_for_it() {
    at_each_moment(&async |server, policy, store, held| {
        for patience in [1, 10, 40] {
            // More than the chunks have, and more than the store has.
            let all = ask(&store, &policy, held + SPARE);
            let _ = timeout(Duration::from_millis(patience), all).await;
        }
        sleep(Duration::from_secs(2)).await;
        let left = remaining(server, &policy);
        assert!(left == held + SPARE || left == 0, "{left} of {held} and {SPARE}");
    });
}

#[test]
fn an_acquire_up_to_gets_what_a_node_holds_at_any_moment() {
    at_each_moment(&async |_, policy, store, held| {
        let charges = [Charge::new(&policy, "s").cost(LIMIT)];
        let up_to = store.decide(Call::new(Operation::AcquireUpTo { min: 1 }, &charges)).await;
        assert_eq!(up_to.unwrap().amounts(), [held + SPARE]);
    });
}

/// Also if no task gives it back, but a caller that ends the leases.
#[test]
fn what_goes_back_when_leases_end_is_admitted_at_any_moment() {
    at_each_moment(&async |_, policy, store, held| {
        let closing = store.clone();
        let closed = tokio::spawn(async move { closing.close().await });
        let all = timeout(Duration::from_secs(5), ask(&store, &policy, held + SPARE)).await;
        assert_eq!(all, Ok(true), "a caller that waits is woken");
        closed.await.unwrap();
    });
}
