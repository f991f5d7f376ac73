//! Tests limits that are configured with `policy:` instead of `rate_limit:`.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use tidegate_core::{Answer, Call, Decision, Error, ErrorKind, Store, Timestamp};
use tidegate_memory::MemoryStore;
use tidegate_server::envoy::decide::{Behaviour, Decider};

use crate::scene::{
    Scene, block_on, descriptor, hits, is_ok, is_over, limit, read, refund, request, reset,
};

fn scene(descriptors: &str) -> Scene {
    Scene::new(&format!("domain: d\ndescriptors:\n{descriptors}"))
}

fn remaining(scene: &Scene, entries: &[(&str, &str)]) -> u32 {
    scene.status_of("d", hits(entries, 0)).limit_remaining
}

#[test]
fn a_policy_refuses_with_the_exact_wait() {
    let scene = scene("- {key: a, policy: gcra 10/s burst 100 block 5m}\n");
    let entries = &[("a", "x")][..];
    let status = scene.status_of("d", hits(entries, 100));
    assert_eq!((is_over(&status), status.limit_remaining, reset(&status)), (false, 0, 10));
    // No unit of Envoy's protocol has the length of this window.
    assert_eq!(limit(&status), "100/UNKNOWN");
    let status = scene.status("d", entries);
    assert_eq!((is_over(&status), reset(&status)), (true, 300));
    scene.advance(299);
    assert_eq!(reset(&scene.status("d", entries)), 1);
    scene.advance(1);
    assert!(!is_over(&scene.status("d", entries)));
}

#[test]
fn b67_a_wait_is_rounded_up_and_waiting_for_it_is_enough() {
    let scene = scene("- {key: a, policy: token-bucket 2/3s burst 2}\n");
    let entries = &[("a", "x")][..];
    scene.status_of("d", hits(entries, 2));
    // The wait of 1.5 s is rounded up.
    assert_eq!(reset(&scene.status("d", entries)), 2);
    scene.clock.advance(Duration::from_millis(1_499));
    let status = scene.status("d", entries);
    assert_eq!((is_over(&status), reset(&status)), (true, 1), "1 ms is a second");
    scene.advance(1);
    assert!(!is_over(&scene.status("d", entries)));
    // Waiting does not help, because the request needs more hits than the limit.
    let status = scene.status_of("d", hits(entries, 3));
    assert_eq!((is_over(&status), reset(&status)), (true, 3));
}

#[test]
fn hits_that_a_policy_allows_in_a_refused_request_are_neither_within_nor_near_its_limit() {
    let scene = scene(
        "- {key: wide, policy: fixed-window 10/1d}\n\
         - {key: narrow, policy: fixed-window 1/1d}\n\
         - {key: counted, rate_limit: {unit: day, requests_per_unit: 0}}\n",
    );
    scene.status_of("d", hits(&[("wide", "")], 8));
    let tally_of_wide = |other: &str| {
        let both = vec![descriptor(&[("wide", "")]), descriptor(&[(other, "")])];
        let decided = scene.decided(&request("d", both)).unwrap();
        let tally = &decided.tallies[0];
        (tally.total, tally.over, tally.near, tally.within)
    };
    assert_eq!(tally_of_wide("narrow"), (1, 0, 1, 1), "the request is admitted");
    assert_eq!(tally_of_wide("narrow"), (1, 0, 0, 0), "the other policy denies");
    assert_eq!(tally_of_wide("counted"), (1, 0, 0, 0), "the other limit is over");
    assert_eq!(remaining(&scene, &[("wide", "")]), 1);
}

#[test]
fn policies_of_a_request_are_charged_all_or_none() {
    let scene = scene(
        "- {key: a, policy: fixed-window 5/1m}\n\
         - {key: b, policy: sliding-log 2/1m}\n\
         - {key: c, rate_limit: {unit: minute, requests_per_unit: 3}}\n",
    );
    let (a, b, c) = (&[("a", "")][..], &[("b", "")][..], &[("c", "")][..]);
    let passed: Vec<bool> = (0..4).map(|_| scene.passes("d", &[a, b])).collect();
    assert_eq!(passed, [true, true, false, false]);
    assert_eq!(remaining(&scene, a), 3, "b04: a refused request charges nothing");
    // If a `rate_limit:` refuses the request, no policy is charged. If a policy refuses the
    // request, the `rate_limit:` still counts it.
    assert!(!scene.passes("d", &[b, c]), "b refuses");
    assert_eq!(scene.status_of("d", hits(c, 0)).limit_remaining, 2, "c has counted");
    let passed: Vec<bool> = (0..3).map(|_| scene.passes("d", &[a, c])).collect();
    assert_eq!(passed, [true, true, false]);
    assert_eq!(remaining(&scene, a), 1);
}

