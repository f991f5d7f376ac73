//! How many may wait.

use std::sync::Arc;

use tidegate_core::{ErrorKind, Limiter};
use tidegate_memory::MemoryStore;
use tokio::time::timeout;

use super::common::{limiter, ms, noted, settle};

#[test]
fn as_many_wait_as_may_and_one_more_books_nothing() {
    crate::run(async {
        let store = noted();
        let limiter = limiter(store.clone(), "gcra 1/1s burst 3").max_waiters(7);
        let callers: Vec<_> = (0..50)
            .map(|_| {
                let limiter = limiter.clone();
                tokio::spawn(async move { limiter.until_ready("s").await })
            })
            .collect();
        settle().await;
        assert_eq!(limiter.waiters(), 7);
        assert_eq!(store.as_layer().reserves(), 3 + 7);
        let (mut passed, mut too_many) = (0, 0);
        for caller in callers {
            match caller.await.unwrap() {
                Ok(_) => passed += 1,
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::TooManyWaiters);
                    too_many += 1;
                }
            }
        }
        // Three at once, seven in their turn, the last at 7 s; and nothing is owed but its place.
        assert_eq!((passed, too_many, limiter.waiters()), (10, 40, 0));
        assert_eq!(limiter.until_ready("s").await.unwrap().wait(), ms(1_000));
    });
}

/// On a runtime of four threads, with callers who give up all the time.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn never_more_wait_than_may_whoever_comes_and_goes_at_once() {
    let limiter = limiter(Arc::new(MemoryStore::new()), "gcra 1/1h").max_waiters(3);
    let callers: Vec<_> = (0..8)
        .map(|_| {
            let limiter = limiter.clone();
            tokio::spawn(async move {
                let mut refused = 0;
                for turn in 0..300_u64 {
                    let wait = limiter.subject("s").acquire_within(ms(36_000_000_000));
                    match timeout(ms(turn % 2), wait).await {
                        Ok(Err(error)) => {
                            assert_eq!(error.kind(), ErrorKind::TooManyWaiters);
                            refused += 1;
                        }
                        Ok(Ok(decision)) => assert!(decision.wait().is_zero()),
                        Err(_) => (),
                    }
                    assert!(limiter.waiters() <= 3);
                }
                refused
            })
        })
        .collect();
    let mut refused = 0;
    for caller in callers {
        refused += caller.await.unwrap();
    }
    assert!(refused > 0);
    assert_eq!(limiter.waiters(), 0);
}

#[test]
fn who_need_not_wait_passes_even_when_too_many_do() {
    crate::run(async {
        for policy in ["gcra 1/1h", "fixed-window 1/1h anchored"] {
            let limiter = limiter(noted(), policy).max_waiters(1).max_wait(ms(7_200_000));
            assert!(limiter.until_ready("hot").await.is_ok());
            let waiter = tokio::spawn({
                let limiter = limiter.clone();
                async move { limiter.until_ready("hot").await }
            });
            settle().await;
            assert_eq!(limiter.waiters(), 1);
            let error = limiter.until_ready("hot").await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::TooManyWaiters);
            assert!(error.to_string().contains("1 callers wait"), "{error}");
            assert!(limiter.until_ready("cold").await.is_ok());
            waiter.abort();
        }
    });
}

/// Who would be refused anyhow is refused, not turned away.
#[test]
fn too_many_waiters_do_not_hide_a_refusal() {
    crate::run(async {
        for policy in ["gcra 1/1h", "fixed-window 1/1h anchored"] {
            let limiter = limiter(noted(), policy).max_waiters(0);
            assert!(limiter.until_ready("s").await.is_ok());
            // An hour is beyond 30 s; and two at once are beyond the limit.
            let error = limiter.until_ready("s").await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::WaitTooLong);
            assert!(
                limiter
                    .subject("s")
                    .cost(2)
                    .acquire_within(ms(9_000_000))
                    .await
                    .unwrap()
                    .is_denied()
            );
        }
    });
}

#[test]
fn clones_count_together_and_keep_bounds_of_their_own() {
    crate::run(async {
        let limiter = limiter(noted(), "gcra 1/1h").max_wait(ms(36_000_000));
        let narrow: Limiter<_> = limiter.clone().max_waiters(2);
        let _ = limiter.until_ready("s").await.unwrap();
        let waiters: Vec<_> = (0..2)
            .map(|_| {
                let limiter = limiter.clone();
                tokio::spawn(async move { limiter.until_ready("s").await })
            })
            .collect();
        settle().await;
        assert_eq!((limiter.waiters(), narrow.waiters()), (2, 2));
        assert!(narrow.until_ready("s").await.is_err());
        assert!(timeout(ms(10), limiter.until_ready("s")).await.is_err(), "it waits");
        waiters.iter().for_each(tokio::task::JoinHandle::abort);
        settle().await;
        assert_eq!(narrow.waiters(), 0);
    });
}

#[test]
fn no_time_to_wait_needs_no_seat() {
    crate::run(async {
        let limiter = limiter(noted(), "gcra 1/1h").max_waiters(0);
        assert!(limiter.subject("s").acquire_within(ms(0)).await.unwrap().is_allowed());
        assert!(limiter.subject("s").acquire_within(ms(0)).await.unwrap().is_denied());
    });
}
