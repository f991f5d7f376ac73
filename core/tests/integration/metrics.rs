//! Tests of the metrics that an observed store records.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::time::Duration;

use tidegate_core::telemetry::names;
use tidegate_core::{
    Answer, Call, Charge, Decision, Degraded, DegradedAnswer, Error, ErrorKind, Limiter,
    ManualClock, OnFailure, Operation, Outcome, Policy, Store, StoreExt, Timestamp, Verdict,
    Warnings,
};
use tidegate_memory::MemoryStore;
use tidegate_testkit::faults::{Fault, Faults};
use tidegate_testkit::{ModelStore, Recorder};

tidegate_testkit::conformance!(observed, |clock| MemoryStore::builder()
    .clock(clock)
    .build()
    .warned(Warnings::new(|_| {}))
    .observed());

/// Runs a future to its end with a new recorder. Returns the recorder and the output of the future.
fn recorded<F: Future>(run: impl FnOnce() -> F) -> (Recorder, F::Output) {
    let recorder = Recorder::new();
    let output = metrics::with_local_recorder(&recorder, || crate::run(run()));
    (recorder, output)
}

fn policies(texts: &[&str]) -> Vec<Policy> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn memory() -> MemoryStore<ManualClock> {
    MemoryStore::builder().clock(ManualClock::default()).build()
}

fn counts(expected: &[(&str, u64)]) -> BTreeMap<String, u64> {
    expected.iter().map(|(series, count)| ((*series).to_owned(), *count)).collect()
}

