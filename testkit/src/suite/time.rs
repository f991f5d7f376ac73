//! Properties of time: the waits in verdicts, the maximum in any window, and clocks that step back.

use std::time::Duration;

use proptest::prelude::*;
use tidegate_core::{Charge, Operation, Policy};

use super::fixture::Fixture;
use super::harness::{EACH, Harness, START, case, cases, each, each_case, policy};
use super::report::{check, check_eq};
use crate::generate::any_policy;
use crate::show;

/// Without defect B30, the store decides by its own clock, and its method `now` returns the time of
/// that clock.
pub(super) fn b30_the_clock_that_counts_is_the_stores<F: Fixture>(fixture: &F) {
    use tidegate_core::{Clock, Store};
    case(fixture, async |harness| {
        for micros in [START, START + 7, 5, (1 << 52) - 1] {
            harness.set(micros);
            let now = harness.store.now().await.expect("the store returns its time");
            check_eq!(now, harness.clock.now());
        }
    });
}

/// Returns a strategy for a policy of [`EACH`] and some requests. The two numbers of a request are
/// the time before the request, in microseconds, and the cost.
fn requests() -> impl Strategy<Value = (Policy, Vec<(u64, u64)>)> {
    let request = (prop_oneof![3 => Just(0), 4 => 0..8_u64, 1 => 0..40_u64], 1..4_u64);
    (prop::sample::select(&EACH[..]), prop::collection::vec(request, 1..60))
        .prop_map(|(text, requests)| (policy(text), requests))
}

/// Without defect B31, a step back of the clock does not increase the remaining amount, and
/// lengthens a wait by at most the step. When the clock again shows the time from before the step,
/// the verdict is the same as before the step.
pub(super) fn b31_a_step_back_mints_nothing_and_costs_at_most_the_step<F: Fixture>(fixture: &F) {
    let steps = prop_oneof![1..30_u64, Just(1_000_000), Just(START)];
    cases(fixture, (requests(), steps), async |harness, ((policy, requests), step)| {
        let mut now = START;
        for (passes, cost) in requests {
            now += passes;
            harness.set(now);
            let _ = harness.acquire(policy, *cost).await;
        }
        let before = harness.does(Operation::Peek, policy, 5).await;
        harness.set(now - step);
        let back = harness.does(Operation::Peek, policy, 5).await;
        if back.remaining() > before.remaining() {
            return Err(format!(
                "{policy}: {} remain after the step back; at most {} may remain, as before it",
                back.remaining(),
                before.remaining(),
            ));
        }
        let lost =
            back.retry_after() > before.retry_after().map(|w| w + Duration::from_micros(*step));
        if lost {
            return Err(format!(
                "{policy}: the wait is {:?} after the step back, and {:?} before it; it may grow by at \
                 most the step of {step} us",
                back.retry_after(),
                before.retry_after(),
            ));
        }
        harness.set(now);
        let again = harness.does(Operation::Peek, policy, 5).await;
        (again == before).then_some(()).ok_or_else(|| {
            format!(
                "{policy}: a step back and forth changed the verdict `{}` to `{}`",
                show::verdict(&before),
                show::verdict(&again)
            )
        })
    });
}

/// Without defect B31, jumps of years in both directions admit no more than the limit at one
/// instant, and cause no panic.
pub(super) fn b31_jumps_of_years_are_survived<F: Fixture>(fixture: &F) {
    const YEAR: u64 = 365 * 86_400_000_000;
    each_case(fixture, async |harness, policy| {
        for time in [START, START + 40 * YEAR, START, 0, START + 80 * YEAR, START - 1] {
            harness.set(time);
            let mut admitted = 0;
            for _ in 0..12 {
                admitted += u64::from(harness.acquire(&policy, 1).await.is_allowed());
            }
            check!(admitted <= 5, "{policy}: {admitted} are admitted at one instant");
        }
    });
}

/// Returns a strategy for a policy of any kind, and for requests that use up its limit.
fn wild() -> impl Strategy<Value = (Policy, Vec<(u64, u64)>)> {
    let policy = any_policy("p").prop_filter("enforced", |policy| !policy.is_shadow());
    let request = (prop_oneof![Just(0), 0..15_u64, any::<u64>().prop_map(|n| n >> 24)], 0..4_u8);
    (policy, prop::collection::vec(request, 1..12)).prop_map(|(policy, requests)| {
        let limit = policy.limit();
        let cost = |part| match part {
            0 => limit,
            1 => 1,
            2 => limit / 2,
            _ => limit / 3 + 1,
        };
        let requests = requests.into_iter().map(|(passes, part)| (passes, cost(part)));
        (policy, requests.collect())
    })
}

