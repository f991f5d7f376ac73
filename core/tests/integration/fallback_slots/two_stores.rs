//! Tests of single calls: the store that executes them, and their answers.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::{
    Call, CallId, Charge, Decision, DegradedAnswer, Error, ErrorKind, Limiter, ManualClock,
    OnFailure, Operation, Outcome, Store, StoreExt,
};
use tidegate_testkit::ModelStore;

use super::{Cut, LEASE, Link, MINUTE, SECOND, SIX, THREE, free, half, hold, node, policy};
use crate::run;
use crate::stubs::{Mood, Stub};

#[test]
fn the_holders_of_an_outage_count_in_the_next_outage() {
    run(async {
        let (clock, main, node) = node();
        let limiter = node.limiter(&[SIX]);
        node.set(Link::Down);
        let first = limiter.subject("a").hold("1", MINUTE).await.unwrap();
        let degraded = first.decision().degraded().unwrap();
        assert_eq!(degraded.answer, DegradedAnswer::FellBack);
        assert_eq!((degraded.reason, degraded.is_held), (ErrorKind::CircuitOpen, true));
        assert_eq!(first.decision().verdicts()[0].limit(), 3);
        assert_eq!(
            (first.decision().fences(), first.ticket().unwrap().fence("slots")),
            (&[][..], None)
        );
        let mut tickets = vec![first.into_ticket().unwrap()];
        for id in ["2", "3"] {
            tickets.push(hold(&limiter, id).await.unwrap());
        }
        let refused = limiter.subject("a").hold("4", MINUTE).await.unwrap();
        let degraded = refused.decision().degraded().unwrap();
        assert!(refused.decision().is_denied() && !degraded.is_held);
        assert_eq!(refused.decision().retry_after(), None);
        assert_eq!(limiter.subject("a").peek().await.unwrap().verdicts()[0].remaining(), 0);

        node.set(Link::Up);
        for id in 5..11 {
            assert!(hold(&limiter, &id.to_string()).await.is_some());
        }
        clock.advance(20 * SECOND);
        for ticket in &tickets {
            limiter.extend(ticket, MINUTE).await.unwrap();
        }
        clock.advance(20 * SECOND);
        node.set(Link::Down);
        assert!(hold(&limiter, "11").await.is_none());
        limiter.settle(&tickets[0], []).await.unwrap();
        assert!(hold(&limiter, "12").await.is_some());
        assert!(hold(&limiter, "13").await.is_none());
        assert_eq!(free(&main, &policy(SIX)).await, 6);
    });
}

/// The layer sends settlements to the fallback store only while the fallback store can know a hold.
#[test]
fn a_store_that_works_is_the_only_store_that_is_called() {
    run(async {
        let clock = ManualClock::default();
        let (main, spare) = (Stub::new(&clock), Stub::new(&clock));
        let on_failure = OnFailure::fall_back_to(spare.clone(), half()).clock(clock.clone());
        let limiter = Limiter::new(main.clone().on_failure(on_failure), [policy(SIX)]).unwrap();
        let hold_and_settle = async |id| {
            let ticket = hold(&limiter, id).await.unwrap();
            limiter.extend(&ticket, MINUTE).await.unwrap();
            limiter.settle(&ticket, []).await.unwrap();
        };
        hold_and_settle("before").await;
        let unknown = hold(&limiter, "unknown").await.unwrap();
        main.set(Mood::Down(ErrorKind::Unavailable));
        assert!(limiter.extend(&unknown, MINUTE).await.is_err());
        assert!(limiter.settle(&unknown, []).await.is_err());
        assert!(spare.take_calls().is_empty());

        let ticket = hold(&limiter, "held").await.unwrap();
        main.set(Mood::Up);
        hold_and_settle("while it is held").await;
        assert_eq!(spare.take_calls(), [[Operation::Hold], [Operation::Settle]]);
        clock.advance(20 * SECOND);
        limiter.extend(&ticket, MINUTE).await.unwrap();
        clock.advance(2 * LEASE - Duration::from_micros(1));
        spare.take_calls();
        hold_and_settle("lapsed").await;
        assert_eq!(spare.take_calls(), [[Operation::Settle]]);
        clock.advance(Duration::from_micros(1));
        hold_and_settle("expired").await;
        assert!(spare.take_calls().is_empty());
    });
}

