//! Tests of leases: each admitted cost was charged, each unspent cost is returned once, and no
//! caller waits forever.
//!
//! The virtual time advances only if no task can run, or if a test advances it. Tests check that no
//! time has passed, because otherwise only a timer has woken a caller. A chunk ends only if a test
//! advances the time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use shuttle::future::{JoinHandle, spawn};
use tidegate_core::layers::LeasedStore;
use tidegate_core::{Lease, Limiter, Operation, Policy, Share, StoreExt, scheduled};

use crate::explore::{Seen, explore, idle, join, some_time};
use crate::server::{Entry, Server, VirtualClock};

type Store = LeasedStore<Server, VirtualClock>;

/// A server, and a node that leases each subject from its first call on.
struct Node {
    server: Server,
    store: Store,
    limiter: Limiter<Store>,
    policy: Policy,
    admitted: Arc<AtomicU64>,
}

impl Node {
    fn new(limit: u64) -> Self {
        Self::with_leases(limit, 4)
    }

    fn with_leases(limit: u64, max_leases: usize) -> Self {
        let server = Server::new();
        let all = Share::new(1, 1).expect("a share");
        let lease = Lease::new().hot_after(1).max_share(all).max_leases(max_leases);
        let store = server.clone().leased(lease.clock(VirtualClock));
        let policy: Policy = format!("fixed-window {limit}/1d").parse().expect("a policy");
        let limiter = Limiter::new(store.clone(), [policy.clone()]).expect("a limiter");
        Self { server, store, limiter, policy, admitted: Arc::default() }
    }

    /// Spawns a task that makes calls one after another.
    fn caller(&self, subject: &'static str, calls: usize) -> JoinHandle<()> {
        let (limiter, admitted) = (self.limiter.clone(), Arc::clone(&self.admitted));
        spawn(async move {
            for _ in 0..calls {
                let decision = limiter.acquire(subject).await.expect("an answer");
                admitted.fetch_add(u64::from(decision.is_allowed()), SeqCst);
            }
        })
    }

    fn admitted(&self) -> u64 {
        self.admitted.load(SeqCst)
    }

    fn used(&self, subject: &str) -> u64 {
        self.server.used(&self.policy, subject)
    }
}

fn assert_no_time_has_passed() {
    assert_eq!(scheduled::now(), Duration::ZERO, "a caller was woken only by a timer");
}

#[test]
fn one_node_admits_just_the_limit_however_chunks_and_calls_cross() {
    static LOCAL: Seen = Seen::new();
    static WAITED: Seen = Seen::new();
    explore(|| async {
        let node = Node::new(8);
        join([node.caller("s", 4), node.caller("s", 4), node.caller("s", 3)]).await;
        assert_no_time_has_passed();
        assert_eq!(node.admitted(), 8);
        assert_eq!(node.used("s"), 8);
        LOCAL.record(node.store.stats().local() > 0);
        let is_denied = |entry: &&Entry| entry.operation == Operation::Acquire && !entry.is_allowed;
        WAITED.record(node.server.ledger().calls.iter().filter(is_denied).count() > 3);
    });
    LOCAL.assert("a call that a chunk admits");
    WAITED.assert("a call that the store refuses and a chunk admits");
}

#[test]
fn one_node_admits_just_the_limit_while_chunks_are_returned() {
    static GIVEN_BACK: Seen = Seen::new();
    explore(|| async {
        let node = Node::new(8);
        let (limiter, admitted) = (node.limiter.clone(), Arc::clone(&node.admitted));
        let up_to = spawn(async move {
            for _ in 0..2 {
                let request = limiter.subject("s").cost(2).acquire_up_to(1);
                let decision = request.await.expect("an answer");
                admitted.fetch_add(decision.amounts().iter().sum(), SeqCst);
            }
        });
        join([node.caller("s", 4), node.caller("s", 3), up_to]).await;
        assert_no_time_has_passed();
        assert_eq!(node.admitted(), 8);
        assert_eq!(node.used("s"), 8);
        GIVEN_BACK.record(node.store.stats().given_back() > 0);
    });
    GIVEN_BACK.assert("a chunk that is returned");
}

/// The number of calls equals the limit, so each call must be admitted, also while the node has or
/// receives a chunk.
#[test]
fn each_of_as_many_calls_as_the_limit_is_admitted() {
    explore(|| async {
        for (limit, calls) in [(5, [4, 1, 0]), (6, [2, 2, 2]), (7, [5, 1, 1])] {
            let node = Node::new(limit);
            join(calls.map(|calls| node.caller("s", calls))).await;
            assert_eq!(node.admitted(), limit);
            node.store.close().await;
        }
        assert_no_time_has_passed();
    });
}

