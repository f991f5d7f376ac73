//! Waiting by asking again.

use proptest::prelude::*;
use tidegate_core::{Limiter, Operation};
use tokio::time::{Instant, sleep};

use super::common::{limiter, micros, ms, noted, settle};

/// So many callers at once: when each has passed (µs), and how often the store was asked.
fn crowd(policy: &str, callers: usize) -> (Vec<u64>, usize) {
    crate::run(async {
        let store = noted();
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
        let mut passes = vec![];
        for caller in callers {
            passes.push(caller.await.unwrap());
        }
        passes.sort_unstable();
        assert_eq!(limiter.waiters(), 0);
        (passes, store.as_layer().calls().len())
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// All pass, one window after the other, each at most an eighth late; and each asks once more for
    /// every window that was full.
    #[test]
    fn a_crowd_at_a_fixed_window_passes_window_by_window(limit in 1_usize..8, callers in 1_usize..40) {
        let (passes, asks) = crowd(&format!("fixed-window {limit}/1s anchored"), callers);
        let rounds = callers.div_ceil(limit);
        for (place, &passed) in passes.iter().enumerate() {
            // A window begins when the first one asks in it, up to 125 ms and a timer's grain late.
            let (window, slack) = ((place / limit) as u64, 126_000);
            let bounds = window * 1_000_000..=window * (1_000_000 + slack);
            prop_assert!(bounds.contains(&passed), "{place}: {passes:?}");
        }
        let most: usize = (0..rounds).map(|round| callers - round * limit).sum();
        prop_assert!(asks <= most, "{asks} > {most}");
    }

    /// Who is refused again was overtaken: a caller asks at most once more than others pass meanwhile.
    #[test]
    fn the_asks_of_a_crowd_are_bounded_whatever_the_window(
        policy in prop::sample::select(vec!["sliding-log", "sliding-counter", "fixed-window"]),
        limit in 1_u64..6, callers in 1_usize..30,
    ) {
        let (passes, asks) = crowd(&format!("{policy} {limit}/1s"), callers);
        prop_assert_eq!(passes.len(), callers);
        prop_assert!(asks <= callers * (callers + 1) / 2, "{} asks", asks);
        if policy == "sliding-log" {
            for (first, last) in passes.iter().zip(passes.iter().skip(limit as usize)) {
                prop_assert!(last - first >= 1_000_000, "{passes:?}");
            }
        }
    }

    /// Not even one ask comes after the deadline, and no refusal takes longer than it.
    #[test]
    fn nobody_asks_after_the_deadline(
        policy in prop::sample::select(vec!["sliding-log 2/1s", "sliding-counter 2/1s", "gcra 2/1s;fixed-window 2/1s"]),
        wait in 0_u64..5_000, callers in 1_usize..30,
    ) {
        crate::run(async {
            let store = noted();
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
                // It is the last refusal that is told.
                prop_assert!(decision.is_allowed() || decision.retry_after() > Some(ms(0)));
            }
            for (operation, at) in store.as_layer().calls() {
                prop_assert_eq!(operation, Operation::Acquire);
                prop_assert!(at <= ms(wait), "asked at {:?}", at);
            }
            Ok(())
        })?;
    }
}

#[test]
fn a_refusal_that_outlasts_the_wait_is_told_at_once() {
    crate::run(async {
        let store = noted();
        let limiter = limiter(store.clone(), "fixed-window 1/1s anchored");
        let started = Instant::now();
        assert!(limiter.until_ready("s").await.is_ok());
        for (wait, cost) in [(999, 1), (60_000, 2)] {
            let decision = limiter.subject("s").cost(cost).acquire_within(ms(wait)).await.unwrap();
            assert!(decision.is_denied());
        }
        assert_eq!((started.elapsed(), store.as_layer().calls().len()), (ms(0), 3));
        // The very end of the wait is still in time.
        assert!(limiter.subject("s").acquire_within(ms(1_000)).await.unwrap().is_allowed());
        assert_eq!(started.elapsed(), ms(1_000));
    });
}

/// Between its asks a caller holds nothing that would have to be given back.
#[test]
fn b51_a_cancelled_wait_for_a_window_leaves_nothing_behind() {
    crate::run(async {
        let store = noted();
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

/// A timer that rings late does not make an ask of it: the time is over.
#[test]
fn who_wakes_after_the_deadline_asks_no_more() {
    crate::run(async {
        let store = noted();
        let limiter = limiter(store.clone(), "fixed-window 1/1s anchored");
        assert!(limiter.until_ready("s").await.is_ok());
        // A little after a second; the timer rings a millisecond after it.
        let wait = ms(1_000) + std::time::Duration::from_micros(300);
        assert!(limiter.subject("s").acquire_within(wait).await.unwrap().is_denied());
        assert_eq!(store.as_layer().calls().len(), 2);
    });
}
