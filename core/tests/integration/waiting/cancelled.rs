//! Tests of reserved places that are refunded because their callers were cancelled.

use proptest::prelude::*;
use tokio::time::{Instant, sleep, timeout};

use super::common::{Bucket, check_bound, limiter, micros, ms, recording, settle};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Without defect B51, if waiting callers are cancelled, the next caller waits as if these
    /// callers had never called. The test cancels callers only after all callers have reserved a
    /// place, because a later caller can get a refunded place.
    #[test]
    fn b51_the_next_caller_waits_as_if_the_cancelled_had_never_called(
        rate in 1_u64..200, capacity in 1_u64..10,
        callers in prop::collection::vec((1_u64..4, prop::option::of(1_u64..3_000)), 1..40),
        then in 0_u64..3_000,
    ) {
        crate::run(async {
            let store = recording();
            let (mut all, mut kept) = (Bucket::new(rate, capacity), Bucket::new(rate, capacity));
            let limiter = limiter(store.clone(), &all.policy()).max_wait(ms(10_000_000));
            let mut cancelled = 0;
            for &(cost, patience) in &callers {
                let cost = cost.min(capacity);
                let wait = all.book(0, cost);
                let is_cancelled = patience.is_some_and(|patience| patience * 1_000 < wait);
                let leaves_at = patience.filter(|_| is_cancelled).unwrap_or(10_000_000);
                if is_cancelled { cancelled += 1 } else { kept.book(0, cost); }
                let limiter = limiter.clone();
                tokio::spawn(async move {
                    let waiting = limiter.subject("s").cost(cost).acquire_within(ms(10_000_000));
                    timeout(ms(leaves_at), waiting).await
                });
                tokio::task::yield_now().await;
            }
            sleep(ms(3_000 + then)).await;
            settle().await;
            let waiting = limiter.subject("s").reserve(ms(10_000_000)).await.unwrap();
            prop_assert_eq!(micros(waiting.wait()), kept.book((3_000 + then) * 1_000, 1));
            prop_assert_eq!(store.as_layer().refunds(), cancelled);
            Ok(())
        })?;
    }

    /// In any interval from the start, when the bucket is full, the bucket admits at most its
    /// bound, even if callers are cancelled. In other intervals, it admits at most its bound plus
    /// the refunded costs.
    #[test]
    fn refunds_admit_no_more_than_was_refunded(
        rate in 1_u64..300, capacity in 1_u64..10,
        callers in prop::collection::vec((0_u64..60, 1_u64..4, prop::option::of(0_u64..400)), 1..60),
    ) {
        crate::run(async {
            let bucket = Bucket::new(rate, capacity);
            let limiter = limiter(recording(), &bucket.policy()).max_wait(ms(10_000_000));
            let started = Instant::now();
            let mut tasks = vec![];
            for &(gap, cost, patience) in &callers {
                sleep(ms(gap)).await;
                let (limiter, cost) = (limiter.clone(), cost.min(capacity));
                tasks.push(tokio::spawn(async move {
                    let waiting = limiter.subject("s").cost(cost).acquire_within(ms(10_000_000));
                    let is_admitted = timeout(ms(patience.unwrap_or(10_000_000)), waiting).await.is_ok();
                    (is_admitted, micros(started.elapsed()), cost)
                }));
            }
            let (mut admissions, mut refunded) = (vec![], 0);
            for task in tasks {
                let (is_admitted, at, cost) = task.await.unwrap();
                if is_admitted { admissions.push((at, cost)) } else { refunded += cost }
            }
            check_bound(bucket, &admissions, refunded, 1_000)?;
            admissions.sort_unstable();
            let mut sum = 0;
            for (at, cost) in admissions {
                sum += cost;
                prop_assert!(sum * 1_000_000 <= capacity * 1_000_000 + (at + 1_000) * rate);
            }
            prop_assert_eq!(limiter.waiters(), 0);
            Ok(())
        })?;
    }
}

/// If a caller is dropped after the time of its reserved place, the place is not refunded. Other
/// callers have possibly used the refill since that time, so a refund would admit too much.
#[test]
fn b51_a_place_whose_time_has_come_is_not_refunded() {
    crate::run(async {
        let store = recording();
        let limiter = limiter(store.clone(), "gcra 1/1s");
        let _ = limiter.until_ready("s").await.unwrap();
        let mut forgotten = Box::pin(limiter.until_ready("s"));
        assert!(timeout(ms(0), &mut forgotten).await.is_err());
        sleep(ms(1_000)).await;
        drop(forgotten);
        settle().await;
        assert_eq!((store.as_layer().refunds(), limiter.waiters()), (0, 0));
    });
}

/// A reserved place is still refunded if its caller is cancelled one microsecond before the time of
/// the place.
#[test]
fn b51_a_place_is_refunded_up_to_its_time() {
    crate::run(async {
        let store = recording();
        let limiter = limiter(store.clone(), "gcra 1/1s");
        let _ = limiter.until_ready("s").await.unwrap();
        let mut waiting = Box::pin(limiter.until_ready("s"));
        assert!(timeout(ms(0), &mut waiting).await.is_err());
        tokio::time::advance(std::time::Duration::from_micros(999_999)).await;
        drop(waiting);
        assert_eq!(store.as_layer().refunds(), 1);
        assert_eq!(
            limiter.until_ready("s").await.unwrap().wait(),
            std::time::Duration::from_micros(1)
        );
    });
}

/// Without defect B51, if a wait is cancelled, a shadow policy that denied gets no refund, because
/// it was not charged.
#[test]
fn b51_only_charged_policies_are_refunded() {
    crate::run(async {
        let store = recording();
        let policies = ["gcra 1/1s".parse().unwrap(), "slow: gcra 1/1h shadow".parse().unwrap()];
        let limiter = tidegate_core::Limiter::new(store.clone(), policies).unwrap();
        let _ = limiter.until_ready("s").await.unwrap();
        assert!(timeout(ms(10), limiter.until_ready("s")).await.is_err());
        assert_eq!(store.as_layer().refunds(), 1);
        let waits = limiter.subject("s").peek().await.unwrap();
        let waits = waits.verdicts().iter().map(|verdict| verdict.retry_after().unwrap());
        assert_eq!(waits.collect::<Vec<_>>(), [ms(990), ms(3_599_990)]);
    });
}