#[test]
fn a_quota_that_is_over_does_not_keep_policies_from_being_charged() {
    let scene = scene(
        "- {key: q, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 0}}\n\
         - {key: r, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 9}}\n\
         - {key: a, policy: fixed-window 5/1m}\n",
    );
    let (q, r, a) = (&[("q", "")][..], &[("r", "")][..], &[("a", "")][..]);
    assert!(scene.passes("d", &[q, r, a]));
    assert_eq!(remaining(&scene, a), 4);
    assert!(!scene.passes("d", &[q, a]), "all quotas are over");
    assert_eq!(remaining(&scene, a), 4);
}

#[test]
fn a_request_of_no_hits_asks_whether_one_would_be_admitted() {
    let scene = scene("- {key: a, policy: fixed-window 2/1m}\n");
    let entries = &[("a", "")][..];
    let ask = || scene.status_of("d", hits(entries, 0));
    assert_eq!((is_over(&ask()), ask().limit_remaining), (false, 2));
    scene.status_of("d", hits(entries, 2));
    assert!(is_over(&ask()));
    // A request contains a descriptor without hits and the same descriptor with hits. Both get the
    // same answer.
    scene.advance(60);
    let response = scene.ask(&request("d", vec![hits(entries, 0), hits(entries, 2)]));
    assert!(is_ok(&response));
    assert_eq!(response.statuses[0], response.statuses[1]);
    let response = scene.ask(&request("d", vec![hits(entries, 1), hits(entries, 0)]));
    assert!(response.statuses.iter().all(is_over));
}

#[test]
fn one_descriptor_twice_is_charged_twice_or_not_at_all() {
    let scene = scene("- {key: a, policy: fixed-window 3/1m}\n");
    let entries = &[("a", "")][..];
    assert!(scene.passes("d", &[entries, entries]));
    assert!(!scene.passes("d", &[entries, entries]), "b05");
    assert_eq!(remaining(&scene, entries), 1);
}

#[test]
fn what_was_used_afterwards_is_charged_beyond_the_limit() {
    let scene = scene("- {key: a, policy: token-bucket 100/1m, charge_afterwards: true}\n");
    let entries = &[("a", "")][..];
    assert!(!is_over(&scene.status_of("d", hits(entries, 0))));
    assert!(!is_over(&scene.status_of("d", hits(entries, 200))), "it has happened");
    let status = scene.status_of("d", hits(entries, 0));
    // The debt is 100 tokens, so the bucket has one token after 101 tokens. At 100 tokens per
    // minute, this takes 61 s.
    assert_eq!((is_over(&status), reset(&status)), (true, 61));
    assert!(!is_over(&scene.status_of("d", refund(entries, 150))));
    assert_eq!(remaining(&scene, entries), 50);
}

#[test]
fn a_refund_gives_back_what_was_taken_and_nothing_of_what_was_refused() {
    let scene = scene("- {key: a, policy: fixed-window 10/1h, refunds: true}\n");
    let entries = &[("a", "")][..];
    assert!(!is_over(&scene.status_of("d", hits(entries, 8))));
    assert!(is_over(&scene.status_of("d", hits(entries, 5))));
    assert_eq!(remaining(&scene, entries), 2);
    // Envoy also sends a refund at the end of a refused stream. The store refunds nothing for it.
    assert_eq!(scene.status_of("d", refund(entries, 5)).limit_remaining, 2);
    assert_eq!(scene.status_of("d", refund(entries, 3)).limit_remaining, 5);
    assert_eq!(scene.status_of("d", refund(entries, 100)).limit_remaining, 10);
    assert_eq!(remaining(&scene, entries), 10);
}

