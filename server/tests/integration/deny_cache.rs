//! The cache of denials (`LOCAL_CACHE_SIZE_IN_BYTES`).

use std::sync::Arc;
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use tidegate_core::{
    Call, Charge, DenyCache, ManualClock, Operation, Policy, Store, StoreExt, Timestamp,
};
use tidegate_memory::MemoryStore;
use tidegate_server::envoy::decide::{Behaviour, Decider};
use tidegate_testkit::faults::{Faults, FaultyStore};

use crate::scene::{START, Scene, block_on, descriptor, hits, is_ok, read, refund, request};

const CONFIG: &str = "domain: d\ndescriptors:\n\
    - {key: minute, rate_limit: {unit: minute, requests_per_unit: 2}}\n\
    - {key: second, rate_limit: {unit: second, requests_per_unit: 1}}\n\
    - {key: shadow, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 1}}\n\
    - {key: login, policy: sliding-log 2/1m}\n\
    - {key: bucket, policy: gcra 1/s burst 3}\n\
    - {key: tokens, policy: fixed-window 5/1m, charge_afterwards: true}\n\
    - {key: report, refunds: true, policy: fixed-window 3/1m}\n";

type Counting = Arc<FaultyStore<MemoryStore<ManualClock>>>;

/// Returns a scene with a deny cache, and its store, which counts its calls. With `only_policies`,
/// the cache keeps only denials of policies, for a second.
fn cached(behaviour: Behaviour, only_policies: bool) -> (Scene, Counting) {
    let clock = ManualClock::new(Timestamp::from_micros(START * 1_000_000));
    let store = MemoryStore::builder().clock(clock.clone()).build();
    let store = Arc::new(store.layer(Faults::new(vec![])));
    let decider = Decider::new(Arc::clone(&store) as Arc<dyn Store>, behaviour);
    let cache = DenyCache::new().clock(clock.clone()).max_age(Duration::MAX);
    let decider = match only_policies {
        true => decider.with_deny_cache_for_policies(cache.max_age(Duration::from_secs(1))),
        false => decider.with_deny_cache(&cache),
    };
    decider.set_config(read(CONFIG).unwrap()).unwrap();
    (Scene { decider, clock }, store)
}

/// Sends a request with one hit. Returns the number of hits over the limit, and the number of them
/// that the cache refused.
fn over(scene: &Scene, key: &str) -> (u64, u64) {
    let tally = scene.tally("d", &[(key, "")]);
    (tally.over, tally.over_in_cache)
}

#[test]
fn a_limit_that_is_over_is_refused_without_the_store_until_its_window_ends() {
    let (scene, store) = cached(Behaviour::default(), false);
    assert_eq!([over(&scene, "minute"), over(&scene, "minute")], [(0, 0), (0, 0)]);
    // The store refuses the first hit over the limit, and the cache keeps the denial.
    assert_eq!(over(&scene, "minute"), (1, 0));
    let calls = store.as_layer().calls();
    for _ in 0..100 {
        assert_eq!(over(&scene, "minute"), (1, 1));
    }
    let status = scene.status("d", &[("minute", "")]);
    assert_eq!((status.limit_remaining, status.duration_until_reset.unwrap().seconds), (0, 12));
    assert_eq!(store.as_layer().calls(), calls);
    scene.advance(11);
    assert_eq!(over(&scene, "minute"), (1, 1));
    scene.advance(1);
    assert_eq!(over(&scene, "minute"), (0, 0));
}

#[test]
fn a_policy_that_denies_is_refused_without_the_store_until_it_admits() {
    let (scene, store) = cached(Behaviour::default(), false);
    let asked = [over(&scene, "login"), over(&scene, "login"), over(&scene, "login")];
    assert_eq!(asked, [(0, 0), (0, 0), (1, 0)]);
    let calls = store.as_layer().calls();
    assert_eq!([over(&scene, "login"), over(&scene, "login")], [(1, 1), (1, 1)]);
    assert_eq!(store.as_layer().calls(), calls);
    scene.advance(60);
    assert_eq!(over(&scene, "login"), (0, 0));
}

#[test]
fn a_refund_and_a_reset_by_this_server_end_a_cached_denial() {
    let (scene, _) = cached(Behaviour::default(), false);
    for _ in 0..4 {
        scene.passes("d", &[&[("minute", "")]]);
        scene.passes("d", &[&[("login", "")]]);
    }
    assert!(!scene.passes("d", &[&[("minute", "")]]));
    scene.ask(&request("d", vec![refund(&[("minute", "")], 3)]));
    assert!(scene.passes("d", &[&[("minute", "")]]));
    // The test makes the call that `/v1/reset` makes, on the same store.
    assert!(!scene.passes("d", &[&[("login", "")]]));
    let policy: Policy = "policy: sliding-log 2/1m".parse().unwrap();
    let charges = [Charge::new(&policy, "d|login=")];
    let reset = scene.decider.store().decide(Call::new(Operation::Reset, &charges));
    assert!(block_on(reset).unwrap().is_allowed());
    assert!(scene.passes("d", &[&[("login", "")]]));
}

#[test]
fn a_cached_denial_spares_the_other_limits_of_a_request() {
    let mut behaviour = Behaviour::default();
    behaviour.spares_others_when_over = true;
    let (scene, _) = cached(behaviour, false);
    for _ in 0..4 {
        scene.passes("d", &[&[("minute", "")]]);
    }
    for _ in 0..3 {
        assert!(!scene.passes("d", &[&[("minute", "")], &[("shadow", "")]]));
    }
    assert_eq!(over(&scene, "shadow"), (0, 0));
}

