//! Compares each algorithm with the oracle, on clocks that only go forwards and on clocks that
//! jump.
//!
//! The store is as small as possible, so that these tests check only the core. If any inequality in
//! `core/src/algorithm` is reversed, at least one of these tests fails.

use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError};
use tidegate_core::algorithm::sliding_log::{SlidingLogRule, State};
use tidegate_core::engine::Rule;
use tidegate_core::no_semver::Algorithm as _;
use tidegate_core::{
    Call, Charge, Decision, ManualClock, Operation, Policy, Store, Timestamp, TokenBucket,
};
use tidegate_testkit::generate::{ClockKind, Kind, Scenario, policy, related_policies, scenario};
use tidegate_testkit::{ModelStore, run_against_oracle};

/// Runs a scenario on two stores. The first store forgets states as early as it is allowed to, and
/// the second store never forgets a state.
fn run_scenario(scenario: &Scenario, clock: ClockKind) -> Result<(), TestCaseError> {
    for make in [ModelStore::new, ModelStore::keeping_all] {
        let store_clock = ManualClock::default();
        let store = make(store_clock.clone());
        let run = pin!(run_against_oracle(&store, &store_clock, scenario, clock));
        match run.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(result) => result.map_err(TestCaseError::fail)?,
            Poll::Pending => return Err(TestCaseError::fail("the store must answer immediately")),
        }
    }
    Ok(())
}

fn config() -> Config {
    let cases = std::env::var("TIDEGATE_CASES").ok();
    Config { cases: cases.and_then(|cases| cases.parse().ok()).unwrap_or(300), ..Config::default() }
}

fn one(kind: Kind) -> impl Strategy<Value = Vec<Policy>> {
    policy(kind, "p").prop_map(|policy| vec![policy])
}

macro_rules! algorithms {
    ($($name:ident: $kind:ident;)+) => {$(
        mod $name {
            use super::*;

            proptest! {
                #![proptest_config(config())]

                #[test]
                fn decides_as_the_oracle(
                    trace in scenario(one(Kind::$kind), ClockKind::Forwards, 30, 1)
                ) {
                    run_scenario(&trace, ClockKind::Forwards)?;
                }

                #[test]
                fn decides_as_the_oracle_when_the_clock_jumps(
                    trace in scenario(one(Kind::$kind), ClockKind::Jumping, 30, 1)
                ) {
                    run_scenario(&trace, ClockKind::Jumping)?;
                }

                #[test]
                fn keeps_what_was_used_when_the_policy_changes(
                    trace in scenario(related_policies(Kind::$kind, "p"), ClockKind::Jumping, 30, 1)
                ) {
                    run_scenario(&trace, ClockKind::Jumping)?;
                }
            }
        }
    )+};
}

algorithms! {
    fixed_window: FixedWindow;
    sliding_log: SlidingLog;
    sliding_counter: SlidingCounter;
    token_bucket: TokenBucket;
    interval_bucket: IntervalBucket;
    gcra: Gcra;
    quota: Quota;
    fair_pool: FairPool;
}

/// Returns policies of several algorithms, each with its own name.
fn several() -> impl Strategy<Value = Vec<Policy>> {
    let any = |name| Kind::any().prop_flat_map(move |kind| policy(kind, name));
    (any("p"), any("q"), any("r")).prop_map(|(p, q, r)| vec![p, q, r])
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn several_charges_are_decided_as_by_the_oracle(
        trace in scenario(several(), ClockKind::Forwards, 25, 4)
    ) {
        run_scenario(&trace, ClockKind::Forwards)?;
    }

    #[test]
    fn several_charges_are_decided_as_by_the_oracle_when_the_clock_jumps(
        trace in scenario(several(), ClockKind::Jumping, 25, 4)
    ) {
        run_scenario(&trace, ClockKind::Jumping)?;
    }
}

#[test]
fn a_full_refund_leaves_no_record() {
    for kind in [
        "fixed-window 5/1h",
        "sliding-log 5/1h",
        "sliding-log 5/1h grain 1m",
        "sliding-counter 5/1h",
        "token-bucket 5/1h",
        "token-bucket 5/1h by-interval",
        "gcra 5/1h",
    ] {
        let store = ModelStore::keeping_all(ManualClock::default());
        let policy: Policy = kind.parse().unwrap();
        let charges = [Charge::new(&policy, "s").cost(3)];
        for operation in [Operation::Acquire, Operation::Refund] {
            assert!(!answer(&store, Call::new(operation, &charges)).verdicts().is_empty());
        }
        assert!(store.is_empty(), "{kind}");
    }
}

