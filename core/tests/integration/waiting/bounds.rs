//! Tests of the maximum number of callers that wait.

use std::sync::Arc;

use tidegate_core::{ErrorKind, Limiter};
use tidegate_memory::MemoryStore;
use tokio::time::timeout;

use super::common::{limiter, ms, recording, settle};

#[test]
fn at_most_the_maximum_waits_and_one_more_caller_books_nothing() {
    crate::run(async {
        let store = recording();
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
        let (mut admitted, mut too_many) = (0, 0);
        for caller in callers {
            match caller.await.unwrap() {
                Ok(_) => admitted += 1,
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::TooManyWaiters);
                    too_many += 1;
                }
            }
        }
        // Three callers proceed immediately. Seven callers reserve a place in the bucket's queue
        // and wait for it, up to 7 s. All other callers reserve no place.
        assert_eq!((admitted, too_many, limiter.waiters()), (10, 40, 0));
        assert_eq!(limiter.until_ready("s").await.unwrap().wait(), ms(1_000));
    });
}

/// Eight tasks on four threads make calls, and many of these calls are cancelled. At most three
/// callers must wait at the same time.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn never_more_than_the_maximum_wait_with_concurrent_callers() {
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
fn a_caller_that_need_not_wait_proceeds_even_if_too_many_wait() {
    crate::run(async {
        for policy in ["gcra 1/1h", "fixed-window 1/1h anchored"] {
            let limiter = limiter(recording(), policy).max_waiters(1).max_wait(ms(7_200_000));
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

/// If waiting would not help a caller, the caller gets the refusal and not the error for too many
/// waiters.
#[test]
fn too_many_waiters_do_not_hide_a_refusal() {
    crate::run(async {
        for policy in ["gcra 1/1h", "fixed-window 1/1h anchored"] {
            let limiter = limiter(recording(), policy).max_waiters(0);
            assert!(limiter.until_ready("s").await.is_ok());
            // The wait of an hour exceeds the default maximum of 30 s, and a cost of 2 exceeds the
            // limit.
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
fn clones_share_the_count_of_waiters_and_have_separate_bounds() {
    crate::run(async {
        let limiter = limiter(recording(), "gcra 1/1h").max_wait(ms(36_000_000));
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
        assert!(timeout(ms(10), limiter.until_ready("s")).await.is_err(), "the caller waits");
        waiters.iter().for_each(tokio::task::JoinHandle::abort);
        settle().await;
        assert_eq!(narrow.waiters(), 0);
    });
}

#[test]
fn a_caller_without_time_to_wait_does_not_count_as_a_waiter() {
    crate::run(async {
        let limiter = limiter(recording(), "gcra 1/1h").max_waiters(0);
        assert!(limiter.subject("s").acquire_within(ms(0)).await.unwrap().is_allowed());
        assert!(limiter.subject("s").acquire_within(ms(0)).await.unwrap().is_denied());
    });
}
