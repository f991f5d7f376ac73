//! Tests against defect B45 with threads: after a refund has returned, the cache must not refuse a
//! call.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tidegate_core::layers::Layer;
use tidegate_core::{
    Answer, Call, Charge, Decision, DenyCache, Error, Operation, Policy, Store, StoreExt,
};
use tidegate_memory::MemoryStore;
use tidegate_testkit::decide_one_by_one;
use tokio::task::yield_now;

use super::common::policy;

/// A layer that yields a different number of times for each call, before and after the store
/// decides.
#[derive(Debug, Default)]
struct Slow {
    calls: AtomicUsize,
}

impl<S: Store> Layer<S> for Slow {
    const MAY_WAIT: bool = true;

    fn decide<'a>(&'a self, inner: &'a S, call: Call<'a>) -> Answer<'a, Result<Decision, Error>> {
        let number = self.calls.fetch_add(1, Ordering::Relaxed);
        Answer::later(async move {
            for _ in 0..number % 5 {
                yield_now().await;
            }
            let answer = inner.decide(call).await;
            for _ in 0..number % 7 {
                yield_now().await;
            }
            answer
        })
    }

    fn decide_many<'a>(
        &'a self,
        inner: &'a S,
        calls: &'a [Call<'a>],
    ) -> Answer<'a, Vec<Result<Decision, Error>>> {
        decide_one_by_one(self, inner, calls)
    }
}

async fn is_allowed(store: &impl Store, operation: Operation, policy: &Policy) -> bool {
    let charge = [Charge::new(policy, "s")];
    store.decide(Call::new(operation, &charge)).await.unwrap().is_allowed()
}

#[test]
fn b45_after_a_refund_no_call_is_refused_from_the_cache() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let slow = MemoryStore::new().layer(Slow::default());
    let store = Arc::new(slow.deny_cache(DenyCache::new()));
    let log = policy("sliding-log 1/24h");
    let is_over = Arc::new(AtomicBool::new(false));
    runtime.block_on(async {
        // The tasks in `peeking` only peek, so that no task makes acquires at the same time as the
        // test.
        let peeking: Vec<_> = (0..6)
            .map(|_| {
                let (store, log, is_over) = (Arc::clone(&store), log.clone(), Arc::clone(&is_over));
                tokio::spawn(async move {
                    while !is_over.load(Ordering::Relaxed) {
                        is_allowed(&*store, Operation::Peek, &log).await;
                        yield_now().await;
                    }
                })
            })
            .collect();
        for round in 0..3_000 {
            assert!(is_allowed(&*store, Operation::Acquire, &log).await, "round {round}");
            assert!(!is_allowed(&*store, Operation::Acquire, &log).await, "round {round}");
            if round % 2 == 0 {
                yield_now().await;
            } else {
                // The cache refuses this call.
                assert!(!is_allowed(&*store, Operation::Acquire, &log).await, "round {round}");
            }
            is_allowed(&*store, Operation::Refund, &log).await;
            assert!(is_allowed(&*store, Operation::Peek, &log).await, "round {round}");
        }
        is_over.store(true, Ordering::Relaxed);
        for task in peeking {
            task.await.unwrap();
        }
    });
    assert!(store.stats().hits() > 0, "{:?}", store.stats());
}
