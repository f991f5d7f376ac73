//! Tests of holds that are made through a limiter, also while the store is down.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, and so do its helpers")]

use std::collections::HashMap;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

use tidegate_core::algorithm::fixed_window;
use tidegate_core::engine::State;
use tidegate_core::layers::ShardedStore;
use tidegate_core::no_semver::{MAX_COUNTED_LAPSES, OpenHolds, Take, Wait};
use tidegate_core::{
    Answer, Call, Clock, Decision, DenyCache, Error, ErrorKind, HoldGuard, Limiter, ManualClock,
    OnDrop, OnFailure, Outcome, Policy, Store, StoreExt, Ticket, Timestamp,
};
use tidegate_testkit::ModelStore;
use tidegate_testkit::faults::{Fault, Faults};

use crate::run;
use crate::stubs::{Mood, Stub};

const MINUTE: Duration = Duration::from_secs(60);

fn policy(text: &str) -> Policy {
    text.parse().unwrap()
}

fn model() -> ModelStore {
    ModelStore::new(ManualClock::default())
}

fn limiter<S: Store>(store: S, policies: &[&str]) -> Limiter<S> {
    Limiter::new(store, policies.iter().map(|text| policy(text))).unwrap()
}

async fn remaining<S: Store>(limiter: &Limiter<S>, subject: &str) -> Vec<u64> {
    let peek = limiter.subject(subject).cost(0).peek().await.unwrap();
    peek.verdicts().iter().map(|verdict| verdict.remaining()).collect()
}

#[test]
fn one_hold_charges_at_most_its_share_of_the_limit() {
    run(async {
        let limiter = limiter(
            model(),
            &["tokens: fixed-window 100/1h max-hold 1/4", "day: fixed-window 1000/24h block 1h"],
        );
        let request = |cost| limiter.by("tokens", "a").cost(cost).by("day", "a").cost(cost);
        let refused = request(26).hold("one", MINUTE).await.unwrap();
        assert!(refused.ticket().is_none());
        let verdict = refused.decision().verdicts()[0];
        assert_eq!(verdict.outcome(), Outcome::TooLarge);
        assert_eq!((verdict.retry_after(), verdict.remaining()), (None, 100));
        assert_eq!(refused.decision().verdicts()[1].outcome(), Outcome::Allowed);
        assert_eq!(refused.decision().retry_after(), None);
        // This hold exceeds the `max-hold` of the policy `tokens`. So the store writes nothing: the
        // policy `day` does not block, and the id can be used again.
        assert!(request(2_000).hold("one", MINUTE).await.unwrap().ticket().is_none());
        assert_eq!(remaining(&limiter, "a").await, [100, 1000]);
        assert!(request(25).hold("one", MINUTE).await.unwrap().ticket().is_some());
        // A hold with `hold_up_to` gets at most the maximum of `max-hold`, which is 25.
        let up_to = request(90).hold_up_to(1, "two", MINUTE).await.unwrap();
        let ticket = up_to.into_ticket().unwrap();
        assert_eq!(ticket.held().collect::<Vec<_>>(), [("tokens", 25), ("day", 25)]);
        // A minimum above the maximum is refused as a hold of this cost is. Nothing is charged.
        let refused = request(60).hold_up_to(40, "three", MINUTE).await.unwrap();
        let outcomes = refused.decision().verdicts().iter().map(|verdict| verdict.outcome());
        assert_eq!(outcomes.collect::<Vec<_>>(), [Outcome::TooLarge, Outcome::Allowed]);
        assert_eq!(remaining(&limiter, "a").await, [50, 950]);
        let invalid = request(30).hold_up_to(40, "three", MINUTE).await.unwrap_err();
        assert_eq!(invalid.kind(), ErrorKind::InvalidCall);
        // `max-hold` does not apply to an acquire.
        assert!(request(50).acquire().await.unwrap().is_allowed());
    });
}

#[test]
fn a_shadow_admits_a_hold_that_is_too_large() {
    run(async {
        let limiter = limiter(model(), &["p: fixed-window 100/1h max-hold 1/4 shadow"]);
        let hold = limiter.subject("a").cost(30).hold("id", MINUTE).await.unwrap();
        assert_eq!(hold.ticket().unwrap().held().collect::<Vec<_>>(), [("p", 30)]);
        let hold = limiter.subject("b").cost(90).hold_up_to(30, "other", MINUTE).await.unwrap();
        assert_eq!(hold.ticket().unwrap().held().collect::<Vec<_>>(), [("p", 90)]);
    });
}