async fn use_up<F: Fixture>(
    harness: &Harness<'_, F>,
    requests: &[(u64, u64)],
    policy: &Policy,
) -> u64 {
    let mut now = START;
    for (passes, cost) in requests {
        now = (now + passes).min(1 << 51);
        harness.set(now);
        let _ = harness.acquire(policy, *cost).await;
    }
    now
}

/// Without defect B39, a request succeeds after a wait of `retry_after`, and fails one microsecond
/// earlier. This is true if no other call is made during the wait.
pub(super) fn b39_waiting_retry_after_succeeds_and_less_does_not<F: Fixture>(fixture: &F) {
    cases(fixture, (wild(), 1..4_u64), async |harness, ((policy, requests), cost)| {
        let now = use_up(harness, requests, policy).await;
        let charge = [Charge::new(policy, "s").cost(*cost)];
        let decision = harness.ask(Operation::Acquire, &charge).await;
        let Some(wait) = decision.retry_after() else {
            let is_forever = *cost > policy.limit() || policy.algorithm().keyword() == "credits";
            return is_forever.then_some(()).ok_or_else(|| {
                format!(
                    "{policy}: a cost of {cost} is at most the limit, but `retry_after` is never"
                )
            });
        };
        if decision.is_allowed() {
            return (wait.is_zero())
                .then_some(())
                .ok_or(format!("{policy}: an allowed request has a `retry_after` of {wait:?}"));
        }
        let wait = u64::try_from(wait.as_micros()).expect("at most some centuries");
        if now + wait >= 1 << 52 {
            return Ok(()); // The clock cannot show the time at which the wait ends.
        }
        harness.set(now + wait - 1);
        if harness.ask(Operation::Peek, &charge).await.is_allowed() {
            return Err(format!(
                "{policy}: a request is admitted 1 us before its wait of {wait} us is over"
            ));
        }
        harness.set(now + wait);
        let decision = harness.ask(Operation::Acquire, &charge).await;
        (decision.is_allowed()).then_some(()).ok_or_else(|| {
            format!("{policy}: a request is refused after its `retry_after` of {wait} us")
        })
    });
}

/// Checks the wait of a quota whose policy was changed to other time zones. A part of the count is
/// carried into each window that starts near the end of the stored window.
pub(super) fn b39_the_wait_of_a_quota_ends_in_any_time_zone<F: Fixture>(fixture: &F) {
    let day = |text: &str| policy(&format!("p: quota {text}"));
    case(fixture, async |harness| {
        let amsterdam = day("2/day in Europe/Amsterdam at 16:30");
        let kathmandu = day("5/day in Asia/Kathmandu at 01:30");
        let apia = day("1/day in Pacific/Apia at 16:30");
        let at_1530 = 415_121_400_000_000; // 26 February 1983, 15:30 UTC
        let hours = |hours: u64| hours * 3_600_000_000;
        harness.set(at_1530 + 3);
        harness.take(&amsterdam, 2).await;
        harness.set(at_1530 + 1);
        harness.does(Operation::Charge, &apia, 1).await;
        harness.set(at_1530 + hours(24));
        harness.take(&kathmandu, 2).await;
        for before in [hours(36), hours(24), 1] {
            harness.set(at_1530 + hours(60) - before);
            let refused = harness.refused(&apia, 1).await;
            check_eq!(refused.retry_after(), Some(Duration::from_micros(before)));
        }
        harness.set(at_1530 + hours(60));
        harness.take(&apia, 1).await;
    });
}

/// Checks that a cost of `remaining` is admitted, and that a cost greater by 1 is not.
pub(super) fn a_cost_of_remaining_passes_and_one_more_does_not<F: Fixture>(fixture: &F) {
    cases(fixture, wild(), async |harness, (policy, requests)| {
        use_up(harness, requests, policy).await;
        let remaining = harness.remaining(policy).await;
        let more = [Charge::new(policy, "s").cost(remaining + 1)];
        if harness.ask(Operation::Peek, &more).await.is_allowed() {
            return Err(format!(
                "{policy}: `remaining` is {remaining}, but a cost greater by 1 is admitted"
            ));
        }
        let just = [Charge::new(policy, "s").cost(remaining)];
        let decision = harness.ask(Operation::Acquire, &just).await;
        (decision.is_allowed() || remaining == 0).then_some(()).ok_or_else(|| {
            format!("{policy}: `remaining` is {remaining}, but a request of this cost is refused")
        })
    });
}

