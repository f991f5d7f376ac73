//! Leases: what is admitted has been charged, what is not used comes back once, and no caller waits for ever.
//!
//! All chunks are of one window, and none ends in these scenarios, unless time is moved: so each call is admitted at
//! the time 0, and a caller that is woken only by a timer is one that was forgotten.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use shuttle::future::{JoinHandle, spawn};
use tidegate_core::layers::LeasedStore;
use tidegate_core::{Lease, Limiter, Operation, Policy, Share, StoreExt, scheduled};

use crate::explore::{Seen, explore, idle, join, some_time};
use crate::server::{Entry, Server, VirtualClock};

type Store = LeasedStore<Server, VirtualClock>;

/// A server, and a node that leases from it each subject from the first call on.
struct Node {
    server: Server,
    store: Store,
    limiter: Limiter<Store>,
    policy: Policy,
    /// Calls that were admitted.
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

    /// A task that makes calls one after another.
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
    assert_eq!(scheduled::now(), Duration::ZERO, "only a timer has woken a caller");
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
        let is_denied = |it: &&Entry| it.operation == Operation::Acquire && !it.is_allowed;
        WAITED.record(node.server.ledger().calls.iter().filter(is_denied).count() > 3);
    });
    LOCAL.assert("a call that is admitted from a chunk");
    WAITED.assert("a call that the store refuses, and that is admitted from a chunk");
}

#[test]
fn one_node_admits_just_the_limit_while_chunks_go_back() {
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
    GIVEN_BACK.assert("a chunk that goes back");
}

/// No later call takes the place of one that is refused although a chunk is here, or has just come.
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
fn as_much_as_there_is_includes_a_chunk_whose_lease_another_caller_is_making() {
    static GIVEN_BACK: Seen = Seen::new();
    explore(|| async {
        let node = Node::new(8);
        let other = node.caller("s", 1);
        node.caller("s", 1).await.expect("it is not cancelled");
        // The subject is leased: by this call or the other one, which may not have ended.
        let request = node.limiter.subject("s").cost(8).acquire_up_to(1);
        let amounts = request.await.expect("an answer").amounts().to_vec();
        join([other]).await;
        assert_no_time_has_passed();
        assert_eq!(node.admitted() + amounts.iter().sum::<u64>(), 8);
        GIVEN_BACK.record(node.store.stats().given_back() > 0);
    });
    GIVEN_BACK.assert("a chunk that goes back");
}

#[test]
fn a_call_larger_than_what_is_here_gets_what_goes_back_for_another() {
    static GIVEN_BACK: Seen = Seen::new();
    explore(|| async {
        let node = Node::new(7);
        node.caller("s", 1).await.expect("it is not cancelled");
        idle().await;
        // A chunk of 4 is here, and 2 are left in the store.
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
        assert_eq!(scheduled::now(), time, "only a timer has woken a caller");
        GIVEN_BACK.record(node.store.stats().given_back() > 0);
    });
    GIVEN_BACK.assert("a chunk that goes back");
}

#[test]
fn closing_gives_back_all_that_was_not_used_whatever_is_on_its_way() {
    static CROSSED: Seen = Seen::new();
    explore(|| async {
        let node = Node::new(1_000);
        let callers = [node.caller("s", 3), node.caller("s", 3)];
        some_time().await;
        node.store.close().await;
        let (stats, at_close) = (node.store.stats(), node.store.stats().chunks());
        join(callers).await;
        // What calls have begun that were under way while it was closed.
        idle().await;
        CROSSED.record(stats.chunks() > at_close);
        assert_eq!(node.used("s"), node.admitted());
        assert!(stats.is_empty(), "no lease is made after that: {stats:?}");
        let local = stats.local();
        node.caller("s", 1).await.expect("it is not cancelled");
        assert_eq!(stats.local(), local, "the store decides on each call");
    });
    CROSSED.assert("a chunk that is granted after the leases were closed");
}

#[test]
fn dropping_the_last_clone_gives_back_all_that_was_not_used() {
    static ON_ITS_WAY: Seen = Seen::new();
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
        let holds = |server: &Server| server.allowed(|it| it == Operation::Hold);
        let before = holds(&server);
        idle().await;
        ON_ITS_WAY.record(holds(&server) > before);
        assert_eq!(server.used(&policy, "s"), admitted.load(SeqCst));
        assert!(stats.is_empty());
    });
    ON_ITS_WAY.assert("a chunk that is granted after the last clone was dropped");
}

#[test]
fn what_is_admitted_after_a_reset_is_charged_after_it() {
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
fn a_refund_gives_back_what_was_used_and_no_chunk_twice() {
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
        // A dropped task has not marked its fetch as under way for ever.
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

/// There is one task, so that nothing else wakes the caller if that task does it too early.
#[test]
fn a_caller_that_waits_for_a_dropped_task_goes_on_when_its_fetch_has_ended() {
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
    REFUSED.assert("a call that is refused, as the chunk that it waits for is lost");
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
