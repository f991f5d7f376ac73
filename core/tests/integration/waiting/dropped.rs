//! Tests against defect B52: callers are dropped under load.

use std::sync::Arc;

use tidegate_core::{ErrorKind, StoreExt, TokioClock};
use tidegate_memory::MemoryStore;

use super::common::{RecordCalls, Slow, limiter, ms, settle, tasks};

/// A thousand callers are dropped while their calls are in flight or while they wait. Without
/// defect B52, no task and no waiter is left afterwards.
#[test]
fn b52_no_task_and_no_waiter_is_left_when_all_callers_are_dropped() {
    crate::run(async {
        for policy in ["gcra 100/1s", "sliding-log 100/1s"] {
            let store = Arc::new(MemoryStore::builder().clock(TokioClock::new()).build());
            let recording = Arc::clone(&store).layer(Slow(ms(20))).layer(RecordCalls::new());
            let limiter = limiter(Arc::new(recording), policy);
            let mut callers = vec![];
            for caller in 0..1_000 {
                let limiter = limiter.clone();
                callers.push(tokio::spawn(async move { limiter.until_ready("s").await }));
                if caller % 20 == 0 {
                    tokio::time::sleep(ms(1)).await;
                }
            }
            assert!(tasks() > 500);
            callers.iter().for_each(tokio::task::JoinHandle::abort);
            settle().await;
            assert_eq!(limiter.waiters(), 0);
            // Within 100 ms, the calls in flight end, and their charges are refunded.
            tokio::time::sleep(ms(100)).await;
            assert_eq!((tasks(), limiter.waiters()), (0, 0), "{policy}");
            tokio::time::sleep(ms(1_000)).await;
            assert!(limiter.until_ready("s").await.unwrap().wait() < ms(21), "{policy}");
        }
    });
}

/// Without defect B52, when the callers and the limiter are dropped, the store is dropped too.
#[test]
fn b52_the_store_is_dropped_with_the_limiter() {
    crate::run(async {
        let store = Arc::new(MemoryStore::builder().clock(TokioClock::new()).build());
        let limiter = limiter(Arc::clone(&store).layer(Slow(ms(20))), "gcra 1/1s");
        for wait in [0, 5, 15, 50] {
            let limiter = limiter.clone();
            tokio::spawn(async move {
                let _ = tokio::time::timeout(ms(wait), limiter.until_ready("s")).await;
            });
        }
        drop(limiter);
        tokio::time::sleep(ms(200)).await;
        assert_eq!((tasks(), Arc::strong_count(&store)), (0, 1));
    });
}

/// The runtime ends while callers wait and calls are in flight. No code is allowed to panic.
#[test]
fn a_runtime_may_end_while_callers_wait() {
    for _ in 0..20 {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(2).enable_all().build().unwrap();
        let slow = MemoryStore::new().layer(Slow(ms(3)));
        let (slow, fast) = (limiter(slow, "gcra 1/1h"), limiter(MemoryStore::new(), "gcra 1/1h"));
        let (slow, fast) = (slow.max_wait(ms(360_000_000)), fast.max_wait(ms(360_000_000)));
        for _ in 0..50 {
            let (slow, fast) = (slow.clone(), fast.clone());
            runtime
                .spawn(async move { tokio::join!(slow.until_ready("s"), fast.until_ready("s")) });
        }
        std::thread::sleep(ms(2));
        drop(runtime);
        assert_eq!((slow.waiters(), fast.waiters()), (0, 0));
    }
}

/// The future of a waiting caller can be dropped outside of a runtime. The reserved place of the
/// caller is refunded on the runtime in which the caller waited.
#[test]
fn b51_a_future_may_be_dropped_outside_of_the_runtime() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().worker_threads(1).build().unwrap();
    let store = Arc::new(MemoryStore::new().layer(Slow(ms(1)))).layer(RecordCalls::new());
    let limiter = limiter(store.clone(), "gcra 1/1h").max_wait(ms(360_000_000));
    let mut waiting = Box::pin(limiter.until_ready("s"));
    assert!(runtime.block_on(&mut waiting).is_ok());
    let mut waiting = Box::pin(limiter.until_ready("s"));
    runtime.block_on(async { tokio::time::timeout(ms(200), &mut waiting).await }).unwrap_err();
    drop(waiting);
    runtime.block_on(async {
        while store.as_layer().refunds() == 0 || tasks() > 0 {
            tokio::task::yield_now().await;
        }
    });
    assert_eq!(limiter.waiters(), 0);
}

#[test]
fn without_a_runtime_there_is_an_error() {
    let limiter = limiter(MemoryStore::new(), "gcra 1/1h");
    let mut waiting = Box::pin(limiter.until_ready("s"));
    let waker = std::task::Waker::noop();
    let poll = Future::poll(waiting.as_mut(), &mut std::task::Context::from_waker(waker));
    match poll {
        std::task::Poll::Ready(Err(error)) => assert_eq!(error.kind(), ErrorKind::Unsupported),
        other => panic!("{other:?}"),
    }
}
