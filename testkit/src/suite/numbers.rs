//! Properties of arithmetic: large numbers, fractions, and values that careless arithmetic would
//! round down to 0.

use std::time::Duration;

use tidegate_core::{
    Charge, FixedWindow, Operation, Policy, SlidingCounter, SlidingLog, Timestamp, TokenBucket,
};

use super::fixture::Fixture;
use super::harness::{START, case, each, each_case, policy};
use super::report::{check, check_eq};

/// Without defect B27, all requests of one instant are counted.
pub(super) fn b27_requests_of_one_instant_are_all_counted<F: Fixture>(fixture: &F) {
    for text in [
        "p: sliding-log 1000/1h",
        "p: sliding-log 1000/1h grain 1m",
        "p: fixed-window 1000/1h",
        "p: sliding-counter 1000/1h",
        "p: token-bucket 1000/1h",
        "p: gcra 1000/1h",
    ] {
        case(fixture, async |harness| {
            let policy = policy(text);
            for request in 1..=1_000 {
                let decision = harness.acquire(&policy, 1).await;
                check!(decision.is_allowed(), "{text}: request {request}");
                check_eq!(decision.verdicts()[0].remaining(), 1_000 - request, "{text}");
            }
            let _ = harness.refused(&policy, 1).await;
        });
    }
}

/// Without defect B28, a sliding log with a limit of 1,000,000 is exact. A sliding log with a limit
/// above 2^20 cannot be built.
pub(super) fn b28_a_log_of_a_million_is_exact<F: Fixture>(fixture: &F) {
    let hour = Duration::from_secs(3_600);
    check!(Policy::new("p", SlidingLog::new((1 << 20) + 1, hour)).is_err());
    let log = Policy::new("p", SlidingLog::new(1_000_000, hour)).expect("within the bounds");
    case(fixture, async |harness| {
        for step in 0..2_000 {
            harness.at(step);
            harness.take(&log, 1).await;
        }
        harness.take(&log, 998_000).await;
        let denied = harness.refused(&log, 1_500).await;
        check_eq!(denied.retry_after(), Some(hour - Duration::from_micros(500)));
        harness.at(3_600_000_000 + 1_499);
        check_eq!(harness.remaining(&log).await, 1_500);
        harness.take(&log, 1_500).await;
        let _ = harness.refused(&log, 1).await;
    });
}

/// Without defect B32, a bucket that receives a request at every microsecond admits exactly its
/// burst and the tokens that it refills.
pub(super) fn b32_fractions_do_not_drift<F: Fixture>(fixture: &F) {
    case(fixture, async |harness| {
        let bucket = policy("p: token-bucket 3/7us burst 10");
        let steps = u64::from(fixture.steps());
        let charges = [Charge::new(&bucket, "s")];
        let mut admitted = 0;
        for step in 0..10 + steps {
            // The first eleven requests are made at the start, and then one request per
            // microsecond.
            let now = step.saturating_sub(10);
            harness.at(now);
            let decision = harness.ask(Operation::Acquire, &charges).await;
            admitted += u64::from(decision.is_allowed());
        }
        check_eq!(admitted, 10 + (steps - 1) * 3 / 7);
    });
}

