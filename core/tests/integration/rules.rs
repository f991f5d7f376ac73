//! Tests of the numbers in rules, and in the states that rules write.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use tidegate_core::Policy;
use tidegate_core::algorithm::fixed_window::Start;
use tidegate_core::algorithm::{sliding_counter, sliding_log};
use tidegate_core::engine::Rule;
use tidegate_core::no_semver::{Algorithm, Level, PackedAlgorithm, Unit, Wait};

fn rule(text: &str) -> Rule {
    text.parse::<Policy>().unwrap().rule().clone()
}

#[test]
fn a_rule_has_the_numbers_of_its_policy() {
    for (text, start) in [
        ("fixed-window 5/10s", Start::Aligned),
        ("fixed-window 5/10s phased", Start::Phased),
        ("fixed-window 5/10s anchored", Start::Anchored),
    ] {
        let Rule::FixedWindow(rule) = rule(text) else { panic!("{text}") };
        assert_eq!((rule.limit(), rule.window_micros(), rule.start()), (5, 10_000_000, start));
    }
    for (text, limit, grain, max_records) in [
        ("sliding-log 7/10s", 7, 0, 7),
        ("sliding-log 7/10s grain 2s", 7, 2_000_000, 7),
        ("sliding-log 100/10s grain 2s", 100, 2_000_000, 7),
    ] {
        let Rule::SlidingLog(rule) = rule(text) else { panic!("{text}") };
        assert_eq!((rule.limit(), rule.window_micros()), (limit, 10_000_000));
        assert_eq!((rule.grain_micros(), rule.max_records()), (grain, max_records));
    }
    let Rule::SlidingCounter(counter) = rule("sliding-counter 521250/1d") else {
        panic!("not a sliding counter")
    };
    assert_eq!((counter.limit(), counter.window_micros()), (521_250, 86_400_000_000));
    assert_eq!((counter.window_ticks(), counter.tick_micros()), (864_000_000, 100));
    let Rule::TokenBucket(bucket) = rule("token-bucket 3/2us burst 9") else {
        panic!("not a token bucket")
    };
    assert_eq!((bucket.capacity(), bucket.unit(), bucket.refill()), (9, 2, 3));
    assert_eq!(bucket.tick_micros(), 1);
    let Rule::TokenBucket(bucket) = rule("token-bucket 7/1d burst 52125") else {
        panic!("not a token bucket")
    };
    assert_eq!((bucket.unit(), bucket.refill(), bucket.tick_micros()), (8_640_000_000, 7, 10));
    let Rule::IntervalBucket(bucket) = rule("token-bucket 3/10s burst 9 by-interval") else {
        panic!("not a bucket by intervals")
    };
    assert_eq!((bucket.capacity(), bucket.refill()), (9, 3));
    assert_eq!(bucket.period_micros(), 10_000_000);
}

#[test]
fn a_log_is_equal_to_another_with_the_same_records() {
    let log = |records: &[(u64, u64)]| records.iter().copied().collect::<sliding_log::State>();
    let some = log(&[(1, 2), (5, 1)]);
    assert_eq!((some.len(), some.is_empty()), (2, false));
    assert_eq!(some, log(&[(1, 2), (5, 1)]));
    for other in [log(&[]), log(&[(1, 2)]), log(&[(1, 2), (6, 1)]), log(&[(1, 1), (5, 1)])] {
        assert_ne!(some, other);
    }
    assert_eq!((log(&[]).len(), log(&[]).is_empty(), log(&[]).heap_bytes()), (0, true, 0));
}

/// A log keeps running totals of its costs. If a log is in use for years, its totals wrap around.
/// Only the differences of the totals count.
#[test]
fn a_log_whose_totals_wrap_around_decides_as_one_whose_totals_do_not() {
    let Rule::SlidingLog(rule) = rule("sliding-log 10/20us") else { panic!("not a sliding log") };
    for raised_by in [u64::MAX - 20, u64::MAX - 5, u64::MAX - 4, u64::MAX - 2, u64::MAX] {
        // The log `raised` begins with a record that raises its totals by `raised_by` and expires
        // before the first `take`. So the two logs have equal records but different totals.
        let mut plain: Option<Box<sliding_log::State>> = None;
        let mut raised = Some(Box::new([(0, raised_by)].into_iter().collect()));
        for (now, cost) in [(20, 3), (22, 1), (25, 4), (41, 2), (42, 1), (46, 5)] {
            plain = Some(rule.take(plain.take(), cost, now, || 0));
            raised = Some(rule.take(raised.take(), cost, now, || 0));
            assert_eq!(plain, raised);
            for now in [now, now + 3, now + 18] {
                for cost in 0..=11 {
                    let [a, b] = [&plain, &raised].map(|log| rule.wait(log.as_ref(), cost, now));
                    assert_eq!(a, b, "{raised_by}: {cost} at {now}");
                }
                let [a, b] = [&plain, &raised].map(|log| rule.level(log.as_ref(), now));
                assert_eq!(a, b);
            }
        }
    }
}