#[test]
fn a_hold_of_the_fallback_store_charges_the_store_once_when_it_is_settled() {
    run(async {
        let (clock, main, node) = node();
        let policies = ["open: fixed-window 100/1h", SIX, "tokens: fixed-window 100/1h"];
        let limiter = node.limiter(&policies);
        let [all_slots, all_tokens] = [policies[1], policies[2]].map(policy);
        let [open, slots, tokens] = [policies[0], THREE, "tokens: fixed-window 50/1h"].map(policy);
        let take = async |id| {
            node.set(Link::Down);
            let request = limiter.by("open", "a").by("slots", "a").by("tokens", "a").cost(3);
            request.hold(id, MINUTE).await.unwrap().into_ticket().unwrap()
        };
        // The store is back when the hold is settled.
        let ticket = take("1").await;
        node.set(Link::Up);
        let costs = [("open", 2), ("tokens", 1)];
        limiter.settle_so_far(&ticket, costs).await.unwrap();
        assert_eq!((free(&main, &all_tokens).await, free(&node.spare, &slots).await), (100, 2));
        // The time to live of a settlement is ignored, so it can be shorter than that of the hold.
        let charges = [(&open, 2), (&all_slots, 0), (&all_tokens, 1)];
        let charges = charges.map(|(policy, cost)| Charge::new(policy, "a").cost(cost));
        let settle = Call::new(Operation::Settle, &charges);
        assert!(node.store.decide(settle.with_id(CallId::new("1", SECOND))).await.is_ok());
        clock.advance(10 * SECOND);
        let settlement = limiter.settle(&ticket, costs).await.unwrap();
        assert!(settlement.decision().degraded().is_none());
        for (name, amount) in [("open", 2), ("slots", 0), ("tokens", 1)] {
            assert_eq!((settlement.charged(name), settlement.given_back(name)), (amount, 0));
            assert!(!settlement.is_out_of_reach(name));
        }
        assert_eq!(limiter.settle(&ticket, costs).await.unwrap(), settlement);
        let error = limiter.settle(&ticket, [("open", 3)]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AlreadySettled);
        assert_eq!(
            limiter.extend(&ticket, MINUTE).await.unwrap_err().kind(),
            ErrorKind::AlreadySettled
        );
        assert_eq!(free(&main, &open).await, 98);
        assert_eq!(free(&main, &all_tokens).await, 99);
        assert_eq!((free(&node.spare, &slots).await, free(&node.spare, &tokens).await), (3, 49));

        // The store is away when the hold is settled.
        let ticket = take("2").await;
        let settlement = limiter.settle(&ticket, [("open", 101), ("tokens", 5)]).await.unwrap();
        assert!(settlement.decision().is_allowed(), "no policy refuses a settlement");
        assert_eq!(settlement.decision().degraded().unwrap().answer, DegradedAnswer::FellBack);
        assert_eq!((settlement.charged("open"), settlement.charged("tokens")), (0, 2));
        let ticket = take("3").await;
        let settlement = limiter.settle(&ticket, [("tokens", 1)]).await.unwrap();
        let given_back = ["open", "slots", "tokens"].map(|name| settlement.given_back(name));
        assert_eq!(given_back, [0, 1, 2]);
        let verdicts = settlement.decision().verdicts().iter();
        assert_eq!(verdicts.map(|verdict| verdict.remaining()).collect::<Vec<_>>(), [100, 3, 43]);
        let ticket = take("4").await;
        node.set(Link::Up);
        limiter.cancel(&ticket).await.unwrap();
        assert_eq!((free(&node.spare, &slots).await, free(&node.spare, &tokens).await), (3, 43));
        assert_eq!(free(&main, &open).await, 98);
    });
}