/// Without defect B40, a request at time `t` does not count any more at `t + window`. One
/// microsecond earlier, the request still counts.
pub(super) fn b40_the_end_of_a_window_is_outside_of_it<F: Fixture>(fixture: &F) {
    let window = 1_000;
    for text in ["p: sliding-log 1/1ms", "p: fixed-window 1/1ms anchored", "p: token-bucket 1/1ms"]
    {
        case(fixture, async |harness| {
            let policy = policy(text);
            harness.take(&policy, 1).await;
            harness.at(window - 1);
            let _ = harness.refused(&policy, 1).await;
            harness.at(window);
            harness.take(&policy, 1).await;
        });
    }
    case(fixture, async |harness| {
        let aligned = policy("p: fixed-window 1/1ms");
        harness.set(window * 7_000 - 1);
        harness.take(&aligned, 1).await;
        let _ = harness.refused(&aligned, 1).await;
        harness.set(window * 7_000);
        harness.take(&aligned, 1).await;
    });
}

/// Makes requests, and returns the time and the cost of each admitted request.
async fn admitted<F: Fixture>(
    harness: &Harness<'_, F>,
    policy: &Policy,
    requests: &[(u64, u64)],
) -> Vec<(u64, u64)> {
    let (mut now, mut admitted) = (START, vec![]);
    for (passes, cost) in requests {
        now += passes;
        harness.set(now);
        if harness.acquire(policy, *cost).await.is_allowed() {
            admitted.push((now, *cost));
        }
    }
    admitted
}

/// Checks that in any interval of time, the store admits no more than the policy allows.
pub(super) fn never_more_is_admitted_than_the_policy_says<F: Fixture>(fixture: &F) {
    cases(fixture, requests(), async |harness, (policy, requests)| {
        let admitted = admitted(harness, policy, requests).await;
        // Returns the maximum amount that the policy is allowed to admit in an interval of time,
        // depending on the algorithm. Each policy admits 5 in 10 µs.
        let max = |from: u64, to: u64| match policy.algorithm().keyword() {
            "sliding-log" => 5 * ((to - from) / 10 + 1),
            "token-bucket" if policy.to_string().contains("by-interval") => {
                5 + 5 * ((to - from) / 10 + 1)
            }
            "token-bucket" | "gcra" => 5 + (to - from) / 2,
            // An interval around the boundary of two windows can contain the limits of both
            // windows.
            _ => 5 * ((to - from) / 10 + 2),
        };
        for (place, &(from, _)) in admitted.iter().enumerate() {
            let mut sum = 0;
            for &(to, cost) in &admitted[place..] {
                sum += cost;
                if sum > max(from, to) {
                    let max = max(from, to);
                    return Err(format!(
                        "{policy}: {sum} are admitted from {from} to {to}; at most {max} may be admitted"
                    ));
                }
            }
        }
        Ok(())
    });
}

/// Checks that the store admits no less than the policy allows. A subject that makes requests
/// continuously gets the whole long-run rate, regardless of the interval between its requests.
pub(super) fn the_long_run_rate_is_met_however_often_it_is_asked<F: Fixture>(fixture: &F) {
    // The time in microseconds: a multiple of 1, 3, 7, 10 and 20.
    let all = 420 * u64::from(fixture.steps() / 10_000).clamp(1, 5);
    for policy in each() {
        for every in [1, 3, 7] {
            case(fixture, async |harness| {
                let mut admitted = 0_u64;
                for at in (0..all).filter(|at| at % every == 0) {
                    harness.at(at);
                    while harness.acquire(&policy, 1).await.is_allowed() {
                        admitted += 1;
                        check!(
                            admitted <= all,
                            "`{policy}`: {admitted} are admitted within {at} us"
                        );
                    }
                }
                let text = policy.to_string();
                let round = if text.contains("grain") || text.contains("counter") {
                    // A sliding counter and a log with a grain can admit less than the long-run
                    // rate. The test therefore expects 5 admissions in 20 µs, instead of 5 in 10
                    // µs.
                    20
                } else if ["anchored", "log", "interval"].iter().any(|word| text.contains(word)) {
                    // Under an anchored window, a log or a bucket by intervals, each window or
                    // period of 10 µs begins at a request. This request is late by at most the
                    // interval between two requests.
                    10_u64.div_ceil(every) * every
                } else {
                    10
                };
                let min = 5 * (all / round - 1);
                check!(
                    admitted >= min,
                    "{policy} every {every} us: {admitted} are admitted, of at least {min}"
                );
            });
        }
    }
    // The burst of this policy exceeds the refill of a period, so the bucket is never full and
    // loses no part of a period.
    for every in [1, 3, 7, 10] {
        case(fixture, async |harness| {
            let bucket = policy("p: token-bucket 5/10us burst 12 by-interval");
            let mut admitted = 0_u64;
            for at in (0..=all).filter(|at| at % every == 0) {
                harness.at(at);
                while harness.acquire(&bucket, 1).await.is_allowed() {
                    admitted += 1;
                    check!(admitted <= all, "`{bucket}`: {admitted} are admitted within {at} us");
                }
            }
            check_eq!(admitted, 12 + 5 * (all / 10), "{bucket} every {every} us");
        });
    }
}