#[test]
fn a_refund_of_what_another_limit_refused_gives_nothing_back() {
    let scene = scene(
        "- {key: a, policy: fixed-window 10/1h, refunds: true}\n\
         - {key: b, policy: fixed-window 1/1h}\n\
         - {key: c, rate_limit: {unit: hour, requests_per_unit: 0}}\n",
    );
    let (a, b, c) = (&[("a", "")][..], &[("b", "")][..], &[("c", "")][..]);
    scene.status_of("d", hits(a, 6));
    for other in [b, c] {
        let refused = scene.ask(&request("d", vec![hits(a, 2), hits(other, 2)]));
        assert!(!is_ok(&refused) && !is_over(&refused.statuses[0]));
        assert_eq!(scene.status_of("d", refund(a, 2)).limit_remaining, 4);
    }
}

#[test]
fn refunds_that_are_not_configured_are_errors_that_charge_nothing() {
    let scene = scene(
        "- {key: a, policy: fixed-window 10/1h}\n\
         - {key: b, rate_limit: {unit: hour, requests_per_unit: 9}}\n",
    );
    let asked = request("d", vec![hits(&[("b", "")], 1), refund(&[("a", "")], 1)]);
    let error = scene.decided(&asked).unwrap_err().to_string();
    assert_eq!(
        error,
        "hits of the limit at limits.yaml:3:20 cannot be refunded: its policy needs \
         `refunds: true`, so that the hits of refused requests are known"
    );
    assert_eq!(remaining(&scene, &[("b", "")]), 9);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Checks refunds in any order. Some hits of each request are refunded later, even if the
    /// request was refused.
    #[test]
    fn refunds_never_give_back_more_than_was_taken(
        steps in prop::collection::vec((1_u64..8, 0_u64..8, any::<prop::sample::Index>()), 1..60),
    ) {
        let scene = scene("- {key: a, policy: fixed-window 10/1h, refunds: true}\n");
        let entries = &[("a", "")][..];
        let (mut taken, mut refused, mut open) = (0_u64, 0_u64, Vec::new());
        for (cost, back, which) in steps {
            let is_refused = is_over(&scene.status_of("d", hits(entries, cost)));
            prop_assert_eq!(is_refused, taken + cost > 10);
            if is_refused { refused += cost } else { taken += cost }
            // Envoy refunds the hits that a request did not use. For a refused request, these are
            // all its hits, although the server did not charge them.
            open.push(if is_refused { cost } else { back.min(cost) });
            if open.len() > 3 {
                let amount = open.swap_remove(which.index(open.len()));
                scene.status_of("d", refund(entries, amount));
                let refused_part = amount.min(refused);
                refused -= refused_part;
                taken -= (amount - refused_part).min(taken);
            }
            prop_assert_eq!(u64::from(remaining(&scene, entries)), 10 - taken);
        }
    }
}

#[test]
fn a_shadow_reports_and_does_not_refuse() {
    for shadow in
        ["policy: fixed-window 1/1m, shadow_mode: true", "policy: fixed-window 1/1m shadow"]
    {
        let scene = scene(&format!("- {{key: a, {shadow}}}\n"));
        scene.status("d", &[("a", "")]);
        let decided = scene.decided(&request("d", vec![descriptor(&[("a", "")])])).unwrap();
        assert!(is_ok(&decided.response) && !is_over(&decided.response.statuses[0]));
        assert_eq!((decided.tallies[0].shadow, decided.tallies[0].over), (1, 1));
    }
}

#[test]
fn on_a_server_in_shadow_each_policy_charges_by_itself() {
    let mut behaviour = Behaviour::default();
    behaviour.is_shadow = true;
    let scene = Scene::with(
        "domain: d\ndescriptors:\n\
         - {key: a, policy: fixed-window 0/1m}\n- {key: b, policy: fixed-window 9/1m}\n",
        behaviour,
    );
    let response =
        scene.ask(&request("d", vec![descriptor(&[("a", "")]), descriptor(&[("b", "")])]));
    assert!(is_ok(&response) && is_over(&response.statuses[0]) && !is_over(&response.statuses[1]));
    assert_eq!(remaining(&scene, &[("b", "")]), 8);
}

