//! Fair pools with many members, with weights from a limit set, and with values from outside.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use tidegate_core::algorithm::fair_pool;
use tidegate_core::engine::{Record, State};
use tidegate_core::{
    Call, Charge, CurrentLimits, Decision, LimitSet, ManualClock, Operation, Policy, Store,
    StoreExt, Timestamp,
};
use tidegate_memory::MemoryStore;

/// The start of a window.
const START: u64 = 1_790_000_040_000_000;
const MINUTE: Duration = Duration::from_secs(60);

fn memory() -> (ManualClock, MemoryStore<ManualClock>) {
    let clock = ManualClock::new(Timestamp::from_micros(START));
    (clock.clone(), MemoryStore::builder().clock(clock).build())
}

fn decide(store: &impl Store, operation: Operation, charge: Charge<'_>) -> Decision {
    let charges = [charge];
    store.decide(Call::new(operation, &charges)).into_ready().unwrap().unwrap()
}

fn admits(store: &impl Store, policy: &Policy, member: &str) -> bool {
    decide(store, Operation::Acquire, Charge::new(policy, member)).is_allowed()
}

/// Returns the level of a pool: if each member gets its demand, but at most the level, the members
/// get the limit together.
fn level(limit: f64, demands: &[u32]) -> f64 {
    let got = |level: f64| demands.iter().map(|&demand| f64::from(demand).min(level)).sum::<f64>();
    let (mut low, mut high) = (0.0, limit);
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if got(middle) <= limit { low = middle } else { high = middle }
    }
    low
}

/// Simulates 1,000 tenants. A few of them have large demands. In some minutes, 20 tenants change
/// their demands.
#[test]
fn the_unfairness_between_a_thousand_tenants_is_bounded() {
    const LIMIT: u32 = 4_000;
    let (clock, store) = memory();
    let policy: Policy = format!("pool: fair-pool {LIMIT}/1m").parse().unwrap();
    let names: Vec<String> = (0..1_000).map(|tenant| format!("tenant-{tenant}")).collect();
    let mut demands: Vec<u32> = (0..1_000).map(|tenant| 1_000 / (tenant + 1) + 2).collect();
    let mut before = vec![0; 1_000];
    for minute in 0..6_usize {
        // In two of three minutes, 20 tenants change their demands.
        for change in 0..20 * usize::from(minute % 3 > 0) {
            demands[(minute * 331 + change * 47) % 1_000] = u32::try_from(change * 3).unwrap();
        }
        let mut got = vec![0; 1_000];
        for round in 0..*demands.iter().max().unwrap() {
            for (tenant, name) in names.iter().enumerate().filter(|(t, _)| demands[*t] > round) {
                got[tenant] += u32::from(admits(&store, &policy, name));
            }
        }
        assert!(got.iter().sum::<u32>() <= LIMIT);
        let change: u32 = demands.iter().zip(&before).map(|(a, b): (&u32, _)| a.abs_diff(*b)).sum();
        let level = level(f64::from(LIMIT), &demands);
        for (tenant, &got) in got.iter().enumerate() {
            let unfairness = (f64::from(got) - f64::from(demands[tenant]).min(level)).abs();
            let bound = f64::from(change) + 1.000_001;
            assert!(
                unfairness <= bound,
                "minute {minute}, tenant {tenant}: {unfairness} > {bound}"
            );
        }
        before.clone_from(&demands);
        clock.advance(MINUTE);
    }
}

#[test]
fn the_subjects_beyond_the_maximum_are_one_member() {
    let (clock, store) = memory();
    let policy: Policy = "pool: fair-pool 1000/1m".parse().unwrap();
    for subject in 0..2_000 {
        let _ = admits(&store, &policy, &format!("subject-{subject}"));
    }
    clock.advance(MINUTE);
    // The shares of 999 members and of the member of all others are 1 each.
    let passed = (0..2_000).filter(|n| admits(&store, &policy, &format!("subject-{n}")));
    let passed: Vec<i32> = passed.collect();
    assert_eq!((passed.len(), passed[998], passed[999]), (1_000, 998, 999));
}

#[test]
fn an_override_changes_the_weight_of_a_member() {
    let (clock, store) = memory();
    let set: LimitSet = "pool: fair-pool 8/1m weight 3 for subject gold".parse().unwrap();
    let store = store.adjusted(CurrentLimits::with_clock(set, clock.clone()));
    let policy: Policy = "pool: fair-pool 8/1m".parse().unwrap();
    let count = |member| (0..20).filter(|_| admits(&store, &policy, member)).count();
    assert_eq!((count("gold"), count("iron")), (8, 0));
    clock.advance(MINUTE);
    assert_eq!((count("iron"), count("gold")), (2, 6));
}

#[test]
fn a_charge_beyond_the_limit_is_admitted_although_other_members_have_shares() {
    let (clock, store) = memory();
    let policy: Policy = "pool: fair-pool 10/1m".parse().unwrap();
    let raised = policy.beyond_limit();
    let count =
        |policy, member, calls| (0..calls).filter(|_| admits(&store, policy, member)).count();
    assert_eq!((count(&policy, "a", 20), count(&policy, "b", 20)), (10, 0));
    clock.advance(MINUTE);
    assert_eq!((count(&raised, "a", 20), count(&policy, "b", 1)), (20, 0));
    // The demands were 20 and 1, so the shares are 9 and 1.
    clock.advance(MINUTE);
    assert_eq!((count(&policy, "a", 20), count(&policy, "b", 20)), (9, 1));
}

#[test]
fn numbers_that_no_pool_has_are_errors() {
    let policy: Policy = "pool: fair-pool 10/1m".parse().unwrap();
    let restore = |numbers: &[u64]| {
        let state = fair_pool::State::from_numbers(numbers).map(Box::new);
        state.map(|state| Record::restore(&policy, Some(State::FairPool(state)), None))
    };
    assert!(restore(&[START, 0, 0, 1, 2, 1, 5, 5, 0]).unwrap().is_ok());
    assert!(restore(&[START, 0, 0, 1]).is_none() && restore(&[]).is_none());
    for (numbers, message) in [
        ([START + 1, 0, 0, 1, 2, 1, 5, 5, 0], "must be a multiple of 60000000 us"),
        ([u64::MAX, 0, 0, 1, 2, 1, 5, 5, 0], "its window ends at 18446744073709551615"),
        ([START, 1 << 33, 0, 1, 2, 1, 5, 5, 0], "its rest is 8589934592"),
        ([START, 0, 1 << 33, 1, 2, 1, 5, 5, 0], "the sum of its weights is 8589934592"),
        ([START, 0, 0, 1, 2, 1_001, 5, 5, 0], "the weight of a member is 1001"),
        ([START, 0, 0, 1, 2, 1, u64::MAX, 5, 0], "the demand of a member is 18446744073709551615"),
        ([START, 0, 0, 1, 2, 1, 5, 6, 0], "the usage of a member is 6; it must be at most 5"),
        ([START, 0, 0, 1, 2, 1, 5, 5, u64::MAX], "the share of a member is 18446744073709551615"),
    ] {
        let error = restore(&numbers).unwrap().unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    }
}
