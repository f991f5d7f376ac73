//! A node refuses no call because of its own chunks, even while the chunks are being fetched or
//! returned.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::{Call, Charge, Operation, Policy, Share, Store};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::chunks::{eager, load, policy, remaining};
use super::world::{NodeStore, Quality, Server, node_with};

/// A link with a delay of up to 30 ms in each direction.
const SLOW: Quality = Quality { max_delay: 30_000, lost: 0 };

const SPAN: Duration = Duration::from_millis(200);

async fn ask(store: &NodeStore, policy: &Policy, cost: u64) -> bool {
    let charges = [Charge::new(policy, "s").cost(cost)];
    store.decide(Call::acquire(&charges)).await.unwrap().is_allowed()
}

const LIMIT: u64 = 1_000;

/// The amount that remains in the store when a test begins.
const SPARE: u64 = 5;

/// Returns a node with leases, and the unspent cost of its chunks, including chunks in flight.
/// Other callers have used the rest of the limit, except for the amount [`SPARE`].
async fn node_with_last_chunks(
    server: &Arc<Server>,
    policy: &Policy,
    seed: u64,
) -> (NodeStore, u64) {
    let share = Share::new(1, 4).unwrap();
    let lease = eager().span(SPAN).max_share(share);
    let (store, _) = node_with(server, lease, SLOW, seed, 0);
    load(&store, policy, 500, Duration::from_millis(400)).await;
    let (used, left) = (store.stats().local() + store.stats().passed(), remaining(server, policy));
    let others = [Charge::new(policy, "s").cost(left - SPARE)];
    assert!(server.store.decide_now(&Call::acquire(&others)).unwrap().is_allowed());
    (store, LIMIT - used - left)
}

/// Runs the test 300 times, at different times after the load: 0 ms, 2 ms, and so on up to 598 ms.
/// Within these 598 ms, the node returns all its chunks.
fn at_many_times(test: &impl AsyncFn(&Arc<Server>, Policy, NodeStore, u64)) {
    let mut total_held = 0;
    for after in (0..600).step_by(2) {
        crate::run(async {
            let (server, policy) = (Server::new(), policy("p: fixed-window 1000/1h"));
            let (store, held) = node_with_last_chunks(&server, &policy, after).await;
            total_held += held;
            sleep(Duration::from_millis(after)).await;
            test(&server, policy, store, held).await;
        });
    }
    assert!(total_held > 5_000, "{total_held}");
}

#[test]
fn the_unspent_cost_of_a_node_is_admitted_at_any_time() {
    at_many_times(&async |_, policy, store, held| {
        let mut callers = JoinSet::new();
        for _ in 0..held + SPARE {
            let (store, policy) = (store.clone(), policy.clone());
            callers.spawn(async move { ask(&store, &policy, 1).await });
        }
        let admitted =
            callers.join_all().await.into_iter().filter(|is_allowed| *is_allowed).count();
        assert_eq!(admitted as u64, held + SPARE);
    });
}

#[test]
fn the_chunks_that_are_returned_for_a_cancelled_caller_are_not_lost() {
    at_many_times(&async |server, policy, store, held| {
        for patience in [1, 10, 40] {
            // The call needs both the unspent cost of the chunks and the amount that remains in the
            // store.
            let all = ask(&store, &policy, held + SPARE);
            let _ = timeout(Duration::from_millis(patience), all).await;
        }
        sleep(Duration::from_secs(2)).await;
        let left = remaining(server, &policy);
        assert!(left == held + SPARE || left == 0, "{left} of {held} and {SPARE}");
    });
}

#[test]
fn an_acquire_up_to_gets_the_unspent_cost_of_the_node_at_any_time() {
    at_many_times(&async |_, policy, store, held| {
        let charges = [Charge::new(&policy, "s").cost(LIMIT)];
        let up_to = store.decide(Call::new(Operation::AcquireUpTo { min: 1 }, &charges)).await;
        assert_eq!(up_to.unwrap().amounts(), [held + SPARE]);
    });
}

/// While `close` returns the chunks, a concurrent call needs the cost of these chunks. The call
/// must wait, and then be admitted.
#[test]
fn the_chunks_of_a_closing_store_are_admitted_at_any_time() {
    at_many_times(&async |_, policy, store, held| {
        let closing = store.clone();
        let closed = tokio::spawn(async move { closing.close().await });
        let all = timeout(Duration::from_secs(5), ask(&store, &policy, held + SPARE)).await;
        assert_eq!(all, Ok(true), "a waiting caller must be woken");
        closed.await.unwrap();
    });
}