/// The store has executed a hold whose answer was lost, so both stores have the hold.
#[test]
fn a_hold_on_both_stores_is_settled_on_both() {
    run(async {
        let (clock, main, node) = node();
        let limiter = node.limiter(&[SIX]);
        let count =
            async || (free(&main, &policy(SIX)).await, free(&node.spare, &policy(THREE)).await);
        node.set(Link::Deaf);
        let lost = hold(&limiter, "lost").await.unwrap();
        node.set(Link::Up);
        let repeated = hold(&limiter, "repeated").await.unwrap();
        node.set(Link::Down);
        assert!(hold(&limiter, "repeated").await.unwrap().is_degraded());
        assert_eq!(count().await, (4, 1));
        node.set(Link::Up);
        limiter.settle(&lost, []).await.unwrap();
        limiter.settle(&repeated, []).await.unwrap();
        assert_eq!(count().await, (6, 3));

        // An extension needs only one of the stores. The hold lapses on the other store.
        node.set(Link::Deaf);
        let ticket = hold(&limiter, "both").await.unwrap();
        for (link, before, after) in [
            (Link::Up, (5, 2), (5, 2)),
            (Link::Down, (5, 3), (5, 2)),
            (Link::Down, (6, 2), (6, 2)),
            (Link::Up, (6, 2), (6, 2)),
        ] {
            clock.advance(20 * SECOND);
            assert_eq!(count().await, before, "{link:?}");
            node.set(link);
            limiter.extend(&ticket, MINUTE).await.unwrap();
            assert_eq!(count().await, after, "{link:?}");
        }
    });
}

#[test]
fn errors_of_the_fallback_store_name_the_cause() {
    run(async {
        let clock = ManualClock::default();
        let (main, spare) = (Stub::new(&clock), Stub::new(&clock));
        let on_failure = OnFailure::fall_back_to(spare.clone(), half()).clock(clock.clone());
        let limiter = Limiter::new(main.clone().on_failure(on_failure), [policy(SIX)]).unwrap();
        let kind = |result: Result<_, Error>| result.map_err(|error| error.kind()).unwrap_err();
        let main_ticket = hold(&limiter, "of the store").await.unwrap();
        main.set(Mood::Down(ErrorKind::Unavailable));
        let ticket = hold(&limiter, "id").await.unwrap();
        let other = limiter.subject("a").cost(2).hold("id", MINUTE).await;
        assert_eq!(kind(other.map(drop)), ErrorKind::IdReused);
        assert_eq!(kind(limiter.extend(&main_ticket, MINUTE).await), ErrorKind::Unavailable);
        // Both stores fail. It is unknown whether the fallback store still has the hold.
        spare.set(Mood::Down(ErrorKind::Timeout));
        assert_eq!(kind(limiter.extend(&ticket, MINUTE).await), ErrorKind::Unavailable);
        main.set(Mood::Up);
        assert_eq!(kind(limiter.extend(&ticket, MINUTE).await), ErrorKind::Timeout);
        spare.set(Mood::Slow);
        limiter.extend(&ticket, MINUTE).await.unwrap();
        // The holder is late, and another holder has got its slot.
        clock.advance(LEASE);
        main.set(Mood::Down(ErrorKind::Unavailable));
        assert!(
            limiter.subject("a").cost(3).hold("next", MINUTE).await.unwrap().ticket().is_some()
        );
        assert_eq!(kind(limiter.extend(&ticket, MINUTE).await), ErrorKind::Unavailable);
        main.set(Mood::Up);
        assert_eq!(kind(limiter.extend(&ticket, MINUTE).await), ErrorKind::HoldLapsed);
        clock.advance(LEASE);
        assert_eq!(kind(limiter.extend(&ticket, MINUTE).await), ErrorKind::UnknownHold);
        // The settlement of a hold that no store knows is a charge.
        limiter.settle(&ticket, []).await.unwrap();
        // An error that the failure policy does not hide is returned.
        main.set(Mood::Down(ErrorKind::Misconfigured));
        spare.take_calls();
        assert_eq!(kind(limiter.extend(&ticket, MINUTE).await), ErrorKind::Misconfigured);
        assert!(spare.take_calls().is_empty());
    });
}

