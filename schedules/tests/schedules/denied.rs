//! Tests of the deny cache. If the cache denies a call, the limit was reached at some time during
//! the call.

use std::sync::{Arc, Mutex};

use shuttle::future::{JoinHandle, spawn};
use tidegate_core::layers::{DenyCacheStats, DenyCacheStore};
use tidegate_core::{DenyCache, Limiter, Operation, Policy, StoreExt};

use crate::explore::{Seen, cancel, explore, join};
use crate::server::{Entry, Server, VirtualClock};

const LIMIT: usize = 2;

/// A server, and a node that caches the denials of the server.
struct Node {
    server: Server,
    limiter: Limiter<DenyCacheStore<Server, VirtualClock>>,
    stats: DenyCacheStats,
    /// If a refund or reset is in flight, the number of calls that were executed before its start.
    freeing: Arc<Mutex<Option<usize>>>,
}

#[derive(Debug, Clone, Copy)]
enum Frees {
    One,
    All,
}

impl Node {
    fn new() -> Self {
        let server = Server::new();
        // Each schedule creates a cache. A cache of the minimum size is created quickly.
        let cache = DenyCache::new().max_bytes(0).clock(VirtualClock);
        let store = server.clone().deny_cache(cache);
        let stats = store.stats();
        let policy: Policy = format!("fixed-window {LIMIT}/1d").parse().expect("a policy");
        let limiter = Limiter::new(store, [policy]).expect("a limiter");
        Self { server, limiter, stats, freeing: Arc::default() }
    }

    /// Spawns a task that makes calls one after another, and checks each denial.
    fn caller(&self, calls: usize) -> JoinHandle<()> {
        let (server, limiter) = (self.server.clone(), self.limiter.clone());
        let freeing = Arc::clone(&self.freeing);
        spawn(async move {
            for _ in 0..calls {
                let begin = server.ledger().calls.len();
                // While a refund or reset is in flight, the store may not have executed it yet, so
                // the cache may still return earlier denials.
                let begin =
                    freeing.lock().expect("no panic").map_or(begin, |other| other.min(begin));
                let decision = limiter.acquire("s").await.expect("an answer");
                let is_right = decision.is_allowed()
                    || was_full(&server.ledger().calls).skip(begin).any(|is_full| is_full);
                assert!(is_right, "denied, but not full since {begin}: {:?}", server.ledger());
            }
        })
    }

    /// Spawns a task that refunds one charge or resets the state. Only one such task may run at a
    /// time.
    fn free(&self, what: Frees) -> JoinHandle<()> {
        let (server, limiter) = (self.server.clone(), self.limiter.clone());
        let freeing = Arc::clone(&self.freeing);
        spawn(async move {
            let _freeing = Freeing::new(freeing, &server);
            let subject = limiter.subject("s");
            match what {
                Frees::One => drop(subject.refund().await.expect("an answer")),
                Frees::All => drop(subject.reset().await.expect("an answer")),
            }
        })
    }
}

/// Returns whether the limit was reached at the start, and after each of the executed `calls`.
fn was_full(calls: &[Entry]) -> impl Iterator<Item = bool> + '_ {
    let used = calls.iter().scan(0_usize, |used, call| {
        *used = match call.operation {
            Operation::Refund => used.saturating_sub(1),
            Operation::Reset => 0,
            _ => *used + usize::from(call.is_allowed),
        };
        Some(*used >= LIMIT)
    });
    std::iter::once(false).chain(used)
}

/// A guard for a refund or reset in flight, until it is answered or cancelled.
struct Freeing(Arc<Mutex<Option<usize>>>);

impl Freeing {
    fn new(freeing: Arc<Mutex<Option<usize>>>, server: &Server) -> Self {
        *freeing.lock().expect("no panic") = Some(server.ledger().calls.len());
        Self(freeing)
    }
}

impl Drop for Freeing {
    fn drop(&mut self) {
        *self.0.lock().expect("no panic") = None;
    }
}

#[test]
fn a_denial_is_right_at_some_time_during_its_call() {
    static HIT: Seen = Seen::new();
    static HIT_AND_FREED: Seen = Seen::new();
    explore(|| async {
        let node = Node::new();
        let callers = [node.caller(4), node.caller(4), node.caller(4)];
        join([node.free(Frees::All)]).await;
        join([node.free(Frees::One)]).await;
        let hits = node.stats.hits();
        join([node.free(Frees::One)]).await;
        join(callers).await;
        HIT.record(node.stats.hits() > 0);
        HIT_AND_FREED.record(hits > 0);
    });
    HIT.assert("a denial from the cache");
    HIT_AND_FREED.assert("a refund while denials are cached");
}

#[test]
fn a_refund_that_is_given_up_leaves_no_denial_from_before() {
    static CANCELLED: Seen = Seen::new();
    static CARRIED_OUT: Seen = Seen::new();
    explore(|| async {
        let node = Node::new();
        join([node.caller(LIMIT)]).await;
        let callers = [node.caller(3), node.caller(3)];
        let is_cancelled = cancel(node.free(Frees::All)).await.is_none();
        CANCELLED.record(is_cancelled);
        let carried_out = node.server.allowed(|operation| operation == Operation::Reset);
        CARRIED_OUT.record(is_cancelled && carried_out > 0);
        join([node.caller(1)]).await;
        join(callers).await;
    });
    CANCELLED.assert("a reset that is given up");
    CARRIED_OUT.assert("a reset that is given up after it was carried out");
}