#[test]
fn the_maximum_hold_is_part_of_the_text_of_a_policy() {
    let text = "api: token-bucket 10/1s burst 100 block 1m shards 4 by-subject max-hold 1/3";
    assert!(text.replace(" block 1m", "").parse::<Policy>().is_ok_and(|policy| {
        let held = policy.shares().iter().map(Policy::max_hold).collect::<Vec<_>>();
        policy.to_string() == text.replace(" block 1m", "")
            && policy.max_hold() == Some(33)
            && held == [Some(8); 4]
    }));
    let third = "1/3".parse().unwrap();
    let scaled = policy("p: gcra 9/1s burst 90 max-hold 1/9").scaled_to(third).unwrap().unwrap();
    assert_eq!(scaled.to_string(), "p: gcra 3/1s burst 30 max-hold 1/9");
    assert_eq!(policy("fixed-window 3/1s max-hold 1/9").max_hold(), Some(1));
    assert_eq!(policy("fixed-window 3/1s").max_hold(), None);
    for (text, message) in [
        ("gcra 9/1s max-hold", "a share of the limit after `max-hold`"),
        ("gcra 9/1s max-hold 5", "`5` is not a share"),
        ("gcra 9/1s max-hold 3/2", "3/2 is not a valid share"),
        ("gcra 9/1s max-hold 0/2", "a maximum hold of 0/2 of the limit allows none"),
        ("gcra 9/1s max-hold 1/2 max-hold 1/2", "`max-hold` is given twice"),
    ] {
        let error = text.parse::<Policy>().unwrap_err().to_string();
        assert!(error.contains(message), "{text}: {error}");
    }
}

#[test]
fn costs_are_named_by_policy_and_other_costs_stay_as_held() {
    run(async {
        let limiter =
            limiter(model(), &["requests: fixed-window 9/1h", "tokens: fixed-window 99/1h"]);
        let request = limiter.by("requests", "a").by("tokens", "a").cost(40);
        let request = request.by("tokens", "team").cost(40);
        let ticket = request.hold("id", MINUTE).await.unwrap().into_ticket().unwrap();
        let held = [("requests", 1), ("tokens", 40), ("tokens", 40)];
        assert_eq!(ticket.held().collect::<Vec<_>>(), held);

        let error = limiter.settle(&ticket, [("tokens", 3), ("spend", 3)]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidCall);
        assert!(error.to_string().contains("`spend`"), "{error}");
        assert_eq!(remaining(&limiter, "team").await, [9, 59], "nothing must be settled");

        limiter.settle_so_far(&ticket, [("tokens", 50)]).await.unwrap();
        assert_eq!(remaining(&limiter, "a").await, [8, 49]);
        let settlement = limiter.settle(&ticket, [("tokens", 55)]).await.unwrap();
        assert_eq!((settlement.charged("tokens"), settlement.given_back("tokens")), (10, 0));
        assert_eq!((settlement.charged("requests"), settlement.given_back("requests")), (0, 0));
        assert_eq!(remaining(&limiter, "team").await, [9, 44]);
    });
}

#[test]
fn a_hold_is_cancelled_and_extended_by_its_ticket() {
    run(async {
        let clock = ManualClock::default();
        let limiter = limiter(ModelStore::new(clock.clone()), &["p: fixed-window 9/1h"]);
        let hold = limiter.subject("a").cost(5).hold("id", MINUTE).await.unwrap();
        let ticket = hold.into_ticket().unwrap();
        clock.advance(MINUTE / 2);
        limiter.extend(&ticket, 3 * MINUTE).await.unwrap();
        clock.advance(2 * MINUTE);
        assert_eq!(limiter.cancel(&ticket).await.unwrap().given_back("p"), 5);
        assert_eq!(remaining(&limiter, "a").await, [9]);
        let error = limiter.settle(&ticket, [("p", 2)]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AlreadySettled);
        assert!(format!("{error:#}").contains("has ended: it was cancelled"), "{error:#}");
        clock.advance(10 * MINUTE);
        let error = limiter.settle(&ticket, [("p", 2)]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnknownHold);
        assert!(error.to_string().contains("charge"), "{error}");
    });
}

#[test]
fn a_ticket_is_settled_from_its_text() {
    run(async {
        let here = limiter(model(), &["p: token-bucket 90/1h", "q: sliding-log 90/1h shadow"]);
        let hold =
            here.subject("a\0\u{ff}").tenant("t").cost(50).hold(b"\0id", MINUTE).await.unwrap();
        let text = serde_json::to_string(hold.ticket().unwrap()).unwrap();
        let ticket: Ticket = serde_json::from_str(&text).unwrap();
        assert_eq!(Some(&ticket), hold.ticket());
        assert_eq!((ticket.id(), ticket.ttl()), (&b"\0id"[..], MINUTE));
        let settlement = here.settle(&ticket, [("p", 20), ("q", 20)]).await.unwrap();
        assert_eq!((settlement.given_back("p"), settlement.given_back("q")), (30, 30));
        // A forged ticket refunds nothing.
        let other = text.replace("90/1h", "91/1h");
        let forged: Ticket = serde_json::from_str(&other).unwrap();
        assert_eq!(here.cancel(&forged).await.unwrap_err().kind(), ErrorKind::IdReused);
        assert!(serde_json::from_str::<Ticket>(&text.replace("90/1h", "0/1h/")).is_err());
    });
}