/// Half a token of debt is 2^26 units of the older policy. To convert this debt, the newer policy
/// multiplies 2^26 by its own units per token, 2^25 or 2^26. The product is 2^51 or 2^52, and 2^52
/// is the largest exact product.
#[test]
fn a_debt_is_converted_exactly_up_to_the_largest_exact_product() {
    let half = 1 << 26;
    for (parts, wait) in [(1_u64 << 25, 1_u64 << 24), (1 << 26, 1 << 25)] {
        let clock = ManualClock::default();
        let store = ModelStore::keeping_all(clock.clone());
        let bucket = |period: u64, burst| {
            let period = Duration::from_micros(period);
            Policy::new("p", TokenBucket::new(1, period).burst(burst)).unwrap()
        };
        let (older, newer) = (bucket(1 << 27, 3), bucket(parts, 2));
        let acquire = |policy, cost| {
            let charges = [Charge::new(policy, "s").cost(cost)];
            answer(&store, Call::acquire(&charges))
        };
        assert!(acquire(&older, 2).is_allowed());
        clock.set(Timestamp::from_micros(half));
        assert!(acquire(&older, 1).is_allowed());
        // The debt is 2.5 tokens. The new policy has a bucket of 2 tokens, so a token is available
        // after a refill of 1.5 tokens.
        let wait = Duration::from_micros(parts + wait);
        assert_eq!(acquire(&newer, 1).retry_after(), Some(wait), "in parts of 1/{parts}");
    }
}

fn answer(store: &ModelStore, call: Call<'_>) -> Decision {
    match store.decide(call).into_ready() {
        Ok(Ok(decision)) => decision,
        other => {
            unreachable!("the store answers immediately and without errors, but returned {other:?}")
        }
    }
}

/// Returns the rule of a sliding log of at most 5,000 per hour. Also returns the state of the log
/// after `records` requests, one request per microsecond.
fn long_log(records: u64) -> (SlidingLogRule, Box<State>) {
    let policy: Policy = "sliding-log 5000/1h".parse().unwrap_or_else(|e| unreachable!("{e}"));
    let Rule::SlidingLog(rule) = *policy.rule() else {
        unreachable!("the policy is a sliding log")
    };
    let mut log = Box::<State>::default();
    for now in 0..records {
        let (before, growth) = (log.heap_bytes(), log.growth());
        log = rule.take(Some(log), 1, now, || 0);
        assert!(
            log.heap_bytes() <= before + growth,
            "the log must not grow by more than announced"
        );
    }
    (rule, log)
}

#[test]
fn a_log_reports_its_records_and_its_size() {
    let (rule, mut log) = long_log(2);
    log = rule.take(Some(log), 7, 5, || 0);
    assert_eq!(log.records().collect::<Vec<_>>(), [(0, 1), (1, 1), (5, 7)]);
    assert!(log.growth() < 4 * 16, "the log has room for one more record");
    let (_, log) = long_log(1_024);
    assert_eq!(log.len(), 1_024);
    assert!((1_024 * 16..=2_048 * 16).contains(&log.heap_bytes()));
}

#[test]
fn a_long_log_releases_memory_and_a_short_one_keeps_it() {
    const HOUR: u64 = 3_600_000_000;
    let (rule, mut log) = long_log(1_024);
    let full = log.heap_bytes();
    log = rule.take(Some(log), 1, HOUR + 600, || 0);
    assert_eq!(log.heap_bytes(), full, "more than a quarter is in use");
    log = rule.take(Some(log), 1, HOUR + 823, || 0);
    let needed = log.len() * 16;
    assert!(log.heap_bytes() < full, "less than a quarter is in use");
    assert!(log.heap_bytes() >= needed * 2 - 64, "the log keeps room to grow");
    // A log shrinks if its records use less than a quarter of its room. At exactly a quarter, it
    // does not shrink.
    let quarter = u64::try_from(full / 16 / 4).unwrap_or_default();
    for (remaining, is_shrunk) in [(quarter, false), (quarter - 1, true)] {
        let (rule, log) = long_log(1_024);
        let log = rule.take(Some(log), 1, HOUR + 1_023 - remaining, || 0);
        assert_eq!(u64::try_from(log.len()), Ok(remaining + 1));
        assert_eq!(log.heap_bytes() < full, is_shrunk, "{remaining} records remain");
    }
    // A refund adds no record to the log, but also shrinks the log.
    let (rule, log) = long_log(1_024);
    let log = rule.refund(log, 1, HOUR + 823).0.unwrap_or_default();
    assert_eq!(log.len(), 199);
    assert!((2 * 200 * 16..full).contains(&log.heap_bytes()), "the log keeps room to grow");
    for records in [20, 64] {
        let (rule, mut log) = long_log(records);
        let small = log.heap_bytes();
        assert!(small <= 64 * 16, "the log is short");
        log = rule.take(Some(log), 1, 2 * HOUR, || 0);
        assert_eq!((log.len(), log.heap_bytes()), (1, small));
    }
}