/// Without defect B33, times and costs near 2^52 are exact. A policy whose arithmetic would exceed
/// 2^52 cannot be built.
pub(super) fn b33_large_numbers_are_exact<F: Fixture>(fixture: &F) {
    const MAX: u64 = 1 << 52;
    let us = Duration::from_micros;
    check!(Policy::new("p", FixedWindow::new(MAX + 1, us(1))).is_err());
    check!(Policy::new("p", SlidingCounter::new(MAX, us(7))).is_err());
    check!(Policy::new("p", TokenBucket::new(1, us(7)).burst(MAX)).is_err());
    let policies = [
        Policy::new("a", FixedWindow::new(MAX, us(7)).anchored()),
        Policy::new("b", SlidingCounter::new(MAX, us(1))),
        Policy::new("c", TokenBucket::new(MAX, us(1))),
    ];
    for policy in policies.map(|policy| policy.expect("within the bounds")) {
        case(fixture, async |harness| {
            for at in [START, MAX - 1_000] {
                harness.set(at);
                harness.take(&policy, MAX - 1).await;
                check_eq!(harness.remaining(&policy).await, 1, "{policy}");
                let _ = harness.refused(&policy, 2).await;
                harness.take(&policy, 1).await;
                let denied = harness.refused(&policy, 1).await;
                check!(denied.retry_after().is_some(), "{policy}");
                check_eq!(harness.refused(&policy, MAX + 1).await.retry_after(), None);
                harness.does(Operation::Reset, &policy, 0).await;
            }
        });
    }
    // Under the slow policy, the debt of the fast one would last longer than 2^63 µs. The state
    // still ends when the fast policy would have refilled its bucket.
    for algorithm in ["by-interval", ""] {
        case(fixture, async |harness| {
            let [fast, slow] = ["20481/10241us", "1/10241us"]
                .map(|rate| policy(&format!("p: token-bucket {rate} burst 1 {algorithm}")));
            let reset = harness.does(Operation::Charge, &fast, MAX).await.reset_after();
            let denied = harness.refused(&slow, 1).await;
            check_eq!(denied.verdicts()[0].reset_after(), reset, "{slow}");
            check_eq!(denied.retry_after(), Some(reset), "{slow}");
        });
    }
}

/// Without defect B34, a block of 60 days lasts exactly 60 days.
pub(super) fn b34_a_block_of_sixty_days_lasts_sixty_days<F: Fixture>(fixture: &F) {
    let days = Duration::from_secs(60 * 86_400);
    each_case(fixture, async |harness, policy| {
        let block = Operation::Block { span: days };
        let verdict = harness.does(block, &policy, 1).await;
        check_eq!(verdict.retry_after(), Some(days), "{policy}");
        check_eq!(verdict.reset_after(), days, "{policy}");
        harness.advance(days - Duration::from_micros(1));
        let denied = harness.refused(&policy, 1).await;
        check_eq!(denied.retry_after(), Some(Duration::from_micros(1)), "{policy}");
        harness.advance(Duration::from_micros(1));
        harness.take(&policy, 1).await;
    });
    case(fixture, async |harness| {
        let log = policy("p: sliding-log 1/60d");
        harness.take(&log, 1).await;
        check_eq!(harness.refused(&log, 1).await.retry_after(), Some(days));
    });
}

/// Without defect B35, a limit of 0 denies every request. A policy with a rate, a burst, a window
/// or a period of 0 is not valid.
pub(super) fn b35_zero_divides_nothing<F: Fixture>(fixture: &F) {
    for text in [
        "fixed-window 5/0s",
        "sliding-log 5/0s",
        "sliding-log 5/1s grain 0s",
        "sliding-counter 5/0s",
        "token-bucket 0/1s burst 1",
        "token-bucket 1/0s",
        "token-bucket 1/1s burst 0",
        "gcra 0/1s burst 1",
        "fixed-window 5/1s block 0s",
    ] {
        let error = text.parse::<Policy>().expect_err(text).to_string();
        check!(error.contains('0'), "`{text}`: the error must name the value 0: {error}");
    }
    for text in ["p: fixed-window 0/1s", "p: sliding-log 0/1s", "p: sliding-counter 0/1s"] {
        case(fixture, async |harness| {
            let denied = harness.refused(&policy(text), 1).await;
            check_eq!(denied.retry_after(), None, "{text}");
            check_eq!(denied.verdicts()[0].remaining(), 0, "{text}");
        });
    }
}