#[test]
fn states_are_packed_and_unpacked_without_a_change() {
    fn check<A: PackedAlgorithm<State: PartialEq + std::fmt::Debug>>(rule: &A, fits: bool) {
        assert_eq!(rule.always_fits(), fits);
        let state = rule.take(None, 3, 1_790_000_000_000_007, || 0);
        let words = A::pack(state).unwrap();
        assert_ne!(words, [0; 2]);
        assert_eq!(A::unpack(words), state);
        assert_eq!(rule.wait_advanced(A::unpack([0; 2]), 1, 5), Wait::ZERO);
    }
    for (text, fits) in [
        ("fixed-window 5/10s", true),
        ("sliding-counter 5/10s", true),
        ("sliding-counter 4294967295/1s", true),
        ("sliding-counter 4294967296/1s", false),
        ("token-bucket 5/10s", true),
        ("token-bucket 5/10s by-interval", true),
    ] {
        match rule(text) {
            Rule::FixedWindow(rule) => check(&rule, fits),
            Rule::SlidingCounter(rule) => check(&rule, fits),
            Rule::TokenBucket(rule) => check(&rule, fits),
            Rule::IntervalBucket(rule) => check(&rule, fits),
            _ => panic!("{text} is not packed"),
        }
    }
}

#[test]
fn units_are_converted_to_tokens_exactly() {
    assert_eq!((Unit::new(0).get(), Unit::new(u64::MAX).get()), (1, 1 << 52));
    for parts in [1, 2, 3, 7, 10, (1 << 25) - 1, 1 << 25, (1 << 52) - 1, 1 << 52] {
        let unit = Unit::new(parts);
        assert_eq!(unit.get(), parts);
        for units in [0, 1, parts - 1, parts, parts + 1, 2 * parts, (1 << 52) - 1, 1 << 52] {
            let units = units.min(1 << 52);
            assert_eq!(unit.whole_tokens(units), units / parts, "{units} units of 1/{parts}");
        }
    }
    let level = Level::new(3, 7);
    assert_eq!((level.remaining, level.recovers_at), (3, 7));
}

#[test]
fn only_buckets_can_reserve_and_an_ended_state_has_recovered() {
    fn check<A: Algorithm>(rule: &A, reserves: bool) {
        const SECOND: u64 = 1_000_000;
        assert_eq!(rule.can_reserve(None, 1, 0), reserves);
        let state = rule.take(None, 2, 11 * SECOND, || 0);
        let state = rule.refund(state, 1, 11 * SECOND).0.unwrap();
        assert_eq!(rule.level(Some(&state), 11 * SECOND).remaining, 4);
        let recovers_at = rule.recovers_at(&state);
        assert_eq!(rule.level(Some(&state), recovers_at - 1).recovers_at, recovers_at);
        let full = rule.level(Some(&state), recovers_at);
        assert_eq!((full.remaining, full.recovers_at), (5, recovers_at));
        assert_eq!(rule.level(None, 7), Level::new(5, 7));
    }
    for text in [
        "fixed-window 5/10s",
        "sliding-log 5/10s",
        "sliding-counter 5/10s",
        "token-bucket 5/10s",
        "token-bucket 5/10s by-interval",
    ] {
        match rule(text) {
            Rule::FixedWindow(rule) => check(&rule, false),
            Rule::SlidingLog(rule) => check(&rule, false),
            Rule::SlidingCounter(rule) => check(&rule, false),
            Rule::TokenBucket(rule) => check(&rule, true),
            Rule::IntervalBucket(rule) => check(&rule, true),
            _ => panic!("{text}"),
        }
    }
    let Rule::SlidingCounter(counter) = rule("sliding-counter 5/10us") else {
        panic!("not a sliding counter")
    };
    // The window that ends at 10 has a cost of 0. The previous window has a cost of 3, which does
    // not count any more from the time 10 on.
    let state = sliding_counter::State::new(10, 3, 0);
    for now in [10, 19, 20, 30] {
        assert_eq!(counter.level(Some(&state), now), Level::new(5, now));
    }
}