/// The fallback store does not support one of the policies. The inner store then decides alone.
#[test]
fn a_hold_that_the_fallback_store_does_not_support_is_settled_by_the_store() {
    run(async {
        let clock = ManualClock::default();
        let (main, spare) = (Stub::new(&clock), Stub::new(&clock));
        let on_failure = OnFailure::fall_back_to(spare.clone(), half()).clock(clock.clone());
        let store = Arc::new(main.clone().on_failure(on_failure));
        let limiter = Limiter::new(Arc::clone(&store), [policy(SIX)]).unwrap();
        main.set(Mood::Down(ErrorKind::Unavailable));
        assert!(hold(&limiter, "of the fallback store").await.is_some());
        main.set(Mood::Up);
        let unsupported = policy("unsupported: concurrent 6 lease 30s");
        let send = async |operation, cost| {
            let charges = [Charge::new(&unsupported, "a").cost(cost)];
            let call = Call::new(operation, &charges).with_id(CallId::new("id", MINUTE));
            store.decide(call).await.map(drop).map_err(|error| error.kind())
        };
        assert_eq!(send(Operation::Settle, 0).await, Err(ErrorKind::UnknownHold));
        assert_eq!(send(Operation::Hold, 1).await, Ok(()));
        assert_eq!(send(Operation::Settle, 0).await, Ok(()));
    });
}

#[test]
fn a_batch_uses_both_stores_where_necessary() {
    run(async {
        let (_, main, node) = node();
        let (limiter, six) = (node.limiter(&[SIX]), policy(SIX));
        let main_ticket = hold(&limiter, "of the store").await.unwrap();
        node.set(Link::Down);
        let held = ["1", "2"];
        for id in held {
            hold(&limiter, id).await.unwrap();
        }
        node.set(Link::Up);
        let charges = [Charge::new(&six, "a").cost(0)];
        let call = |operation, id: &'static str| {
            Call::new(operation, &charges).with_id(CallId::new(id, MINUTE))
        };
        let calls = [
            call(Operation::Extend, "of the store"),
            call(Operation::Extend, held[0]),
            call(Operation::Settle, held[1]),
            call(Operation::Extend, "unknown"),
            Call::new(Operation::Peek, &charges),
            call(Operation::Settle, "of the store"),
        ];
        let answers = node.store.decide_many(&calls).await;
        let answers = answers.iter().map(|answer| {
            let is_degraded = |decision: &Decision| decision.degraded().is_some();
            answer.as_ref().map(is_degraded).map_err(Error::kind)
        });
        assert_eq!(
            answers.collect::<Vec<_>>(),
            [Ok(false), Ok(true), Ok(true), Err(ErrorKind::UnknownHold), Ok(false), Ok(false)]
        );
        assert_eq!((free(&main, &six).await, free(&node.spare, &policy(THREE)).await), (6, 2));
        assert_eq!(main_ticket.fence("slots").is_some(), !main_ticket.is_degraded());
    });
}

