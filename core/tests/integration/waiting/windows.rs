//! Tests of callers that wait for a window by repeated calls.

use proptest::prelude::*;
use tidegate_core::{CurrentLimits, LimitSet, Limiter, Operation, StoreExt};
use tokio::time::{Instant, sleep};

use super::common::{limiter, micros, ms, recording, settle};

/// Runs concurrent callers. Returns the time of each admission in microseconds, and the number of
/// calls to the store.
fn crowd(policy: &str, callers: usize) -> (Vec<u64>, usize) {
    crate::run(async {
        let store = recording();
        let limiter = limiter(store.clone(), policy).max_wait(ms(600_000));
        sleep(ms(137)).await;
        let started = Instant::now();
        let callers: Vec<_> = (0..callers)
            .map(|_| {
                let limiter = limiter.clone();
                tokio::spawn(async move {
                    let decision = limiter.until_ready("s").await.unwrap();
                    assert_eq!(decision.wait(), started.elapsed());
                    micros(started.elapsed())
                })
            })
            .collect();
        let mut admissions = vec![];
        for caller in callers {
            admissions.push(caller.await.unwrap());
        }
        admissions.sort_unstable();
        assert_eq!(limiter.waiters(), 0);
        (admissions, store.as_layer().calls().len())
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Each window admits as many callers as its limit, at most an eighth of a window late. Every
    /// caller that still waits makes one call in each window.
    #[test]
    fn a_crowd_at_a_fixed_window_is_admitted_window_by_window(limit in 1_usize..8, callers in 1_usize..40) {
        let (admissions, calls) = crowd(&format!("fixed-window {limit}/1s anchored"), callers);
        let rounds = callers.div_ceil(limit);
        for (index, &admitted) in admissions.iter().enumerate() {
            // An anchored window begins with its first admitted call. This call is made up to 126
            // ms after the end of the previous window: the jitter is at most 125 ms, and the rest
            // is the resolution of a timer.
            let (window, slack) = ((index / limit) as u64, 126_000);
            let bounds = window * 1_000_000..=window * (1_000_000 + slack);
            prop_assert!(bounds.contains(&admitted), "{index}: {admissions:?}");
        }
        let max: usize = (0..rounds).map(|round| callers - round * limit).sum();
        prop_assert!(calls <= max, "{calls} > {max}");
    }

    /// If a retry is refused, another caller was admitted before it. So a caller makes at most one
    /// call more than the number of callers that are admitted before it.
    #[test]
    fn the_calls_of_a_crowd_are_bounded_for_every_window(
        policy in prop::sample::select(vec!["sliding-log", "sliding-counter", "fixed-window"]),
        limit in 1_u64..6, callers in 1_usize..30,
    ) {
        let (admissions, calls) = crowd(&format!("{policy} {limit}/1s"), callers);
        prop_assert_eq!(admissions.len(), callers);
        prop_assert!(calls <= callers * (callers + 1) / 2, "{} calls", calls);
        if policy == "sliding-log" {
            for (first, last) in admissions.iter().zip(admissions.iter().skip(limit as usize)) {
                prop_assert!(last - first >= 1_000_000, "{admissions:?}");
            }
        }
    }

    /// No call is made after the deadline, and no refusal is returned later than the deadline.
    #[test]
    fn no_call_is_made_after_the_deadline(
        policy in prop::sample::select(vec!["sliding-log 2/1s", "sliding-counter 2/1s", "gcra 2/1s;fixed-window 2/1s"]),
        wait in 0_u64..5_000, callers in 1_usize..30,
    ) {
        crate::run(async {
            let store = recording();
            let policies = policy.split(';').enumerate().map(|(n, text)| format!("p{n}: {text}").parse().unwrap());
            let limiter = Limiter::new(store.clone(), policies).unwrap();
            let callers = (0..callers).map(|_| {
                let limiter = limiter.clone();
                tokio::spawn(async move { limiter.subject("s").acquire_within(ms(wait)).await.unwrap() })
            });
            let started = Instant::now();
            for caller in callers.collect::<Vec<_>>() {
                let decision = caller.await.unwrap();
                prop_assert!(started.elapsed() <= ms(wait + 1));
                // A caller that is not admitted gets the last refusal.
                prop_assert!(decision.is_allowed() || decision.retry_after() > Some(ms(0)));
            }
            for (operation, at) in store.as_layer().calls() {
                prop_assert_eq!(operation, Operation::Acquire);
                prop_assert!(at <= ms(wait), "called at {:?}", at);
            }
            Ok(())
        })?;
    }
}

#[test]
fn a_refusal_that_outlasts_the_wait_is_returned_immediately() {
    crate::run(async {
        let store = recording();
        let limiter = limiter(store.clone(), "fixed-window 1/1s anchored");
        let started = Instant::now();
        assert!(limiter.until_ready("s").await.is_ok());
        for (wait, cost) in [(999, 1), (60_000, 2)] {
            let decision = limiter.subject("s").cost(cost).acquire_within(ms(wait)).await.unwrap();
            assert!(decision.is_denied());
        }
        assert_eq!((started.elapsed(), store.as_layer().calls().len()), (ms(0), 3));
        // If the next window begins exactly at the deadline of the caller, the caller is still
        // admitted.
        assert!(limiter.subject("s").acquire_within(ms(1_000)).await.unwrap().is_allowed());
        assert_eq!(started.elapsed(), ms(1_000));
    });
}

/// While a caller waits for a window, nothing is charged for it. So a cancelled wait needs no
/// refund.
#[test]
fn b51_a_cancelled_wait_for_a_window_leaves_no_charge() {
    crate::run(async {
        let store = recording();
        let limiter = limiter(store.clone(), "sliding-log 1/1s");
        assert!(limiter.until_ready("s").await.is_ok());
        let waiter = tokio::spawn({
            let limiter = limiter.clone();
            async move { limiter.until_ready("s").await }
        });
        settle().await;
        assert_eq!(limiter.waiters(), 1);
        waiter.abort();
        settle().await;
        assert_eq!(
            (limiter.waiters(), store.as_layer().refunds(), store.as_layer().calls().len()),
            (0, 0, 2)
        );
    });
}

/// If a timer fires only after the deadline of the caller, the caller makes no further call.
#[test]
fn a_caller_that_wakes_after_the_deadline_makes_no_call() {
    crate::run(async {
        let store = recording();
        let limiter = limiter(store.clone(), "fixed-window 1/1s anchored");
        assert!(limiter.until_ready("s").await.is_ok());
        // The window ends at 1 s, and the deadline of the caller is 0.3 ms later. The timer fires 1
        // ms after the end of the window, so after the deadline.
        let wait = ms(1_000) + std::time::Duration::from_micros(300);
        assert!(limiter.subject("s").acquire_within(wait).await.unwrap().is_denied());
        assert_eq!(store.as_layer().calls().len(), 2);
    });
}

/// A limit set replaces a bucket by a window while the program runs. A window cannot reserve
/// places, so callers wait by repeated calls.
#[test]
fn a_bucket_that_a_limit_set_replaces_by_a_window_is_waited_for_as_a_window() {
    crate::run(async {
        let limits = CurrentLimits::new(LimitSet::new());
        let store = recording().adjusted(limits.clone());
        let limiter = Limiter::new(store, ["p: gcra 5/1s burst 1".parse().unwrap()]).unwrap();
        limiter.until_ready("a").await.unwrap();
        for (text, wait) in
            [("p: fixed-window 1/1m", ms(60_000)), ("p: gcra 1/1s burst 1", ms(1_000))]
        {
            limits.replace(text.parse().unwrap());
            let _ = limiter.subject(text).reset().await.unwrap();
            limiter.until_ready(text).await.unwrap();
            let started = Instant::now();
            let decision = limiter.subject(text).acquire_within(ms(70_000)).await.unwrap();
            assert!(decision.is_allowed(), "{text}");
            assert!(started.elapsed() <= wait && started.elapsed() >= wait / 100, "{text}");
        }
    });
}