#[test]
fn with_all_or_none_a_rate_limit_counts_no_refusal() {
    let config = "domain: d\ndescriptors:\n\
         - {key: a, rate_limit: {unit: minute, requests_per_unit: 2}}\n\
         - {key: b, rate_limit: {unit: minute, requests_per_unit: 9}}\n";
    let mut behaviour = Behaviour::default();
    behaviour.all_or_none = true;
    let scene = Scene::with(config, behaviour);
    let both = [&[("a", "")][..], &[("b", "")]];
    let passed: Vec<bool> = (0..4).map(|_| scene.passes("d", &both)).collect();
    assert_eq!(passed, [true, true, false, false]);
    assert_eq!(remaining(&scene, both[1]), 7);
    let status = scene.status("d", both[0]);
    assert_eq!((&*limit(&status), reset(&status)), ("2/MINUTE", 12));
}

#[test]
fn a_policy_that_changes_its_numbers_keeps_what_was_used() {
    let scene = scene("- {key: a, policy: fixed-window 5/1m}\n");
    let entries = &[("a", "")][..];
    scene.status_of("d", hits(entries, 3));
    let config = read("domain: d\ndescriptors:\n- {key: a, policy: fixed-window 9/1m}\n").unwrap();
    scene.decider.set_config(config).unwrap();
    assert_eq!(remaining(&scene, entries), 6);
}

#[test]
fn at_most_64_policies_are_decided_together() {
    let scene = scene("- {key: a, policy: fixed-window 500/1m}\n");
    let asked = |count: usize| {
        let descriptors = (0..count).map(|i| descriptor(&[("a", &i.to_string())])).collect();
        scene.decided(&request("d", descriptors))
    };
    assert!(asked(64).is_ok());
    let error = asked(65).unwrap_err().to_string();
    assert!(error.starts_with("65 descriptors of the request have policies"), "{error}");
}

#[test]
fn a_store_that_fails_is_an_error_and_no_decision() {
    #[derive(Debug)]
    struct Down;
    impl Store for Down {
        fn decide<'a>(&'a self, _: Call<'a>) -> Answer<'a, Result<Decision, Error>> {
            Answer::ready(Err(Error::new(ErrorKind::Unavailable, "no connection")))
        }
        fn now(&self) -> Answer<'_, Result<Timestamp, Error>> {
            Answer::ready(Err(Error::new(ErrorKind::Unavailable, "no connection")))
        }
    }
    for limit in ["policy: fixed-window 1/1m", "rate_limit: {unit: day, requests_per_unit: 1}"] {
        let decider = Decider::new(Arc::new(Down), Behaviour::default());
        decider
            .set_config(read(&format!("domain: d\ndescriptors:\n- {{key: a, {limit}}}\n")).unwrap())
            .unwrap();
        let error = block_on(decider.decide(&request("d", vec![descriptor(&[("a", "")])])));
        assert_eq!(error.unwrap_err().to_string(), "unavailable: no connection");
    }
}

#[test]
fn limits_per_second_may_have_a_store_of_their_own() {
    let (all, own) = (Arc::new(MemoryStore::new()), Arc::new(MemoryStore::new()));
    let decider =
        Decider::new(all.clone(), Behaviour::default()).with_per_second_store(own.clone());
    let config = "domain: d\ndescriptors:\n\
         - {key: s, rate_limit: {unit: second, requests_per_unit: 9}}\n\
         - {key: m, rate_limit: {unit: minute, requests_per_unit: 8}}\n\
         - {key: p, policy: fixed-window 7/1s}\n";
    decider.set_config(read(config).unwrap()).unwrap();
    let descriptors = ["s", "m", "p"].map(|key| descriptor(&[(key, "")])).to_vec();
    let response = block_on(decider.decide(&request("d", descriptors))).unwrap().response;
    let remaining: Vec<_> = response.statuses.iter().map(|status| status.limit_remaining).collect();
    assert_eq!(remaining, [8, 7, 6]);
    assert_eq!((all.len(), own.len()), (2, 1));
}

#[test]
fn without_a_configuration_there_is_no_decision() {
    let decider = Decider::new(Arc::new(MemoryStore::new()), Behaviour::default());
    let error = block_on(decider.decide(&request("d", vec![descriptor(&[("a", "")])])));
    assert_eq!(error.unwrap_err().to_string(), "no rate limit configuration loaded");
}
