//! Tests of callers that wait for a reserved place in the queue of a bucket.

use proptest::prelude::*;
use tokio::time::{Instant, sleep};

use super::common::{Bucket, check_bound, limiter, micros, ms, recording};

prop_compose! {
    fn bucket()(rate in 1_u64..2_000, capacity in 1_u64..20) -> Bucket {
        Bucket::new(rate, capacity)
    }
}

/// Returns a strategy for callers, in the order of their calls. Each caller has the pause since the
/// previous caller in milliseconds, and a cost.
fn arrivals() -> impl Strategy<Value = Vec<(u64, u64)>> {
    let gap = prop_oneof![3 => Just(0_u64), 2 => 0_u64..20, 1 => 0_u64..3_000];
    prop::collection::vec((gap, 1_u64..4), 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Without defect B51, each caller waits exactly as long as the definition of the bucket says,
    /// and proceeds in its turn. In no interval is more admitted than the bucket allows, and each
    /// caller costs the store one call.
    #[test]
    fn b51_all_callers_proceed_in_their_turn_never_early_and_late_by_at_most_a_timers_grain(
        bucket in bucket(), arrivals in arrivals(),
    ) {
        crate::run(async {
            let store = recording();
            let limiter = limiter(store.clone(), &bucket.policy());
            let (started, mut model) = (Instant::now(), bucket);
            let mut callers = vec![];
            for &(gap, cost) in &arrivals {
                sleep(ms(gap)).await;
                let arrived = started.elapsed();
                let cost = cost.min(bucket.capacity);
                let limiter = limiter.clone();
                let caller = tokio::spawn(async move {
                    let decision = limiter.subject("s").cost(cost).acquire_within(ms(3_600_000));
                    (decision.await.unwrap(), started.elapsed())
                });
                // After this yield, the caller has called the store.
                tokio::task::yield_now().await;
                callers.push((caller, arrived, cost, model.book(micros(arrived), cost)));
            }
            let mut admissions = vec![];
            for (caller, arrived, cost, wait) in callers {
                let (decision, admitted) = caller.await.unwrap();
                prop_assert!(decision.is_allowed());
                prop_assert_eq!(micros(decision.wait()), wait);
                let waited = micros(admitted - arrived);
                prop_assert!(wait <= waited && waited <= wait + 1_000, "{} for {}", waited, wait);
                admissions.push((micros(admitted), cost));
            }
            prop_assert!(admissions.is_sorted_by_key(|&(admitted, _)| admitted), "first come, first served");
            check_bound(bucket, &admissions, 0, 1_000)?;
            prop_assert_eq!(store.as_layer().reserves(), arrivals.len());
            prop_assert_eq!(store.as_layer().calls().len(), arrivals.len());
            prop_assert_eq!(limiter.waiters(), 0);
            Ok(())
        })?;
    }

    /// While at least one caller waits, the full rate is admitted, regardless of the number and
    /// rhythm of the callers.
    #[test]
    fn the_rate_is_met_exactly_while_a_caller_waits(
        rate in 1_u64..90, capacity in 1_u64..20, workers in 1_usize..6,
    ) {
        let admissions = crate::run(async {
            let policy = Bucket::new(rate, capacity).policy();
            let limiter = limiter(recording(), &policy);
            let started = Instant::now();
            let work = |_| {
                let limiter = limiter.clone();
                tokio::spawn(async move {
                    let mut admissions = vec![];
                    loop {
                        let _ = limiter.until_ready("s").await.unwrap();
                        if started.elapsed() > ms(10_000) {
                            break admissions;
                        }
                        admissions.push((micros(started.elapsed()), 1));
                    }
                })
            };
            let mut admissions = vec![];
            for worker in (0..workers).map(work).collect::<Vec<_>>() {
                admissions.extend(worker.await.unwrap());
            }
            admissions
        });
        prop_assert_eq!(admissions.len() as u64, capacity + rate * 10);
        check_bound(Bucket::new(rate, capacity), &admissions, 0, 1_000)?;
    }
}

/// Timers have a resolution of a millisecond. If all reserved places are at whole milliseconds,
/// each caller proceeds exactly at its place.
#[test]
fn on_the_timers_grid_no_caller_is_late() {
    crate::run(async {
        let limiter = limiter(recording(), "gcra 100/1s burst 3");
        let started = Instant::now();
        for turn in 0..50_u64 {
            let _ = limiter.until_ready("s").await.unwrap();
            assert_eq!(started.elapsed(), ms(turn.saturating_sub(2) * 10));
        }
    });
}

#[test]
fn a_caller_can_wait_for_a_bucket_by_intervals() {
    crate::run(async {
        let limiter = limiter(recording(), "token-bucket 3/1s burst 3 by-interval");
        let started = Instant::now();
        let mut seconds = vec![];
        for _ in 0..10 {
            let _ = limiter.until_ready("s").await.unwrap();
            seconds.push(started.elapsed().as_secs());
        }
        assert_eq!(seconds, [0, 0, 0, 1, 1, 1, 2, 2, 2, 3]);
    });
}

#[test]
fn the_slowest_of_several_buckets_decides_and_all_are_charged_once() {
    crate::run(async {
        let store = recording();
        let policies = ["fast: gcra 10/1s".parse().unwrap(), "slow: gcra 1/1s".parse().unwrap()];
        let limiter = tidegate_core::Limiter::new(store.clone(), policies).unwrap();
        let started = Instant::now();
        let decisions =
            [limiter.until_ready("s").await.unwrap(), limiter.until_ready("s").await.unwrap()];
        assert_eq!(decisions.map(|decision| decision.wait()), [ms(0), ms(1_000)]);
        assert_eq!((started.elapsed(), store.as_layer().reserves()), (ms(1_000), 2));
    });
}

/// A caller that would wait too long gets an error immediately and reserves no place.
#[test]
fn a_wait_beyond_the_maximum_is_an_error_immediately() {
    crate::run(async {
        let limiter = limiter(recording(), "gcra 1/1s").max_wait(ms(2_000));
        let started = Instant::now();
        let (a, b, c, d) = tokio::join!(
            limiter.until_ready("s"),
            limiter.until_ready("s"),
            limiter.until_ready("s"),
            async {
                let refused = limiter.until_ready("s").await.unwrap_err();
                assert_eq!(started.elapsed(), ms(0));
                refused
            },
        );
        assert!([a, b, c].iter().all(Result::is_ok));
        assert_eq!(
            d.to_string(),
            "wait-too-long: the wait would be 3s; it must be at most 2s (`max_wait`)"
        );
        // It is 2 s now, because the third caller has waited for 2 s. The refused caller has
        // reserved no place, so the next place is free after 1 s.
        assert_eq!(limiter.subject("s").reserve(ms(9_000)).await.unwrap().wait(), ms(1_000));
    });
}

#[test]
fn a_cost_that_can_never_be_admitted_is_refused_immediately() {
    crate::run(async {
        let limiter = limiter(recording(), "gcra 5/1s");
        let decision = limiter.subject("s").cost(6).acquire_within(ms(u64::MAX)).await.unwrap();
        assert!(decision.is_denied());
        assert_eq!(decision.retry_after(), None);
    });
}