#[test]
fn each_call_and_each_verdict_is_counted_by_its_outcome() {
    let (recorder, ()) = recorded(|| async {
        let all = policies(&["day: fixed-window 10/1d", "login: fixed-window 2/1m block 5m"]);
        let limiter = Limiter::new(memory().observed(), all).unwrap();
        for _ in 0..4 {
            let _ = limiter.acquire("alice").await.unwrap();
        }
        let _ = limiter.subject("alice").peek().await.unwrap();
        let _ = limiter.subject("alice").refund().await.unwrap();
        let undo = Operation::Undo { at: Timestamp::EPOCH };
        let charges = [Charge::new(&limiter.policies()[0], "alice")];
        let _ = limiter.store().decide(Call::new(undo, &charges)).await.unwrap();
    });
    assert_eq!(
        recorder.counted(),
        counts(&[
            (r#"tidegate_calls_total{operation="acquire",outcome="allowed"}"#, 2),
            (r#"tidegate_calls_total{operation="acquire",outcome="denied"}"#, 2),
            // A refused peek refuses no request. So the peek is not counted as a decision.
            (r#"tidegate_calls_total{operation="peek",outcome="denied"}"#, 1),
            // The outcome of a refund shows the state of the subject after the refund. The subject
            // is still blocked.
            (r#"tidegate_calls_total{operation="refund",outcome="denied"}"#, 1),
            (r#"tidegate_calls_total{operation="undo",outcome="allowed"}"#, 1),
            (r#"tidegate_decisions_total{outcome="allowed",policy="day",shadow="false"}"#, 2),
            (r#"tidegate_decisions_total{outcome="other-denied",policy="day",shadow="false"}"#, 2),
            (r#"tidegate_decisions_total{outcome="allowed",policy="login",shadow="false"}"#, 2),
            (r#"tidegate_decisions_total{outcome="denied",policy="login",shadow="false"}"#, 1),
            (r#"tidegate_decisions_total{outcome="blocked",policy="login",shadow="false"}"#, 1),
            // After the second call, 0 of 2 remain for the policy `login`, and 8 of 10 remain for
            // the policy `day`.
            (r#"tidegate_near_limit_total{policy="login",shadow="false"}"#, 1),
        ])
    );
    assert_eq!(recorder.times(r#"tidegate_store_seconds{operation="acquire"}"#), Some(4));
}

#[test]
fn held_and_settled_amounts_are_summed_by_policy() {
    let (recorder, ()) = recorded(|| async {
        let all = policies(&["p: fixed-window 90/1d", "q: fixed-window 90/1d shadow"]);
        let limiter = Limiter::new(memory().observed(), all).unwrap();
        let minute = Duration::from_secs(60);
        let hold = async |id, cost| limiter.subject("a").cost(cost).hold(id, minute).await.unwrap();
        let ticket = hold("one", 40).await.into_ticket().unwrap();
        assert!(hold("two", 60).await.ticket().is_none());
        let up_to = limiter.subject("a").cost(60).hold_up_to(1, "three", minute).await.unwrap();
        assert!(up_to.ticket().is_some());
        limiter.settle_so_far(&ticket, [("p", 10)]).await.unwrap();
        limiter.settle(&ticket, [("p", 25), ("q", 50)]).await.unwrap();
        // The shadow policy denies this hold, so the hold charges nothing.
        let shadow = limiter.by("q", "b").cost(91).hold("four", minute).await.unwrap();
        assert!(shadow.ticket().is_some());
    });
    let counter = |series| recorder.counter(series);
    assert_eq!(counter(r#"tidegate_held_total{policy="p",shadow="false"}"#), Some(90));
    assert_eq!(counter(r#"tidegate_held_total{policy="q",shadow="true"}"#), Some(90));
    assert_eq!(counter(r#"tidegate_settled_total{policy="p",shadow="false"}"#), Some(25));
    assert_eq!(counter(r#"tidegate_settled_total{policy="q",shadow="true"}"#), Some(50));
    let denied = r#"tidegate_calls_total{operation="hold",outcome="denied"}"#;
    assert_eq!(counter(denied), Some(1));
}

#[test]
fn without_the_store_only_a_hold_of_the_fallback_store_is_counted_as_held() {
    let (recorder, ()) = recorded(|| async {
        let down = Fault::Before(ErrorKind::Unavailable);
        let faults = Faults::new(vec![down, Fault::None, down, Fault::None]);
        let on_failure = OnFailure::fall_back_to(memory(), "1/2".parse().unwrap());
        let store = memory().layer(faults).on_failure(on_failure.open_for("open"));
        let all = policies(&["slots: concurrent 4 lease 30s", "open: fixed-window 9/1d"]);
        let limiter = Limiter::new(store.observed(), all).unwrap();
        for policy in ["slots", "open"] {
            let minute = Duration::from_secs(60);
            let hold = limiter.by(policy, "a").cost(2).hold(policy, minute).await.unwrap();
            assert!(hold.decision().degraded().is_some());
            // The store is back, and does not know the hold.
            limiter.extend(&hold.into_ticket().unwrap(), minute).await.unwrap();
        }
    });
    let counter = |series| recorder.counter(series);
    assert_eq!(counter(r#"tidegate_held_total{policy="slots",shadow="false"}"#), Some(2));
    assert_eq!(counter(r#"tidegate_held_total{policy="open",shadow="false"}"#), Some(0));
    let degraded = r#"tidegate_degraded_total{answer="fell-back",reason="unavailable"}"#;
    assert_eq!(counter(degraded), Some(1));
}

#[test]
fn a_charge_that_leaves_less_than_a_fifth_is_near_the_limit() {
    let (recorder, ()) = recorded(|| async {
        let limiter = Limiter::new(memory().observed(), policies(&["p: fixed-window 10/1d"]));
        let limiter = limiter.unwrap();
        // After the first call, exactly a fifth of the limit remains. After the second call, less
        // than a fifth remains.
        let _ = limiter.subject("alice").cost(8).acquire().await.unwrap();
        let _ = limiter.subject("alice").cost(1).acquire().await.unwrap();
    });
    let series = r#"tidegate_near_limit_total{policy="p",shadow="false"}"#;
    assert_eq!(recorder.counter(series), Some(1));
}

#[test]
fn a_policy_with_room_is_not_counted_as_allowed_or_near_its_limit_if_another_policy_denies() {
    let (recorder, ()) = recorded(|| async {
        let all = policies(&["wide: fixed-window 10/1d", "narrow: fixed-window 1/1d"]);
        let limiter = Limiter::new(memory().observed(), all).unwrap();
        let _ = limiter.by("wide", "alice").cost(8).acquire().await.unwrap();
        // The first call is admitted. The next calls are denied by the policy `narrow`, while the
        // policy `wide` would admit another call.
        for _ in 0..3 {
            let _ = limiter.acquire("alice").await.unwrap();
        }
    });
    let counter = |series: &str| recorder.counter(series);
    let decisions = |outcome: &str, policy: &str| {
        let labels = format!(r#"outcome="{outcome}",policy="{policy}",shadow="false""#);
        counter(&format!("tidegate_decisions_total{{{labels}}}"))
    };
    assert_eq!(decisions("allowed", "narrow"), Some(1));
    assert_eq!(decisions("denied", "narrow"), Some(2));
    assert_eq!(decisions("allowed", "wide"), Some(2));
    assert_eq!(decisions("denied", "wide"), Some(0));
    assert_eq!(decisions("other-denied", "wide"), Some(2));
    assert_eq!(counter(r#"tidegate_near_limit_total{policy="wide",shadow="false"}"#), Some(1));
}

#[test]
fn denials_of_a_shadow_are_distinguished_from_refusals() {
    let (recorder, decision) = recorded(|| async {
        let all = policies(&["p: fixed-window 1/1m shadow"]);
        let limiter = Limiter::new(memory().observed(), all).unwrap();
        let _ = limiter.acquire("alice").await.unwrap();
        limiter.acquire("alice").await.unwrap()
    });
    assert!(decision.is_allowed());
    let denied = r#"tidegate_decisions_total{outcome="denied",policy="p",shadow="true"}"#;
    assert_eq!(recorder.counter(denied), Some(1));
    let allowed = r#"tidegate_calls_total{operation="acquire",outcome="allowed"}"#;
    assert_eq!(recorder.counter(allowed), Some(2));
}

#[test]
fn b55_every_error_is_in_the_result_and_in_the_metrics() {
    let kinds = [ErrorKind::Busy, ErrorKind::Timeout, ErrorKind::ForeignValue];
    let (recorder, answers) = recorded(|| async {
        let plan = kinds.map(Fault::Before).to_vec();
        let store = ModelStore::new(ManualClock::default()).layer(Faults::new(plan)).observed();
        let limiter = Limiter::new(store, policies(&["p: fixed-window 5/1m"])).unwrap();
        let mut answers = vec![];
        for _ in kinds {
            answers.push(limiter.acquire("alice").await.map_err(|error| error.kind()));
        }
        answers
    });
    assert_eq!(answers, kinds.map(Err));
    for kind in kinds {
        let series = format!("tidegate_store_errors_total{{kind={:?}}}", kind.as_str());
        assert_eq!(recorder.counter(&series), Some(1), "{series}");
    }
    let failed = r#"tidegate_calls_total{operation="acquire",outcome="failed"}"#;
    assert_eq!(recorder.counter(failed), Some(3));
    // A failed call has no verdict, so it does not count as a decision.
    let decided = recorder.counted().into_keys().filter(|s| s.starts_with("tidegate_decisions"));
    assert_eq!(decided.count(), 0);
}

/// A store that returns degraded decisions, and an error for a query of its time.
#[derive(Debug)]
struct Degrading(Degraded);

impl Store for Degrading {
    fn decide<'a>(&'a self, _: Call<'a>) -> Answer<'a, Result<Decision, Error>> {
        let verdict = Verdict::new(Outcome::Allowed, 5).with_remaining(5);
        Answer::ready(Ok(Decision::one(verdict).degraded_by(self.0.clone())))
    }

    fn now(&self) -> Answer<'_, Result<Timestamp, Error>> {
        Answer::ready(Err(Error::new(self.0.reason, "no time")))
    }
}

#[test]
fn b44_a_degraded_decision_is_counted_by_its_answer_and_reason() {
    let (answer, reason) = (DegradedAnswer::FellBack, ErrorKind::CircuitOpen);
    let (recorder, ()) = recorded(|| async {
        let store = Degrading(Degraded::new(answer, reason)).observed();
        let limiter = Limiter::new(store, policies(&["p: fixed-window 5/1m"])).unwrap();
        assert!(limiter.acquire("alice").await.unwrap().degraded().is_some());
        assert!(limiter.store().now().await.is_err());
    });
    let series = r#"tidegate_degraded_total{answer="fell-back",reason="circuit-open"}"#;
    assert_eq!(recorder.counter(series), Some(1));
    // A degraded decision counts as a decision and not as an error. The failed query of the time
    // counts as an error.
    let decided = r#"tidegate_decisions_total{outcome="allowed",policy="p",shadow="false"}"#;
    assert_eq!(recorder.counter(decided), Some(1));
    let error = r#"tidegate_store_errors_total{kind="circuit-open"}"#;
    assert_eq!(recorder.counter(error), Some(1));
}

#[test]
fn each_call_of_a_batch_is_counted_and_the_time_is_recorded_once() {
    let (recorder, ()) = recorded(|| async {
        let store = memory().observed();
        let policy: Policy = "p: fixed-window 2/1m".parse().unwrap();
        let charges = [Charge::new(&policy, "alice")];
        let calls = [Call::acquire(&charges); 3];
        assert_eq!(store.decide_many(&calls).await.len(), 3);
    });
    let allowed = r#"tidegate_calls_total{operation="acquire",outcome="allowed"}"#;
    assert_eq!(recorder.counter(allowed), Some(2));
    assert_eq!(recorder.times(r#"tidegate_store_seconds{operation="batch"}"#), Some(1));
    assert_eq!(recorder.times(r#"tidegate_store_seconds{operation="acquire"}"#), Some(0));
}

#[test]
fn a_cancelled_call_is_counted_and_its_time_is_recorded() {
    let (recorder, ()) = recorded(|| async {
        let store = memory().layer(Faults::new(vec![Fault::Delayed])).observed();
        let limiter = Limiter::new(store, policies(&["p: token-bucket 5/1m"])).unwrap();
        let mut answer = limiter.subject("alice").reserve(Duration::from_secs(9));
        std::future::poll_fn(|context| {
            assert!(std::pin::Pin::new(&mut answer).poll(context).is_pending());
            std::task::Poll::Ready(())
        })
        .await;
        drop(answer);
    });
    let cancelled = r#"tidegate_calls_total{operation="reserve",outcome="cancelled"}"#;
    assert_eq!(recorder.counted(), counts(&[(cancelled, 1)]));
    assert_eq!(recorder.times(r#"tidegate_store_seconds{operation="reserve"}"#), Some(1));
}

#[test]
fn counters_begin_at_zero_so_that_their_first_event_is_seen() {
    let (recorder, ()) = recorded(|| async {
        let all = policies(&["p: fixed-window 5/1m"]);
        let limiter = Limiter::new(memory().observed(), all).unwrap();
        let _ = limiter.acquire("alice").await.unwrap();
    });
    for series in [
        r#"tidegate_decisions_total{outcome="denied",policy="p",shadow="false"}"#,
        r#"tidegate_degraded_total{answer="failed-open",reason="timeout"}"#,
        r#"tidegate_store_errors_total{kind="unavailable"}"#,
        r#"tidegate_calls_total{operation="block",outcome="failed"}"#,
    ] {
        assert_eq!(recorder.counter(series), Some(0), "{series}");
    }
    // A failure policy never decides on an invalid call, so there is no counter for such decisions.
    let mistake = r#"tidegate_degraded_total{answer="failed-open",reason="invalid-call"}"#;
    assert_eq!(recorder.counter(mistake), None);
}

#[test]
fn b46_policies_made_at_run_time_do_not_flood_the_metrics() {
    let (recorder, ()) = recorded(|| async {
        let store = memory().observed();
        for number in 0..1_000 {
            let policy: Policy = format!("p{number}: fixed-window 5/1m").parse().unwrap();
            let charges = [Charge::new(&policy, "alice")];
            let _ = store.decide(Call::acquire(&charges)).await.unwrap();
        }
    });
    let counted = recorder.counted();
    let allowed = |(series, _): &(&String, &u64)| series.starts_with("tidegate_decisions_total");
    assert_eq!(counted.iter().filter(allowed).count(), names::MAX_POLICIES + 1);
    let others = r#"tidegate_decisions_total{outcome="allowed",policy="(other)",shadow="false"}"#;
    assert_eq!(counted[others], 1_000 - names::MAX_POLICIES as u64);
}

#[test]
fn a_policy_that_warns_is_near_its_limit_from_its_percentage_on() {
    let (recorder, ()) = recorded(|| async {
        let all = policies(&["p: fixed-window 10/1m warn 50%"]);
        let limiter = Limiter::new(memory().observed(), all).unwrap();
        for _ in 0..7 {
            let _ = limiter.acquire("alice").await.unwrap();
        }
    });
    assert_eq!(recorder.counted()[r#"tidegate_near_limit_total{policy="p",shadow="false"}"#], 3);
}

#[test]
fn no_subject_and_no_tenant_is_ever_a_label() {
    let (recorder, ()) = recorded(|| async {
        let all = policies(&["p: fixed-window 1/1m"]);
        let limiter = Limiter::new(memory().observed(), all).unwrap();
        for subject in ["alice", "alice", "bob"] {
            let _ = limiter.subject(subject).tenant("acme").acquire().await.unwrap();
        }
    });
    let all = format!("{recorder:?}");
    assert!(all.contains("acquire") && !["alice", "bob", "acme"].iter().any(|s| all.contains(s)));
}

#[test]
fn every_metric_is_described_and_has_the_labels_that_are_listed() {
    let (recorder, ()) = recorded(|| async {
        let all = policies(&["p: fixed-window 5/1m"]);
        let limiter = Limiter::new(memory().observed(), all).unwrap();
        let _ = limiter.acquire("alice").await.unwrap();
    });
    let listed: BTreeMap<_, _> =
        names::ALL.iter().map(|m| (m.name.to_owned(), m.help.to_owned())).collect();
    assert_eq!(recorder.help(), listed);
    for (name, labels) in recorder.labels() {
        let metric = names::ALL.iter().find(|metric| metric.name == name);
        let metric = metric.unwrap_or_else(|| panic!("{name} is not listed"));
        let listed: BTreeSet<_> = metric.labels.iter().map(|&label| label.to_owned()).collect();
        assert_eq!(labels, listed, "{name}");
    }
}

#[test]
fn every_listed_metric_is_recorded() {
    use tidegate_core::{Breaker, DenyCache, Lease, PolicyLists};

    let (recorder, ()) = recorded(|| async {
        let lists = PolicyLists::new().with("p", "allow subject bob".parse().unwrap());
        let store = memory().breaker(Breaker::new().failures(1)).deny_cache(DenyCache::new());
        let store = store.leased(Lease::new()).or_fail_open().listed(lists);
        let store = store.warned(Warnings::new(|_| {})).observed();
        let limiter = Limiter::new(store, policies(&["p: token-bucket 5/1m warn 1%"])).unwrap();
        assert!(limiter.acquire("bob").await.unwrap().is_allowed());
        let wait = Duration::from_secs(1);
        assert!(limiter.subject("alice").acquire_within(wait).await.unwrap().is_allowed());
        assert!(limiter.acquire("alice").await.unwrap().is_allowed());
        assert!(limiter.subject("alice").hold("id", wait).await.unwrap().ticket().is_some());
    });
    let recorded = recorder.labels();
    let listed = names::ALL.iter().map(|metric| metric.name);
    let missing: Vec<_> = listed.filter(|&name| !recorded.contains_key(name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn each_change_of_a_breaker_is_recorded() {
    use tidegate_core::Breaker;

    let clock = ManualClock::default();
    let down = vec![Fault::Before(ErrorKind::Unavailable); 3];
    let store = memory().layer(Faults::new(down));
    let breaker = Breaker::new().failures(2).open_for(Duration::from_secs(1)).clock(clock.clone());
    let recorder = Recorder::new();
    let states = || {
        let state = |state| recorder.gauge(&format!("tidegate_breaker_state{{state={state:?}}}"));
        ["closed", "half-open", "open"].map(|name| state(name).unwrap())
    };
    let opened = || recorder.counter("tidegate_breaker_opened_total").unwrap();
    metrics::with_local_recorder(&recorder, || {
        let limiter = Limiter::new(store.breaker(breaker), policies(&["p: fixed-window 5/1m"]));
        let limiter = limiter.unwrap();
        let succeeds = || crate::run(limiter.acquire("alice").into_future()).is_ok();
        assert!(!succeeds());
        assert_eq!((states(), opened()), ([1.0, 0.0, 0.0], 0));
        // The second consecutive failure opens the circuit, and the store is not called any more.
        assert!(!succeeds() && !succeeds());
        assert_eq!((states(), opened()), ([0.0, 0.0, 1.0], 1));
        // A probe fails and opens the circuit again.
        clock.advance(Duration::from_secs(1));
        assert!(!succeeds());
        assert_eq!((states(), opened()), ([0.0, 0.0, 1.0], 2));
        // The circuit is half open while a probe is in flight, and closed after the probe has
        // succeeded.
        clock.advance(Duration::from_secs(1));
        assert!(succeeds());
        assert_eq!((states(), opened()), ([1.0, 0.0, 0.0], 2));
        drop(limiter);
        assert_eq!(states(), [0.0, 0.0, 0.0]);
    });
}

#[test]
fn waiters_are_counted_while_they_wait() {
    let recorder = Recorder::new();
    let gauges =
        || ["tidegate_waiters", "tidegate_waiters_limit"].map(|name| recorder.gauge(name).unwrap());
    metrics::with_local_recorder(&recorder, || {
        crate::run(async {
            let all = policies(&["p: token-bucket 1/1h"]);
            let limiter = Limiter::new(memory(), all).unwrap().max_waiters(7);
            assert!(limiter.acquire("alice").await.unwrap().is_allowed());
            let wait = Duration::from_secs(7_200);
            let mut wait = Box::pin(limiter.subject("alice").acquire_within(wait));
            std::future::poll_fn(|context| {
                assert!(wait.as_mut().poll(context).is_pending());
                std::task::Poll::Ready(())
            })
            .await;
            assert_eq!(gauges(), [1.0, 7.0]);
            drop(wait);
            assert_eq!(gauges(), [0.0, 7.0]);
        });
    });
    assert_eq!(gauges(), [0.0, 0.0]);
}

#[test]
fn an_observed_decision_allocates_nothing_and_boxes_no_future() {
    let (_, allocated) = recorded(|| async {
        let all = policies(&["a: fixed-window 1000/1m", "b: token-bucket 5/1m shadow"]);
        let store = memory().observed();
        let decide = || {
            let charges = [Charge::new(&all[0], "alice"), Charge::new(&all[1], "alice")];
            let call = Call::new(Operation::Acquire, &charges);
            assert!(store.decide(call).into_ready().unwrap().unwrap().is_allowed());
        };
        // The first call registers the metrics and creates the states, so it is not measured.
        decide();
        allocation_counter::measure(|| (0..100).for_each(|_| decide())).count_total
    });
    assert_eq!(allocated, 0);
}