#[test]
fn an_acquire_up_to_includes_a_chunk_for_which_another_caller_adds_the_lease() {
    static GIVEN_BACK: Seen = Seen::new();
    explore(|| async {
        let node = Node::new(8);
        let other = node.caller("s", 1);
        node.caller("s", 1).await.expect("it is not cancelled");
        // Either of the two calls adds the lease, because the call of `other` may still be in
        // flight.
        let request = node.limiter.subject("s").cost(8).acquire_up_to(1);
        let amounts = request.await.expect("an answer").amounts().to_vec();
        join([other]).await;
        assert_no_time_has_passed();
        assert_eq!(node.admitted() + amounts.iter().sum::<u64>(), 8);
        GIVEN_BACK.record(node.store.stats().given_back() > 0);
    });
    GIVEN_BACK.assert("a chunk that is returned");
}

#[test]
fn a_call_larger_than_the_chunk_gets_the_chunk_that_is_returned_for_another_call() {
    static GIVEN_BACK: Seen = Seen::new();
    explore(|| async {
        let node = Node::new(7);
        node.caller("s", 1).await.expect("it is not cancelled");
        idle().await;
        // The first call used 1 and the node got a chunk of 4, so 2 of the limit of 7 remain in the
        // store.
        assert_eq!((node.used("s"), node.admitted()), (5, 1));
        let (limiter, time) = (node.limiter.clone(), scheduled::now());
        let large = spawn(async move {
            let request = limiter.subject("s").cost(5).acquire();
            assert!(request.await.expect("an answer").is_allowed());
        });
        let limiter = node.limiter.clone();
        let up_to = spawn(async move {
            let request = limiter.subject("s").cost(1).acquire_up_to(1);
            assert_eq!(request.await.expect("an answer").amounts(), [1]);
        });
        join([large, up_to]).await;
        assert_eq!(scheduled::now(), time, "a caller was woken only by a timer");
        GIVEN_BACK.record(node.store.stats().given_back() > 0);
    });
    GIVEN_BACK.assert("a chunk that is returned");
}

#[test]
fn closing_returns_all_unspent_costs_whatever_is_in_flight() {
    static CROSSED: Seen = Seen::new();
    explore(|| async {
        let node = Node::new(1_000);
        let callers = [node.caller("s", 3), node.caller("s", 3)];
        some_time().await;
        node.store.close().await;
        let (stats, at_close) = (node.store.stats(), node.store.stats().chunks());
        join(callers).await;
        // The test waits for tasks that calls have started while the leases were closed.
        idle().await;
        CROSSED.record(stats.chunks() > at_close);
        assert_eq!(node.used("s"), node.admitted());
        assert!(stats.is_empty(), "no lease is added after the close: {stats:?}");
        let local = stats.local();
        node.caller("s", 1).await.expect("it is not cancelled");
        assert_eq!(stats.local(), local, "the store decides each call");
    });
    CROSSED.assert("a chunk that is granted after the leases were closed");
}

#[test]
fn dropping_the_last_clone_returns_all_unspent_costs() {
    static IN_FLIGHT: Seen = Seen::new();
    explore(|| async {
        let Node { server, store, limiter, policy, admitted } = Node::new(1_000);
        let stats = store.stats();
        drop(store);
        let callers = [limiter.clone(), limiter].map(|limiter| {
            let admitted = Arc::clone(&admitted);
            spawn(async move {
                for _ in 0..3 {
                    let decision = limiter.acquire("s").await.expect("an answer");
                    admitted.fetch_add(u64::from(decision.is_allowed()), SeqCst);
                }
            })
        });
        join(callers).await;
        let holds = |server: &Server| server.allowed(|operation| operation == Operation::Hold);
        let before = holds(&server);
        idle().await;
        IN_FLIGHT.record(holds(&server) > before);
        assert_eq!(server.used(&policy, "s"), admitted.load(SeqCst));
        assert!(stats.is_empty());
    });
    IN_FLIGHT.assert("a chunk that is granted after the last clone was dropped");
}