/// Without defect B36, a bucket admits exactly what its rate allows, even if the interval between
/// two tokens is a fraction of a microsecond.
pub(super) fn b36_intervals_below_a_microsecond_do_not_truncate<F: Fixture>(fixture: &F) {
    // A caller makes two requests per microsecond for 2 ms. The bucket admits its burst and all
    // tokens that it refills.
    for (text, per_ms, burst) in [
        ("p: token-bucket 1000000/1s burst 1", 1_000, 1),
        ("p: token-bucket 300000/1s burst 2", 300, 2),
        ("p: gcra 300000/1s burst 2", 300, 2),
        ("p: token-bucket 700/1ms burst 2", 700, 2),
    ] {
        case(fixture, async |harness| {
            let policy = policy(text);
            let mut admitted = 0;
            for at in 0..=2_000 {
                harness.at(at);
                for _ in 0..2 {
                    admitted += u64::from(harness.acquire(&policy, 1).await.is_allowed());
                }
            }
            check_eq!(admitted, burst + 2 * per_ms, "{text}");
        });
    }
}

/// Without defect B37, a rate of 50,000 per second admits 50,000 requests per second.
pub(super) fn b37_fifty_thousand_a_second_pass<F: Fixture>(fixture: &F) {
    for text in [
        "p: token-bucket 50000/1s burst 1",
        "p: gcra 50000/1s burst 1",
        "p: sliding-log 50000/1s",
        "p: sliding-counter 50000/1s",
    ] {
        case(fixture, async |harness| {
            let policy = policy(text);
            for step in 0..1_000 {
                harness.at(step * 20);
                harness.take(&policy, 1).await;
            }
        });
    }
}

/// Without defect B38, the seconds of the `Retry-After` header are whole, rounded up, and at least
/// 1.
pub(super) fn b38_retry_after_seconds_round_up<F: Fixture>(fixture: &F) {
    for (window, seconds) in [("1us", 1), ("300ms", 1), ("1s", 1), ("1s1us", 2), ("90s", 90)] {
        case(fixture, async |harness| {
            let log = policy(&format!("p: sliding-log 1/{window}"));
            let allowed = harness.acquire(&log, 1).await;
            check_eq!(allowed.retry_after_secs(), Some(0), "{window}");
            let denied = harness.refused(&log, 1).await;
            check_eq!(denied.retry_after_secs(), Some(seconds), "{window}");
            let never = harness.refused(&log, 2).await;
            check_eq!(never.retry_after_secs(), None, "{window}");
        });
    }
}

/// Without defect B41, if a new limit is lower than the usage, `remaining` is 0.
pub(super) fn b41_remaining_stops_at_zero<F: Fixture>(fixture: &F) {
    for (wide, narrow) in [
        ("p: fixed-window 100/1h", "p: fixed-window 3/1h"),
        ("p: sliding-log 100/1h", "p: sliding-log 3/1h"),
        ("p: sliding-counter 100/1h", "p: sliding-counter 3/1h"),
        ("p: token-bucket 1/1h burst 100", "p: token-bucket 1/1h burst 3"),
        ("p: token-bucket 1/1h burst 100 by-interval", "p: token-bucket 1/1h burst 3 by-interval"),
        ("p: gcra 1/1h burst 100", "p: gcra 1/1h burst 3"),
    ] {
        case(fixture, async |harness| {
            harness.take(&policy(wide), 100).await;
            check_eq!(harness.remaining(&policy(narrow)).await, 0, "{narrow}");
            let denied = harness.refused(&policy(narrow), 1).await;
            check_eq!(denied.verdicts()[0].remaining(), 0, "{narrow}");
        });
    }
}

/// Checks that decisions are correct at the first and at the last representable time.
pub(super) fn the_ends_of_time_are_times_like_any_other<F: Fixture>(fixture: &F) {
    for policy in each() {
        for time in [Timestamp::EPOCH, Timestamp::MAX] {
            case(fixture, async |harness| {
                harness.clock.set(time);
                harness.take(&policy, 5).await;
                let _ = harness.refused(&policy, 1).await;
                let mut other = Timestamp::MAX;
                for _ in 0..2 {
                    harness.clock.set(other);
                    let _ = harness.acquire(&policy, 5).await;
                    let _ = harness.refused(&policy, 1).await;
                    other = Timestamp::EPOCH;
                }
            });
        }
    }
}