#[test]
fn a_ticket_without_a_version_is_read_and_one_of_a_later_version_is_rejected() {
    run(async {
        let here = limiter(model(), &["p: token-bucket 90/1h"]);
        let hold = here.subject("a").tenant("t").cost(50).hold("id", MINUTE).await.unwrap();
        let text = serde_json::to_string(hold.ticket().unwrap()).unwrap();
        // `fields` contains all fields except the version `v`. A program of an earlier version
        // ignores `v` and reads these fields, so they must not change.
        let fields = r#""id":[105,100],"ttl":{"secs":60,"nanos":0},"is_degraded":false,"charges":[{"charge":{"policy":"p: token-bucket 90/1h burst 90","tenant":[116],"subject":[97],"cost":50,"is_check_only":false},"held":50}]}"#;
        assert_eq!(text, format!(r#"{{"v":1,{fields}"#));
        let unversioned: Ticket = serde_json::from_str(&format!("{{{fields}")).unwrap();
        assert_eq!(Some(&unversioned), hold.ticket());
        for later in [format!(r#"{{"v":2,{fields}"#), r#"{"v":2,"other":true}"#.to_owned()] {
            let error = serde_json::from_str::<Ticket>(&later).unwrap_err().to_string();
            let message = "the version of the ticket is 2; it must be 1";
            assert!(error.starts_with(message), "{error}");
        }
    });
}

#[test]
fn a_hold_that_was_admitted_without_the_store_is_charged_once_when_it_is_settled() {
    run(async {
        let clock = ManualClock::default();
        let stub = Stub::new(&clock);
        let store = stub.clone().on_failure(OnFailure::open().clock(clock.clone()));
        let limiter = limiter(store, &["p: fixed-window 90/1h"]);
        stub.set(Mood::Down(ErrorKind::Unavailable));
        let hold = limiter.subject("a").cost(50).hold("id", MINUTE).await.unwrap();
        assert!(hold.decision().degraded().is_some());
        let ticket = hold.into_ticket().unwrap();
        assert!(ticket.is_degraded());
        let error = limiter.settle(&ticket, [("p", 30)]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "a settlement does not fail open");

        stub.set(Mood::Up);
        limiter.settle_so_far(&ticket, [("p", 10)]).await.unwrap();
        limiter.extend(&ticket, MINUTE).await.unwrap();
        assert_eq!(remaining(&limiter, "a").await, [90], "nothing is held in the store");
        let settlement = limiter.settle(&ticket, [("p", 30)]).await.unwrap();
        assert_eq!(settlement.charged("p"), 30);
        assert_eq!(limiter.settle(&ticket, [("p", 30)]).await.unwrap(), settlement);
        let error = limiter.settle(&ticket, [("p", 31)]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::IdReused);
        assert_eq!(remaining(&limiter, "a").await, [60]);
    });
}

#[test]
fn a_hold_whose_answer_was_lost_is_settled_like_any_hold() {
    run(async {
        let store = model().layer(Faults::new(vec![Fault::After(ErrorKind::Timeout)]));
        let store = store.on_failure(OnFailure::open());
        let limiter = limiter(store, &["p: fixed-window 90/1h"]);
        let hold = limiter.subject("a").cost(50).hold("id", MINUTE).await.unwrap();
        let ticket = hold.into_ticket().unwrap();
        assert!(ticket.is_degraded());
        assert_eq!(
            remaining(&limiter, "a").await,
            [40],
            "the store executed the hold although its answer was lost"
        );
        assert_eq!(limiter.settle(&ticket, [("p", 30)]).await.unwrap().given_back("p"), 20);
        assert_eq!(remaining(&limiter, "a").await, [60]);
    });
}

#[test]
fn a_fallback_store_decides_a_hold_like_an_acquire() {
    run(async {
        let clock = ManualClock::default();
        let (stub, spare) = (Stub::new(&clock), Stub::new(&clock));
        let half = "1/2".parse().unwrap();
        let store = stub.clone().on_failure(OnFailure::fall_back_to(spare.clone(), half));
        let limiter = limiter(store, &["p: fixed-window 90/1h"]);
        stub.set(Mood::Down(ErrorKind::Unavailable));
        let hold = async |id, cost| limiter.subject("a").cost(cost).hold(id, MINUTE).await.unwrap();
        assert!(hold("one", 40).await.ticket().is_some());
        assert!(hold("two", 40).await.ticket().is_none());
        let up_to = limiter.subject("a").cost(40).hold_up_to(1, "three", MINUTE).await.unwrap();
        assert_eq!(up_to.ticket().unwrap().held().collect::<Vec<_>>(), [("p", 5)]);
    });
}

#[test]
fn a_cached_denial_ends_when_a_hold_is_settled() {
    run(async {
        let clock = ManualClock::default();
        let store = ModelStore::new(clock.clone()).deny_cache(DenyCache::new().clock(clock));
        let limiter = limiter(store, &["p: fixed-window 9/1h"]);
        let hold = limiter.subject("a").cost(9).hold("id", MINUTE).await.unwrap();
        let ticket = hold.into_ticket().unwrap();
        for _ in 0..3 {
            assert!(limiter.acquire("a").await.unwrap().is_denied());
        }
        limiter.settle(&ticket, [("p", 8)]).await.unwrap();
        assert!(limiter.acquire("a").await.unwrap().is_allowed());
    });
}

#[test]
fn shards_by_subject_support_holds_and_other_shards_do_not() {
    run(async {
        let by_subject = ["p: fixed-window 90/1h shards 3 by-subject"];
        let store = ShardedStore::new(model());
        let limiter_by_subject = limiter(store, &by_subject);
        let request = limiter_by_subject.by("p", "a").tenant("t").cost(20);
        let ticket = request.hold("id", MINUTE).await.unwrap().into_ticket().unwrap();
        let settlement = limiter_by_subject.settle(&ticket, [("p", 5)]).await.unwrap();
        assert_eq!(settlement.given_back("p"), 15);

        let any = limiter(ShardedStore::new(model()), &["p: fixed-window 90/1h shards 3"]);
        let error = any.subject("a").hold("id", MINUTE).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
    });
}

#[test]
fn a_dropped_guard_settles_by_its_rule() {
    run(async {
        let clock = ManualClock::default();
        let stub = Stub::new(&clock);
        let limiter = limiter(stub.clone(), &["p: fixed-window 90/1h"]);
        for mood in [Mood::Up, Mood::Slow] {
            for (rule, spent, expected) in [
                (OnDrop::Settle, None, 40),
                (OnDrop::Settle, Some(20), 70),
                (OnDrop::Settle, Some(60), 30),
                (OnDrop::Cancel, None, 90),
                (OnDrop::Cancel, Some(20), 70),
                (OnDrop::Keep, Some(20), 40),
            ] {
                stub.set(Mood::Up);
                let id = format!("{mood:?} {rule:?} {spent:?}");
                let hold = limiter.subject(&id).cost(50).hold(&id, MINUTE).await.unwrap();
                let ticket = hold.into_ticket().unwrap();
                let mut guard = HoldGuard::new(&limiter, ticket, rule).unwrap();
                if let Some(spent) = spent {
                    guard.spent("p", spent - 1);
                    guard.spent("p", 1);
                    guard.spent("unknown", 7);
                }
                stub.set(mood);
                drop(guard);
                tokio::time::sleep(Duration::from_secs(5)).await;
                stub.set(Mood::Up);
                assert_eq!(remaining(&limiter, &id).await, [expected], "{id}");
            }
        }
    });
}

#[test]
fn a_guard_settles_once() {
    run(async {
        let limiter = limiter(model(), &["p: fixed-window 90/1h"]);
        let guard = async |id: &str| {
            let hold = limiter.subject(id).cost(50).hold(id, MINUTE).await.unwrap();
            HoldGuard::new(&limiter, hold.into_ticket().unwrap(), OnDrop::Cancel).unwrap()
        };
        let mut one = guard("one").await;
        one.spent("p", 60);
        one.settle_so_far().await.unwrap();
        assert_eq!(remaining(&limiter, "one").await, [30]);
        one.settle([("p", 70)]).await.unwrap();
        assert_eq!(remaining(&limiter, "one").await, [20]);

        let ticket = guard("two").await.into_ticket().unwrap();
        assert_eq!(remaining(&limiter, "two").await, [40], "the holder of the ticket settles it");
        limiter.cancel(&ticket).await.unwrap();

        // The future of `settle` owns the guard, and is dropped before it is polled. The dropped
        // guard then cancels the hold, as its rule `OnDrop::Cancel` says.
        let settle = guard("three").await.settle([("p", 10)]);
        drop(settle);
        assert_eq!(remaining(&limiter, "three").await, [90]);
    });
}

/// The caller of `settle` is cancelled before the call reaches the store. The guard then settles
/// the hold at the costs that the caller gave.
#[test]
fn a_settlement_that_is_cancelled_keeps_its_costs() {
    run(async {
        let stub = Stub::new(&ManualClock::default());
        let limiter = limiter(stub.clone(), &["p: fixed-window 90/1h", "q: fixed-window 90/1h"]);
        for rule in [OnDrop::Settle, OnDrop::Cancel, OnDrop::Keep] {
            let id = format!("{rule:?}");
            let hold = limiter.subject(&id).cost(50).hold(&id, MINUTE).await.unwrap();
            let mut guard = HoldGuard::new(&limiter, hold.into_ticket().unwrap(), rule).unwrap();
            guard.spent("q", 7);
            stub.set(Mood::Silent);
            let settle = guard.settle([("p", 10)]);
            assert!(tokio::time::timeout(MINUTE / 60, settle).await.is_err());
            stub.set(Mood::Up);
            limiter.guards_settled().await;
            assert_eq!(remaining(&limiter, &id).await, [80, 40], "{id}");
        }
    });
}

#[test]
fn a_program_can_wait_for_the_settlements_of_its_guards() {
    run(async {
        let clock = ManualClock::default();
        let stub = Stub::new(&clock);
        let limiter = limiter(stub.clone(), &["p: fixed-window 90/1h"]);
        // `is_settled` polls the future only once, so that no other task runs during the check.
        let is_settled = |limiter: &Limiter<Stub>| {
            let mut context = Context::from_waker(Waker::noop());
            pin!(limiter.guards_settled()).poll(&mut context).is_ready()
        };
        assert!(is_settled(&limiter));
        for id in ["dropped", "settled", "handed over"] {
            let hold = limiter.subject(id).cost(50).hold(id, MINUTE).await.unwrap();
            let ticket = hold.into_ticket().unwrap();
            let guard = HoldGuard::new(&limiter, ticket, OnDrop::Cancel).unwrap();
            assert!(!is_settled(&limiter.clone()), "{id}");
            stub.set(Mood::Slow);
            match id {
                "dropped" => {
                    drop(guard);
                    assert!(!is_settled(&limiter), "a task must still settle the hold");
                    limiter.guards_settled().await;
                    stub.set(Mood::Up);
                    assert_eq!(remaining(&limiter, id).await, [90]);
                }
                "settled" => drop(guard.settle([("p", 10)]).await.unwrap()),
                _ => drop(guard.into_ticket()),
            }
            assert!(is_settled(&limiter), "{id}");
            stub.set(Mood::Up);
        }
        // If the store never answers, the task that settles the hold of a dropped guard ends after
        // 10 s.
        let hold = limiter.subject("down").cost(50).hold("down", MINUTE).await.unwrap();
        let ticket = hold.into_ticket().unwrap();
        let guard = HoldGuard::new(&limiter, ticket, OnDrop::Settle).unwrap();
        stub.set(Mood::Silent);
        drop(guard);
        let waited = tokio::time::timeout(Duration::from_secs(11), limiter.guards_settled());
        assert!(waited.await.is_ok());
    });
}

#[test]
fn a_guard_outside_of_a_runtime_is_an_error() {
    let limiter = limiter(model(), &["p: fixed-window 90/1h"]);
    let hold = run(async { limiter.subject("a").cost(5).hold("id", MINUTE).await.unwrap() });
    let guard = HoldGuard::new(&limiter, hold.into_ticket().unwrap(), OnDrop::Settle);
    assert_eq!(guard.unwrap_err().kind(), ErrorKind::Unsupported);
    let _ = ManualClock::default().now();
}

/// A store that does not override `supports`. By default, a store does not support `refund-lapsed`.
#[derive(Debug)]
struct Elsewhere(ModelStore);

impl Store for Elsewhere {
    fn decide<'a>(&'a self, call: Call<'a>) -> Answer<'a, Result<Decision, Error>> {
        self.0.decide(call)
    }

    fn now(&self) -> Answer<'_, Result<Timestamp, Error>> {
        self.0.now()
    }
}

#[test]
fn a_store_without_refund_lapsed_rejects_the_policy_when_the_limiter_is_built() {
    let error =
        Limiter::new(Elsewhere(model()), [policy("p: gcra 5/1s refund-lapsed")]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("without `refund-lapsed`"), "{error}");
    assert!(Limiter::new(model(), [policy("p: gcra 5/1s refund-lapsed")]).is_ok());
    let text = "p: gcra 8/1s burst 8 shards 2 by-subject max-hold 1/2 refund-lapsed shadow";
    assert_eq!(policy(text).to_string(), text);
    assert!(policy(text).shares().iter().all(Policy::refunds_lapsed));
    let scaled = policy(text).scaled_to("1/2".parse().unwrap()).unwrap().unwrap();
    assert_eq!(scaled.to_string(), text.replace("8/1s burst 8", "4/1s burst 4"));
}

#[test]
fn a_state_in_use_forgets_expired_holds() {
    run(async {
        let clock = ManualClock::default();
        let store = ModelStore::new(clock.clone());
        let limiter = limiter(store, &["p: fixed-window 100000/60d refund-lapsed"]);
        let mut sizes = vec![];
        for number in 0..60_u8 {
            // No hold is settled. The state must not grow, because later calls remove the expired
            // holds from it.
            let hold = limiter.subject("a").cost(3).hold(&[number], MINUTE).await.unwrap();
            assert!(hold.ticket().is_some(), "{number}");
            assert!(limiter.acquire("a").await.unwrap().is_allowed());
            clock.advance(3 * MINUTE);
            assert!(limiter.acquire("a").await.unwrap().is_allowed());
            sizes.push(limiter.store().snapshot().len());
        }
        let (first, last) = (sizes[0], sizes[59]);
        assert!(last < first + 50, "{first} bytes, and then {last}");
    });
}

#[test]
fn a_settlement_reports_the_charge_after_a_lapse() {
    run(async {
        // When the hold lapses, the policy `p` refunds the hold of 30. So the settlement charges
        // the whole actual cost to `p`.
        for actual in [0, 1, 30, 35] {
            let clock = ManualClock::default();
            let policies = ["p: fixed-window 100/60d refund-lapsed", "q: fixed-window 100/60d"];
            let limiter = limiter(ModelStore::new(clock.clone()), &policies);
            let hold = limiter.subject("a").cost(30).hold("x", MINUTE).await.unwrap();
            let ticket = hold.into_ticket().unwrap();
            clock.advance(MINUTE);
            let settlement = limiter.settle(&ticket, [("p", actual), ("q", 20)]).await.unwrap();
            assert_eq!((settlement.charged("p"), settlement.given_back("p")), (actual, 0));
            assert_eq!((settlement.charged("q"), settlement.given_back("q")), (0, 10));
            assert_eq!(remaining(&limiter, "a").await, [100 - actual, 80]);
        }
    });
}

#[test]
fn a_write_after_a_hold_has_expired_forgets_the_hold() {
    run(async {
        // Each case contains the time of the last acquire in seconds, and the cost that the
        // settlement charges. Before the settlement, the clock steps back to 110 s.
        for (written_at, charged) in [(119, 2), (120, 2), (121, 2)] {
            let clock = ManualClock::default();
            let store = ModelStore::keeping_all(clock.clone());
            let limiter = limiter(store, &["p: fixed-window 100/60d refund-lapsed"]);
            let start = clock.now();
            let at = |seconds| clock.set(start.saturating_add(Duration::from_secs(seconds)));
            let hold = limiter.subject("a").cost(3).hold("x", MINUTE).await.unwrap();
            let ticket = hold.into_ticket().unwrap();
            at(90);
            assert!(limiter.acquire("a").await.unwrap().is_allowed()); // refunds the lapsed hold
            at(written_at);
            assert!(limiter.acquire("a").await.unwrap().is_allowed());
            at(110);
            let settlement = limiter.settle(&ticket, [("p", 2)]).await.unwrap();
            assert_eq!(settlement.charged("p"), charged, "{written_at}");
        }
    });
}

/// The refund of a lapsed hold depends on the debt of the bucket at the time of the lapse, even if
/// the store writes the refund later.
#[test]
fn a_write_after_a_lapse_records_the_refund_of_that_time() {
    run(async {
        let clock = ManualClock::default();
        let policy = "p: token-bucket 1/20s burst 10 refund-lapsed";
        let limiter = limiter(ModelStore::new(clock.clone()), &[policy]);
        let hold = limiter.subject("a").cost(5).hold("x", MINUTE).await.unwrap();
        let ticket = hold.into_ticket().unwrap();
        // The hold lapses after 60 s. By then, 3 of its 5 tokens have been refilled, so only 2
        // tokens are refunded.
        clock.advance(Duration::from_secs(100));
        assert!(limiter.acquire("a").await.unwrap().is_allowed());
        clock.advance(Duration::from_secs(10));
        let settlement = limiter.settle(&ticket, [("p", 4)]).await.unwrap();
        assert_eq!((settlement.charged("p"), settlement.given_back("p")), (1, 0));
    });
}

#[test]
fn the_refund_of_an_extended_hold_is_known_until_it_expires() {
    run(async {
        let clock = ManualClock::default();
        let limiter =
            limiter(ModelStore::new(clock.clone()), &["p: fixed-window 100/60d refund-lapsed"]);
        let hold = limiter.subject("a").cost(5).hold("x", MINUTE).await.unwrap();
        let ticket = hold.into_ticket().unwrap();
        limiter.extend(&ticket, 5 * MINUTE).await.unwrap();
        clock.advance(6 * MINUTE);
        assert!(limiter.acquire("a").await.unwrap().is_allowed()); // refunds the lapsed hold
        let settlement = limiter.settle(&ticket, [("p", 2)]).await.unwrap();
        assert_eq!((settlement.charged("p"), settlement.given_back("p")), (2, 0));
    });
}

#[test]
fn a_wait_counts_on_the_lapses_of_a_restored_state() {
    let policy = policy("p: fixed-window 10/60d anchored refund-lapsed");
    let state = fixed_window::State::new(1_000, 9);
    let mut holds = OpenHolds::new(Some(State::FixedWindow(state)));
    let forever = Wait::between(100, 1_000);
    assert_eq!(holds.wait(&policy, 5, 100, forever), forever);
    holds.push(Take::new(50, 7), 2, 300);
    holds.push(Take::new(60, 4), 0, 400);
    // The first hold lapses at the time 300, and a cost of 5 is refunded. The second hold lapses at
    // the time 400, and a cost of 4 is refunded.
    assert_eq!(holds.wait(&policy, 6, 100, forever), Wait::between(100, 300));
    assert_eq!(holds.wait(&policy, 7, 100, forever), Wait::between(100, 400));
    for number in 0..MAX_COUNTED_LAPSES as u64 {
        // These holds refund nothing, and lapse after the first hold and before the second hold. A
        // wait includes the refunds of only the first `MAX_COUNTED_LAPSES` holds that lapse, so it
        // does not include the refund of the second hold.
        holds.push(Take::new(60, 1), 1, 301 + number);
    }
    assert_eq!(holds.wait(&policy, 6, 100, forever), Wait::between(100, 300));
    assert_eq!(holds.wait(&policy, 7, 100, forever), forever);
}

#[test]
fn a_reset_forgets_past_and_future_lapses() {
    run(async {
        for resets_after in [0, 2] {
            let clock = ManualClock::default();
            let store = ModelStore::new(clock.clone());
            let limiter = limiter(store, &["p: fixed-window 100/60d refund-lapsed"]);
            let hold = limiter.subject("a").cost(30).hold("x", 2 * MINUTE).await.unwrap();
            let ticket = hold.ticket().cloned().unwrap();
            clock.advance(resets_after * MINUTE);
            limiter.subject("a").reset().await.unwrap();
            clock.advance((3 - resets_after) * MINUTE);
            assert_eq!(remaining(&limiter, "a").await, [100], "after {resets_after}");
            limiter.settle(&ticket, [("p", 35)]).await.unwrap();
            assert_eq!(remaining(&limiter, "a").await, [65], "after {resets_after}");
        }
    });
}

#[test]
fn the_older_of_two_holds_that_lapse_together_is_refunded_first() {
    run(async {
        let span = Duration::from_micros;
        // Each case contains the first hold, the second hold, and the amount that remains after the
        // hold `one` was settled at a cost of 1.
        for (first, second, expected) in
            [((1, "one"), (9, "nine"), 99), ((9, "nine"), (1, "one"), 100)]
        {
            let clock = ManualClock::default();
            let policy = "p: token-bucket 250000/1s burst 100 refund-lapsed";
            let limiter = limiter(ModelStore::new(clock.clone()), &[policy]);
            let mut tickets = HashMap::new();
            for (cost, id) in [first, second] {
                let hold = limiter.subject("a").cost(cost).hold(id, span(20)).await.unwrap();
                tickets.insert(id, hold.ticket().cloned().unwrap());
            }
            // Both holds lapse after 20 µs, when 5 of the 10 held tokens have been refilled. So
            // only 5 tokens can be refunded, and the older hold is refunded first.
            clock.advance(span(20));
            limiter.settle(&tickets["one"], [("p", 1)]).await.unwrap();
            assert_eq!(remaining(&limiter, "a").await, [expected], "{first:?}");
        }
    });
}

// The mutation tests of the engine run only the tests of this crate. So this test runs some
// properties of the conformance suite, which find mutants.
#[test]
fn the_engine_refunds_lapsed_holds() {
    let fixture = tidegate_testkit::fixture(ModelStore::new);
    for property in [
        "a_lapsed_hold_is_given_back_by_its_policy",
        "a_peek_says_what_is_held_and_not_spent",
        "b100_a_settlement_never_refunds_other_callers",
        "a_wait_counts_on_what_will_lapse",
        "holds_of_several_charges_are_decided_as_by_the_oracle",
        "lapses_are_decided_as_by_the_oracle",
        "slots_are_decided_as_by_the_oracle",
    ] {
        tidegate_testkit::suite::check(&fixture, property);
    }
}

/// A hold can be settled at its full cost before it lapses, and then refunds nothing. So the
/// `reset_after` of a state does not include the refunds of holds that will lapse.
#[test]
fn a_recovery_does_not_count_on_lapses() {
    run(async {
        let clock = ManualClock::default();
        let limiter = limiter(
            ModelStore::new(clock.clone()),
            &["p: fixed-window 100/60d anchored refund-lapsed"],
        );
        for (cost, id, minutes) in [(30, "short", 1), (20, "long", 3)] {
            let hold = limiter.subject("a").cost(cost).hold(id, minutes * MINUTE).await.unwrap();
            assert!(hold.ticket().is_some());
        }
        let days = 60 * 24 * 60 * MINUTE;
        for (minutes, remaining) in [(0, 50), (1, 80), (2, 80), (3, 100)] {
            let verdict = limiter.subject("a").cost(0).peek().await.unwrap().verdicts()[0];
            let reset_after =
                if remaining == 100 { Duration::ZERO } else { days - minutes * MINUTE };
            assert_eq!((verdict.reset_after(), verdict.remaining()), (reset_after, remaining));
            clock.advance(MINUTE);
        }
    });
}

/// A shadow never refuses a call, even if its state has the maximum number of open holds.
#[test]
fn a_shadow_does_not_bound_the_number_of_open_holds() {
    run(async {
        let shadow = "p: fixed-window 100/60d refund-lapsed max-open-holds 1 shadow";
        let limiter = limiter(model(), &[shadow, "q: gcra 9/1h burst 9"]);
        for id in ["1", "2", "3"] {
            assert!(limiter.subject("a").hold(id, MINUTE).await.unwrap().ticket().is_some());
        }
        assert_eq!(remaining(&limiter, "a").await, [97, 6]);
    });
}

#[test]
fn the_number_of_open_holds_of_a_subject_is_bounded() {
    run(async {
        let clock = ManualClock::default();
        let policies =
            ["p: fixed-window 100/60d refund-lapsed max-open-holds 2", "q: gcra 9/1h burst 9"];
        let limiter = limiter(ModelStore::new(clock.clone()), &policies);
        let hold = async |id: &str| limiter.subject("a").hold(id, MINUTE).await;
        let first = hold("first").await.unwrap().into_ticket().unwrap();
        assert!(hold("second").await.unwrap().ticket().is_some());
        let error = hold("third").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TooManyHolds);
        assert!(error.is_definitely_not_charged() && error.kind().is_invalid_request());
        for part in ["has 2 open holds", "fewer than 2", "`max-open-holds`", "p: fixed-window"] {
            assert!(error.to_string().contains(part), "{error}");
        }
        assert_eq!(remaining(&limiter, "a").await, [98, 7], "nothing was charged");
        // The maximum of open holds applies neither to a repeated call, nor to another subject, nor
        // to an acquire.
        assert!(hold("second").await.unwrap().ticket().is_some());
        assert!(
            limiter.subject("b").hold("other subject", MINUTE).await.unwrap().ticket().is_some()
        );
        assert!(limiter.acquire("a").await.unwrap().is_allowed());
        limiter.cancel(&first).await.unwrap();
        assert!(hold("third").await.unwrap().ticket().is_some());
        assert!(hold("fourth").await.is_err());
        // A lapsed hold does not count as an open hold.
        clock.advance(MINUTE);
        assert!(hold("fourth").await.unwrap().ticket().is_some());
    });
}

#[test]
fn the_maximum_of_open_holds_is_an_option_of_a_policy() {
    let parse = |text: &str| text.parse::<Policy>();
    let text = "p: gcra 8/1s burst 8 shards 2 by-subject refund-lapsed max-open-holds 7 shadow";
    assert_eq!(policy(text).to_string(), text);
    assert!(policy(text).shares().iter().all(|share| share.max_open_holds() == 7));
    let scaled = policy(text).scaled_to("1/2".parse().unwrap()).unwrap().unwrap();
    assert_eq!(scaled.max_open_holds(), 7);
    let default = policy("gcra 8/1s refund-lapsed max-open-holds 1000");
    assert_eq!(default, policy("gcra 8/1s refund-lapsed"));
    assert!(parse("gcra 8/1s max-open-holds 100000 refund-lapsed").is_ok());
    for (text, message) in [
        ("gcra 8/1s max-open-holds 5", "needs `refund-lapsed`"),
        ("gcra 8/1s refund-lapsed max-open-holds 0", "is 0; it must be from 1 to 100000"),
        ("gcra 8/1s refund-lapsed max-open-holds 100001", "is 100001; it must be from 1 to 100000"),
        ("gcra 8/1s refund-lapsed max-open-holds", "a number after `max-open-holds`"),
    ] {
        let error = parse(text).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    }
}
