//! Places that were booked and given back.

use proptest::prelude::*;
use tokio::time::{Instant, sleep, timeout};

use super::common::{Bucket, limiter, micros, ms, never_more, noted, settle};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// B51: after any of those who wait have gone, the next comer waits as if they had never been.
    /// (None goes at once, as the places that they give back would be there for who books after them.)
    #[test]
    fn b51_the_next_comer_waits_as_if_the_cancelled_had_never_been(
        rate in 1_u64..200, capacity in 1_u64..10,
        callers in prop::collection::vec((1_u64..4, prop::option::of(1_u64..3_000)), 1..40),
        then in 0_u64..3_000,
    ) {
        crate::run(async {
            let store = noted();
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

    /// Whoever comes and goes: never more than the bucket since it was full; and in no interval more
    /// than that and the places that were given back.
    #[test]
    fn what_is_given_back_lets_no_more_pass_than_was_given_back(
        rate in 1_u64..300, capacity in 1_u64..10,
        callers in prop::collection::vec((0_u64..60, 1_u64..4, prop::option::of(0_u64..400)), 1..60),
    ) {
        crate::run(async {
            let bucket = Bucket::new(rate, capacity);
            let limiter = limiter(noted(), &bucket.policy()).max_wait(ms(10_000_000));
            let started = Instant::now();
            let mut tasks = vec![];
            for &(gap, cost, patience) in &callers {
                sleep(ms(gap)).await;
                let (limiter, cost) = (limiter.clone(), cost.min(capacity));
                tasks.push(tokio::spawn(async move {
                    let waiting = limiter.subject("s").cost(cost).acquire_within(ms(10_000_000));
                    let passed = timeout(ms(patience.unwrap_or(10_000_000)), waiting).await.is_ok();
                    (passed, micros(started.elapsed()), cost)
                }));
            }
            let (mut passes, mut given_back) = (vec![], 0);
            for task in tasks {
                let (passed, at, cost) = task.await.unwrap();
                if passed { passes.push((at, cost)) } else { given_back += cost }
            }
            never_more(bucket, &passes, given_back, 1_000)?;
            passes.sort_unstable();
            let mut sum = 0;
            for (at, cost) in passes {
                sum += cost;
                prop_assert!(sum * 1_000_000 <= capacity * 1_000_000 + (at + 1_000) * rate);
            }
            prop_assert_eq!(limiter.waiters(), 0);
            Ok(())
        })?;
    }
}

/// A place whose time has come counts as used, however late its caller is dropped: by then it may be
/// that others have passed in the time that is refilled, which a refund would give away once more.
#[test]
fn b51_a_place_whose_time_has_come_is_not_given_back() {
    crate::run(async {
        let store = noted();
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

/// One microsecond before, it is.
#[test]
fn b51_a_place_is_given_back_up_to_its_time() {
    crate::run(async {
        let store = noted();
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

/// B51: a shadow that would have refused was not charged, so there is nothing of it to give back.
#[test]
fn b51_only_what_was_taken_is_given_back() {
    crate::run(async {
        let store = noted();
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