#[test]
fn limits_per_second_have_a_cache_of_their_store() {
    let clock = ManualClock::new(Timestamp::from_micros(START * 1_000_000));
    let store = || {
        let store = MemoryStore::builder().clock(clock.clone()).build();
        Arc::new(store.layer(Faults::new(vec![])))
    };
    let (all, own): (Counting, Counting) = (store(), store());
    let decider = Decider::new(all.clone(), Behaviour::default());
    let decider = decider.with_per_second_store(own.clone());
    let decider =
        decider.with_deny_cache(&DenyCache::new().clock(clock.clone()).max_age(Duration::MAX));
    decider.set_config(read(CONFIG).unwrap()).unwrap();
    let scene = Scene { decider, clock };
    assert_eq!([over(&scene, "second"), over(&scene, "second")], [(0, 0), (1, 0)]);
    let calls = own.as_layer().calls();
    assert_eq!(over(&scene, "second"), (1, 1));
    assert_eq!((own.as_layer().calls(), all.as_layer().calls()), (calls, 0));
}

#[test]
fn the_cache_for_policies_answers_no_other_call() {
    let (scene, store) = cached(Behaviour::default(), true);
    let calls_of_a_refusal = |key: &str| {
        for _ in 0..6 {
            scene.passes("d", &[&[(key, "")]]);
        }
        let before = store.as_layer().calls();
        assert!(!scene.passes("d", &[&[(key, "")]]));
        store.as_layer().calls() - before
    };
    assert_eq!(["login", "bucket"].map(calls_of_a_refusal), [0, 0]);
    assert!(["minute", "second", "report"].map(calls_of_a_refusal).iter().all(|calls| *calls > 0));
    // The cache for policies does not answer calls of `/v1` and RESP, so they always reach the
    // memory store.
    let policy: Policy = "policy: sliding-log 2/1m".parse().unwrap();
    let charges = [Charge::new(&policy, "d|login=")];
    let before = store.as_layer().calls();
    let denied = block_on(scene.decider.store().decide(Call::acquire(&charges)));
    assert!(denied.unwrap().is_denied());
    assert_eq!(store.as_layer().calls(), before + 1);
}

#[test]
fn a_reset_by_another_server_takes_effect_within_the_age_of_the_cache() {
    let (scene, store) = cached(Behaviour::default(), true);
    let policy: Policy = "policy: sliding-log 2/1m".parse().unwrap();
    let charges = [Charge::new(&policy, "d|login=")];
    let passes = || scene.passes("d", &[&[("login", "")]]);
    assert_eq!([passes(), passes(), passes()], [true, true, false]);
    let _ = block_on(store.decide(Call::new(Operation::Reset, &charges))).unwrap();
    assert!(!passes());
    scene.advance(1);
    assert_eq!([passes(), passes(), passes()], [true, true, false]);
    // A reset by this server takes effect immediately.
    let _ = block_on(scene.decider.store().decide(Call::new(Operation::Reset, &charges))).unwrap();
    assert!(passes());
}

proptest! {
    #[test]
    fn with_the_cache_each_request_has_the_same_response(
        requests in vec(
            (
                vec((select(vec!["minute", "second", "shadow", "login", "bucket", "tokens", "report"]), 0_u64..4), 1..4),
                0_u64..3,
                any::<bool>(),
            ),
            1..60,
        ),
        all_or_none in any::<bool>(),
        spares_others_when_over in any::<bool>(),
        only_policies in any::<bool>(),
    ) {
        let mut behaviour = Behaviour::default();
        behaviour.all_or_none = all_or_none;
        behaviour.spares_others_when_over = spares_others_when_over;
        let (with, _) = cached(behaviour.clone(), only_policies);
        let without = Scene::with(CONFIG, behaviour);
        for (descriptors, seconds, is_refund) in requests {
            let descriptor = |(key, cost): &(&str, u64)| match is_refund && *key == "report" {
                true => refund(&[(key, "")], *cost),
                false if *cost == 0 => descriptor(&[(key, "")]),
                false => hits(&[(key, "")], *cost),
            };
            let request = request("d", descriptors.iter().map(descriptor).collect());
            let (expected, found) = (without.decided(&request), with.decided(&request));
            let (expected, mut found) = (expected.unwrap(), found.unwrap());
            prop_assert_eq!(is_ok(&expected.response), is_ok(&found.response));
            // The remaining amount of a cached denial may be too low, so the test accepts a lower
            // amount.
            let is_cached = found.tallies.iter().any(|tally| tally.over_in_cache > 0);
            for (expected, found) in expected.response.statuses.iter().zip(&mut found.response.statuses) {
                let is_bound = is_cached && found.limit_remaining < expected.limit_remaining;
                found.limit_remaining = if is_bound { expected.limit_remaining } else { found.limit_remaining };
            }
            prop_assert_eq!(&expected.response, &found.response, "{:?}", request);
            let over = |tallies: &[tidegate_server::envoy::decide::Tally]| -> Vec<(u64, u64)> {
                tallies.iter().map(|tally| (tally.total, tally.over)).collect()
            };
            prop_assert_eq!(over(&expected.tallies), over(&found.tallies));
            prop_assert!(found.tallies.iter().all(|tally| tally.over_in_cache <= tally.over));
            with.advance(seconds);
            without.advance(seconds);
        }
    }
}
