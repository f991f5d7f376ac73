//! Compares the suggested limits with slow and simple simulations. In the simulation, the suggested
//! limit refuses no request, and a limit that is lower by one refuses a request.

use proptest::prelude::*;
use tidegate::suggest::{Limits, MAX, Meters, TOTAL_MAX};

/// A simulation of an algorithm. It returns `true` if the limit refuses one of the requests of a
/// subject. Each request is a time and a cost.
type Refuses = fn(&[(u64, u64)], window: u64, limit: u64) -> bool;

fn fixed_window(requests: &[(u64, u64)], window: u64, limit: u64) -> bool {
    let mut admitted: Vec<(u64, u64)> = Vec::new();
    requests.iter().any(|&(time, cost)| {
        let same = |&&(other, _): &&(u64, u64)| other / window == time / window;
        let count: u64 = admitted.iter().filter(same).map(|entry| entry.1).sum();
        admitted.push((time, cost));
        count + cost > limit
    })
}

fn sliding_log(requests: &[(u64, u64)], window: u64, limit: u64) -> bool {
    let mut admitted: Vec<(u64, u64)> = Vec::new();
    requests.iter().any(|&(time, cost)| {
        let counts = |&&(other, _): &&(u64, u64)| other + window > time;
        let count: u64 = admitted.iter().filter(counts).map(|entry| entry.1).sum();
        admitted.push((time, cost));
        count + cost > limit
    })
}

fn sliding_counter(requests: &[(u64, u64)], window: u64, limit: u64) -> bool {
    let mut admitted: Vec<(u64, u64)> = Vec::new();
    requests.iter().any(|&(time, cost)| {
        let index = time / window;
        let sum_of = |wanted: Option<u64>| -> u64 {
            let entries = admitted.iter().filter(|entry| Some(entry.0 / window) == wanted);
            entries.map(|entry| entry.1).sum()
        };
        let (previous, current) = (sum_of(index.checked_sub(1)), sum_of(Some(index)));
        admitted.push((time, cost));
        previous * (window - time % window) + (current + cost) * window > limit * window
    })
}

/// Counts the level of the bucket in 1/`window` of a token, so that the refill in a microsecond is
/// a whole number.
fn token_bucket(requests: &[(u64, u64)], window: u64, limit: u64) -> bool {
    let full = limit * window;
    let mut level = full;
    let mut last = requests.first().map_or(0, |request| request.0);
    requests.iter().any(|&(time, cost)| {
        level = full.min(level + (time - last) * limit);
        last = time;
        if level < cost * window {
            return true;
        }
        level -= cost * window;
        false
    })
}

/// Returns the smallest limit that never refuses a request. It tries the limits 0, 1, 2 and so on.
fn smallest(refuses: Refuses, requests: &[(u64, u64)], window: u64) -> u64 {
    (0..u64::MAX).find(|&limit| !refuses(requests, window, limit)).unwrap_or(u64::MAX)
}

fn each(limits: Limits) -> [u64; 4] {
    [limits.fixed_window, limits.sliding_log, limits.sliding_counter, limits.token_bucket]
}

const ALL: [Refuses; 4] = [fixed_window, sliding_log, sliding_counter, token_bucket];

fn trace() -> impl Strategy<Value = Vec<(u64, u32, u64)>> {
    let pause = prop_oneof![6 => 0_u64..4, 2 => 0_u64..30, 1 => 0_u64..200];
    let cost = prop_oneof![4 => Just(1_u64), 2 => 0_u64..12];
    prop::collection::vec((pause, 0_u32..4, cost), 0..120).prop_map(|steps| {
        let mut time = 0;
        let step = |(pause, subject, cost)| {
            time += pause;
            (time, subject, cost)
        };
        steps.into_iter().map(step).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn every_limit_is_the_smallest(
        trace in trace(),
        window in prop_oneof![1_u64..8, 1_u64..80],
        start in 0_u64..100,
        tenths in 0_u64..=1000,
    ) {
        let mut meters = Meters::new(window).unwrap();
        for &(time, subject, cost) in &trace {
            meters.record(start + time, subject, cost).unwrap();
        }
        let subjects = trace.iter().map(|entry| entry.1 + 1).max().unwrap_or(0);
        let mut wanted: [Vec<u64>; 4] = Default::default();
        for subject in 0..subjects {
            let subject_requests = trace.iter().filter(|entry| entry.1 == subject && entry.2 > 0);
            let own: Vec<_> = subject_requests.map(|entry| (start + entry.0, entry.2)).collect();
            for (limits, refuses) in wanted.iter_mut().zip(ALL) {
                limits.push(smallest(refuses, &own, window));
            }
        }
        let share = format!("{}.{}", tenths / 10, tenths % 10).parse().unwrap();
        let found = each(meters.smallest(share));
        for (limits, found) in wanted.iter().zip(found) {
            let reached = |limit: u64| limits.iter().filter(|&&own| own <= limit).count() as u64;
            let enough = |limit: u64| reached(limit) * 1000 >= tenths * u64::from(subjects);
            prop_assert!(enough(found));
            prop_assert!(found == 0 || !enough(found - 1));
        }
    }
}

#[test]
fn what_stands_at_the_edge_of_a_window_counts_once() {
    let mut meters = Meters::new(10).unwrap();
    for time in [9, 10, 19, 29] {
        meters.record(time, 0, 1).unwrap();
    }
    let limits = meters.smallest("100".parse().unwrap());
    assert_eq!((limits.fixed_window, limits.sliding_log), (2, 2));
    assert_eq!(limits.sliding_counter, 3, "at 19: a tenth of one and two, rounded up");
    assert_eq!(limits.token_bucket, 2);
}

#[test]
fn a_cost_of_nothing_raises_nothing_but_its_subject_counts() {
    let mut meters = Meters::new(10).unwrap();
    meters.record(5, 0, 0).unwrap();
    meters.record(5, 1, 3).unwrap();
    assert_eq!(meters.subjects(), 2);
    assert_eq!(each(meters.smallest("50".parse().unwrap())), [0; 4]);
    assert_eq!(each(meters.smallest("50.1".parse().unwrap())), [3; 4]);
}

#[test]
fn the_largest_numbers_neither_overflow_nor_panic() {
    let mut meters = Meters::new(MAX).unwrap();
    for n in 0..1024 {
        meters.record(MAX - 1024 + n, 0, MAX).unwrap();
    }
    let limits = meters.smallest("100".parse().unwrap());
    assert_eq!((limits.fixed_window, limits.sliding_log), (TOTAL_MAX, TOTAL_MAX));
    let message = meters.record(MAX, 0, 1).unwrap_err().to_string();
    assert!(message.contains("4611686018427387905 is above 4611686018427387904"), "{message}");
    assert!(meters.record(MAX + 1, 0, 1).is_err());
    assert!(meters.record(MAX, 0, MAX + 1).is_err());
}

#[test]
fn a_clock_that_steps_back_counts_as_standing_still() {
    let mut meters = Meters::new(10).unwrap();
    for time in [25, 3, 0] {
        meters.record(time, 0, 1).unwrap();
    }
    assert_eq!(each(meters.smallest("100".parse().unwrap())), [3; 4]);
    meters.clear();
    meters.record(1, 0, 1).unwrap();
    assert_eq!(each(meters.smallest("100".parse().unwrap())), [1; 4]);
}

#[test]
fn a_window_out_of_bounds_is_refused() {
    for window in [0, MAX + 1, u64::MAX] {
        let message = Meters::new(window).unwrap_err().to_string();
        assert!(message.starts_with(&format!("a window of {window} µs is not from 1 µs")));
    }
}