#[test]
fn each_cost_that_is_admitted_after_a_reset_is_charged_after_it() {
    static GIVEN_BACK: Seen = Seen::new();
    explore(|| async {
        let node = Node::new(1_000);
        let is_reset = Arc::new(AtomicBool::new(false));
        let after = Arc::new(AtomicU64::new(0));
        let callers = [(); 2].map(|()| {
            let (limiter, is_reset) = (node.limiter.clone(), Arc::clone(&is_reset));
            let after = Arc::clone(&after);
            spawn(async move {
                for _ in 0..4 {
                    let begins_after = is_reset.load(SeqCst);
                    let decision = limiter.acquire("s").await.expect("an answer");
                    after.fetch_add(u64::from(begins_after && decision.is_allowed()), SeqCst);
                }
            })
        });
        some_time().await;
        node.limiter.subject("s").reset().await.expect("an answer");
        is_reset.store(true, SeqCst);
        GIVEN_BACK.record(node.store.stats().given_back() > 0);
        join(callers).await;
        node.store.close().await;
        assert_no_time_has_passed();
        assert_eq!(node.store.stats().stranded(), 0);
        assert!(after.load(SeqCst) <= node.used("s"), "{after:?} of {}", node.used("s"));
    });
    GIVEN_BACK.assert("a chunk that is returned before a reset");
}

#[test]
fn a_refund_returns_the_used_cost_and_no_chunk_twice() {
    static GIVEN_BACK: Seen = Seen::new();
    explore(|| async {
        let node = Node::new(1_000);
        let callers = [node.caller("s", 3), node.caller("s", 3)];
        let limiter = node.limiter.clone();
        let refunds = spawn(async move {
            for _ in 0..2 {
                let decision = limiter.acquire("s").await.expect("an answer");
                assert!(decision.is_allowed());
                let receipt = limiter.subject("s").refund().await.expect("an answer");
                assert_eq!(receipt.amounts(), [1]);
            }
        });
        join(callers.into_iter().chain([refunds])).await;
        GIVEN_BACK.record(node.store.stats().given_back() > 0);
        node.store.close().await;
        assert_no_time_has_passed();
        assert_eq!(node.store.stats().stranded(), 0);
        assert_eq!(node.used("s"), node.admitted());
    });
    GIVEN_BACK.assert("a chunk that is returned before a refund");
}

#[test]
fn when_tasks_are_dropped_no_caller_waits_for_them_and_others_fetch_chunks_again() {
    static FETCHED: Seen = Seen::new();
    explore(|| async {
        let node = Node::new(9);
        let callers = [node.caller("s", 4), node.caller("s", 4), node.caller("s", 4)];
        some_time().await;
        scheduled::cancel_tasks();
        join(callers).await;
        assert_no_time_has_passed();
        assert!(node.admitted() <= node.used("s"));
        // The dropped task must not count as a fetch in flight, so that later calls can fetch
        // chunks.
        let chunks = node.store.stats().chunks();
        node.limiter.subject("s").reset().await.expect("an answer");
        idle().await;
        scheduled::advance(Duration::from_secs(1));
        for _ in 0..3 {
            node.caller("s", 1).await.expect("it is not cancelled");
            idle().await;
        }
        assert!(node.store.stats().chunks() > chunks);
        FETCHED.record(chunks > 0);
    });
    FETCHED.assert("a chunk that is granted before tasks are dropped");
}

/// The dropped task fetches a chunk for the caller. If the layer woke the caller before the end of
/// this fetch, the caller would wait for the fetch again, forever.
#[test]
fn a_caller_that_waits_for_a_dropped_task_continues_after_the_end_of_the_fetch() {
    static REFUSED: Seen = Seen::new();
    explore(|| async {
        let node = Node::new(5);
        node.caller("s", 1).await.expect("it is not cancelled");
        let second = node.caller("s", 1);
        some_time().await;
        scheduled::cancel_tasks();
        join([second]).await;
        assert_no_time_has_passed();
        REFUSED.record(node.admitted() == 1);
    });
    REFUSED.assert("a call that is refused because the chunk that it waits for is lost");
}

#[test]
fn leases_that_replace_each_other_lose_nothing_as_time_passes() {
    static REPLACED: Seen = Seen::new();
    explore(|| async {
        let node = Node::with_leases(1_000, 1);
        let callers = [node.caller("a", 3), node.caller("b", 3), node.caller("a", 2)];
        some_time().await;
        scheduled::advance(Duration::from_millis(1_500));
        join(callers).await;
        REPLACED.record(node.store.stats().chunks() > 1);
        node.store.close().await;
        assert!(node.store.stats().is_empty());
        let used = node.used("a") + node.used("b");
        assert_eq!(used, node.admitted() + node.store.stats().stranded());
    });
    REPLACED.assert("a lease in place of another");
}