/// A place belongs to one store. The other store treats it like no place.
#[test]
fn a_place_does_not_overtake_on_the_other_store() {
    run(async {
        let (clock, _, node) = node();
        let two = policy("slots: concurrent 2 lease 30s");
        let charges = [Charge::new(&two, "a")];
        let send = async |operation, id: &str| {
            let call = Call::new(operation, &charges);
            let call =
                if operation.is_of_hold() { call.with_id(CallId::new(id, MINUTE)) } else { call };
            let decision = node.store.decide(call).await.unwrap();
            (decision.is_allowed(), decision.place().map_or(0, |place| place.number))
        };
        let wait = async |id, place| {
            clock.advance(Duration::from_millis(1));
            send(Operation::HoldInTurn { place }, id).await
        };
        let settle = async |id| {
            let charges = [charges[0].cost(0)];
            let call = Call::new(Operation::Settle, &charges).with_id(CallId::new(id, MINUTE));
            assert!(node.store.decide(call).await.is_ok());
        };
        assert!(wait("1", 0).await.0 && wait("2", 0).await.0);
        let (_, early) = wait("early", 0).await;
        node.set(Link::Down);
        assert!(wait("3", 0).await.0);
        let (_, late) = wait("late", 0).await;
        assert!(early > 0 && late > early);
        settle("3").await;
        let (is_admitted, early) = wait("early", early).await;
        assert!(!is_admitted, "`late` is first in this queue");
        assert_eq!(wait("late", late).await, (true, 0));
        // A place that a client gives up no longer holds back other callers.
        let (_, left) = wait("left", 0).await;
        settle("late").await;
        assert!(!send(Operation::Hold, "5").await.0);
        node.set(Link::Up);
        for place in [early, left] {
            assert!(send(Operation::Leave { place }, "").await.0);
        }
        node.set(Link::Down);
        assert!(send(Operation::Hold, "5").await.0);

        // The store is back. Its own queue has the order of the calls that it receives.
        node.set(Link::Up);
        clock.advance(LEASE);
        assert!(wait("6", 0).await.0 && wait("7", 0).await.0);
        node.set(Link::Down);
        assert!(wait("8", 0).await.0);
        let (_, fallback_place) = wait("of the fallback", 0).await;
        node.set(Link::Up);
        let (_, first) = wait("first", 0).await;
        assert!(0 < first && first < fallback_place, "{first} {fallback_place}");
        settle("6").await;
        assert!(!wait("of the fallback", fallback_place).await.0);
        assert_eq!(wait("first", first).await, (true, 0));
        // A caller that the store has answered no longer waits at the fallback store.
        settle("8").await;
        node.set(Link::Down);
        assert!(send(Operation::Hold, "9").await.0);
    });
}

#[test]
fn a_share_of_zero_refuses_new_holders_and_must_be_accepted() {
    run(async {
        let clock = ManualClock::default();
        let one = policy("slots: concurrent 1 lease 30s");
        let store = || {
            let main = ModelStore::new(clock.clone()).layer(Cut::new());
            main.as_layer().set(Link::Down);
            main
        };
        let fall_back = || OnFailure::fall_back_to(ModelStore::new(clock.clone()), half());
        let rejected = Limiter::new(store().on_failure(fall_back()), [one.clone()]).unwrap_err();
        assert!(rejected.to_string().contains("rounds down to 0"), "{rejected}");
        let accepted = store().on_failure(fall_back().accept_no_share());
        let limiter = Limiter::new(accepted, [one]).unwrap();
        for waits in [Duration::ZERO, MINUTE] {
            let hold = limiter.subject("a").hold_within("id", MINUTE, waits).await.unwrap();
            let degraded = hold.decision().degraded().unwrap();
            assert_eq!(degraded.answer, DegradedAnswer::FailedClosed);
            assert!(hold.decision().is_denied() && !degraded.is_held);
        }
        let shadow = policy("slots: concurrent 1 lease 30s shadow");
        let limiter = Limiter::new(store().on_failure(fall_back()), [shadow]).unwrap();
        let hold = limiter.subject("a").hold("id", MINUTE).await.unwrap();
        assert!(hold.decision().is_allowed());
        assert_eq!(hold.decision().verdicts()[0].outcome(), Outcome::Denied);
    });
}
