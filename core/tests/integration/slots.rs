//! Tests of slots: limits for the number of requests at a time.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, and so do its helpers")]

use std::time::Duration;

use tidegate_core::algorithm::concurrent;
use tidegate_core::engine::{Record, State};
use tidegate_core::{
    Call, CallId, Charge, Clock, ErrorKind, HoldGuard, Limiter, ManualClock, OnDrop, Operation,
    Outcome, Place, Policy, Store, StoreExt, Ticket, Timestamp,
};
use tidegate_testkit::ModelStore;
use tidegate_testkit::faults::{Fault, Faults};

use crate::run;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

fn policy(text: &str) -> Policy {
    text.parse().unwrap()
}

fn limiter<S: Store>(store: S, policies: &[&str]) -> Limiter<S> {
    Limiter::new(store, policies.iter().map(|text| policy(text))).unwrap()
}

async fn take<S: Store>(limiter: &Limiter<S>, id: &str) -> Option<Ticket> {
    limiter.subject("a").hold(id, MINUTE).await.unwrap().into_ticket().ok()
}

async fn renew<S: Store>(limiter: &Limiter<S>, ticket: &Ticket) -> Result<(), ErrorKind> {
    limiter.extend(ticket, MINUTE).await.map(drop).map_err(|error| error.kind())
}

async fn free<S: Store>(limiter: &Limiter<S>, name: &str) -> u64 {
    let peek = limiter.by(name, "a").cost(0).peek().await.unwrap();
    peek.verdicts()[0].remaining()
}

#[test]
fn the_earliest_lapse_is_that_of_the_policies_that_refuse() {
    run(async {
        let clock = ManualClock::default();
        let policies = [
            "a: concurrent 1 lease 40s",
            "b: concurrent 1 lease 30s",
            "c: concurrent 1 lease 30s shadow",
        ];
        let limiter = limiter(ModelStore::new(clock.clone()), &policies);
        let hold = async |policies: &[&str], id: &str, ttl: Duration| {
            let charges: Vec<_> = policies
                .iter()
                .map(|name| Charge::new(limiter.policy(name).unwrap(), "a"))
                .collect();
            let call = Call::new(Operation::Hold, &charges).with_id(CallId::new(id, ttl));
            let decision = limiter.store().decide(call).await.unwrap();
            decision.earliest_lapse().map(|lapse| lapse.after().as_secs())
        };
        assert_eq!(hold(&["a"], "a", MINUTE).await, None);
        clock.advance(Duration::from_secs(5));
        assert_eq!(hold(&["b"], "b", MINUTE).await, None);
        // The lease of a shadow does not end a hold.
        assert_eq!(hold(&["c"], "c", Duration::from_secs(20)).await, None);
        assert_eq!(hold(&["a"], "next", MINUTE).await, Some(35));
        assert_eq!(hold(&["a", "b"], "next", MINUTE).await, Some(30));
        assert_eq!(hold(&["a", "c"], "next", MINUTE).await, Some(35), "a shadow refuses nothing");
    });
}

/// The case of LiteLLM#39309: a refusal by a slot must not charge the rate.
#[test]
fn a_refusal_by_slots_charges_no_rate_and_a_refusal_by_a_rate_takes_no_slot() {
    run(async {
        let clock = ManualClock::default();
        let policies = ["rate: fixed-window 2/1m anchored", "slots: concurrent 1 lease 30s"];
        let limiter = limiter(ModelStore::new(clock.clone()), &policies);
        let a = take(&limiter, "a").await.unwrap();
        let b = limiter.subject("a").hold("b", MINUTE).await.unwrap();
        assert!(b.decision().is_denied());
        assert_eq!(b.decision().retry_after(), None);
        assert_eq!((free(&limiter, "rate").await, free(&limiter, "slots").await), (1, 0));

        let settlement = limiter.settle(&a, []).await.unwrap();
        assert_eq!((settlement.given_back("slots"), settlement.given_back("rate")), (1, 0));
        let c = take(&limiter, "c").await.unwrap();
        // The rate and the slots refuse. Only the wait for the rate is known.
        clock.advance(SECOND);
        let d = limiter.subject("a").hold("d", MINUTE).await.unwrap();
        assert_eq!(d.decision().retry_after(), Some(59 * SECOND));
        limiter.cancel(&c).await.unwrap();
        assert_eq!((free(&limiter, "rate").await, free(&limiter, "slots").await), (1, 1));
        assert!(take(&limiter, "e").await.is_some());
        assert!(take(&limiter, "f").await.is_none());
        clock.advance(59 * SECOND);
        // The hold of `e` was not settled, so its slot became free at the end of its lease.
        assert_eq!((free(&limiter, "rate").await, free(&limiter, "slots").await), (2, 1));
    });
}

#[test]
fn the_slots_of_a_holder_that_crashed_are_free_exactly_after_the_lease() {
    run(async {
        let clock = ManualClock::default();
        let limiter = limiter(ModelStore::new(clock.clone()), &["slots: concurrent 2 lease 30s"]);
        let crashed = take(&limiter, "crashed").await.unwrap();
        clock.advance(10 * SECOND);
        let alive = take(&limiter, "alive").await.unwrap();
        clock.advance(20 * SECOND - Duration::from_micros(1));
        assert!(take(&limiter, "next").await.is_none());
        limiter.extend(&alive, MINUTE).await.unwrap();
        clock.advance(Duration::from_micros(1));
        assert!(take(&limiter, "next").await.is_some());
        assert!(take(&limiter, "another").await.is_none());
        assert_eq!(renew(&limiter, &crashed).await, Err(ErrorKind::HoldLapsed));
        // The settlement after the lapse frees no slot of the next holder.
        limiter.settle(&crashed, []).await.unwrap();
        assert_eq!(free(&limiter, "slots").await, 0);
        // The extension counts from its own time, although the hold has a longer time to live.
        clock.advance(30 * SECOND - Duration::from_micros(1));
        assert_eq!(free(&limiter, "slots").await, 1);
        limiter.settle(&alive, []).await.unwrap();
        assert_eq!(free(&limiter, "slots").await, 1);
    });
}

/// A holder that is late keeps its slots if no grant has needed their room. The slots that expire
/// first are taken first.
#[test]
fn lapsed_slots_can_be_revived_until_a_grant_needs_their_room() {
    run(async {
        let clock = ManualClock::default();
        let limiter = limiter(ModelStore::new(clock.clone()), &["slots: concurrent 3 lease 30s"]);
        let first = take(&limiter, "first").await.unwrap();
        clock.advance(SECOND);
        let second = take(&limiter, "second").await.unwrap();
        clock.advance(MINUTE - 2 * SECOND);
        let third = take(&limiter, "third").await.unwrap();
        assert_eq!(renew(&limiter, &first).await, Ok(()));
        assert_eq!(free(&limiter, "slots").await, 1);
        clock.advance(30 * SECOND);
        assert_eq!(renew(&limiter, &second).await, Err(ErrorKind::UnknownHold)); // it has expired
        // All slots are free, and two of them can be revived. The next hold needs the room of one.
        // The first and the third hold expire at the same time, so the older of them loses its
        // slot.
        let fourth = limiter.subject("a").cost(2).hold("fourth", MINUTE).await.unwrap();
        limiter.cancel(fourth.ticket().unwrap()).await.unwrap();
        assert_eq!(free(&limiter, "slots").await, 3);
        assert_eq!(renew(&limiter, &first).await, Err(ErrorKind::HoldLapsed));
        assert_eq!(renew(&limiter, &third).await, Ok(()));
        assert_eq!(free(&limiter, "slots").await, 2);
    });
}

/// A caller whose answer was lost repeats the hold. The repetition renews the slots. If they were
/// given away, it is an error, because the caller must not work.
#[test]
fn a_repeated_hold_renews_its_slots_or_fails() {
    run(async {
        let clock = ManualClock::default();
        let limiter = limiter(ModelStore::new(clock.clone()), &["slots: concurrent 1 lease 30s"]);
        let hold = async || limiter.subject("a").hold("id", MINUTE).await;
        let first = hold().await.unwrap();
        clock.advance(20 * SECOND);
        assert_eq!(hold().await.unwrap().decision(), first.decision());
        clock.advance(20 * SECOND);
        assert!(take(&limiter, "other").await.is_none());
        clock.advance(20 * SECOND);
        let other = take(&limiter, "other").await.unwrap();
        assert_eq!(hold().await.unwrap_err().kind(), ErrorKind::HoldLapsed);
        limiter.cancel(&other).await.unwrap();
        assert_eq!(hold().await.unwrap_err().kind(), ErrorKind::HoldLapsed);
        limiter.cancel(first.ticket().unwrap()).await.unwrap();
        assert_eq!(hold().await.unwrap_err().kind(), ErrorKind::AlreadySettled);
    });
}

/// The clock stands still, and the state is empty between the grants.
#[test]
fn fences_rise_strictly_per_subject() {
    run(async {
        let clock = ManualClock::default();
        let policies = ["rate: fixed-window 99/1m", "slots: concurrent 2 lease 30s"];
        let limiter = limiter(ModelStore::new(clock.clone()), &policies);
        clock.advance(SECOND);
        let now = clock.now().as_micros();
        for (number, resets) in [(0, false), (1, false), (2, true), (3, false)] {
            let hold = limiter.subject("a").hold(&[number], MINUTE).await.unwrap();
            assert_eq!(hold.decision().fences(), [None, Some(now + u64::from(number))]);
            let again = limiter.subject("a").hold(&[number], MINUTE).await.unwrap();
            assert_eq!(again.decision().fences(), hold.decision().fences());
            limiter.settle(hold.ticket().unwrap(), []).await.unwrap();
            if resets {
                let _ = limiter.subject("a").reset().await.unwrap();
            }
        }
        clock.advance(SECOND);
        let hold = limiter.subject("a").hold("last", MINUTE).await.unwrap();
        assert_eq!(hold.decision().fences()[1], Some(now + 1_000_000));
        let free = limiter.subject("a").cost(0).hold("free", MINUTE).await.unwrap();
        assert_eq!(free.decision().fences(), [None, None]);
    });
}

/// Sends a call for slots in turn, and returns its new place, or `None` if it was admitted.
async fn in_turn<S: Store>(
    store: &S,
    charges: &[Charge<'_>],
    id: &str,
    place: u64,
) -> Option<Place> {
    let call = Call::new(Operation::HoldInTurn { place }, charges).with_id(CallId::new(id, MINUTE));
    let decision = store.decide(call).await.unwrap();
    assert_eq!(decision.is_denied(), decision.place().is_some(), "{id}: {decision:?}");
    decision.place()
}

async fn free_slots<S: Store>(store: &S, charges: &[Charge<'_>], id: &str) {
    let charges: Vec<_> = charges.iter().map(|charge| charge.cost(0)).collect();
    let call = Call::new(Operation::Settle, &charges).with_id(CallId::new(id, MINUTE));
    let _ = store.decide(call).await.unwrap();
}

#[test]
fn calls_that_wait_are_admitted_in_their_order_and_no_other_call_overtakes() {
    run(async {
        let clock = ManualClock::default();
        let store = ModelStore::new(clock.clone());
        let slots = policy("slots: concurrent 1 lease 30s");
        let charges = [Charge::new(&slots, "a")];
        clock.advance(SECOND);
        assert_eq!(in_turn(&store, &charges, "first", 0).await, None);
        let second = in_turn(&store, &charges, "second", 0).await.unwrap();
        let third = in_turn(&store, &charges, "third", 0).await.unwrap();
        assert!(second.number < third.number);
        assert_eq!((second.ahead, third.ahead), (0, 1));
        assert_eq!(in_turn(&store, &charges, "third", third.number).await, Some(third));
        free_slots(&store, &charges, "first").await;
        assert_eq!(in_turn(&store, &charges, "third", third.number).await, Some(third));
        let hold = Call::new(Operation::Hold, &charges).with_id(CallId::new("hold", MINUTE));
        let decision = store.decide(hold).await.unwrap();
        assert_eq!((decision.is_denied(), decision.retry_after()), (true, None));
        assert_eq!(decision.place(), None);
        assert_eq!(in_turn(&store, &charges, "second", second.number).await, None);
        free_slots(&store, &charges, "second").await;
        let leave = Operation::Leave { place: third.number };
        let _ = store.decide(Call::new(leave, &charges)).await.unwrap();
        assert!(store.decide(hold).await.unwrap().is_allowed());
    });
}

#[test]
fn the_place_of_a_call_that_is_not_sent_again_ends() {
    run(async {
        for (lease, life) in [("30s", 5 * SECOND), ("3s", 3 * SECOND)] {
            let clock = ManualClock::default();
            let store = ModelStore::new(clock.clone());
            let slots = policy(&format!("slots: concurrent 2 lease {lease}"));
            let charges = [Charge::new(&slots, "a").cost(2)];
            assert_eq!(in_turn(&store, &charges, "holder", 0).await, None);
            let dead = in_turn(&store, &charges, "dead", 0).await.unwrap();
            let next = in_turn(&store, &charges, "next", 0).await.unwrap();
            free_slots(&store, &charges, "holder").await;
            clock.advance(life - Duration::from_micros(1));
            assert_eq!(in_turn(&store, &charges, "next", next.number).await, Some(next));
            clock.advance(Duration::from_micros(1));
            assert_eq!(in_turn(&store, &charges, "next", next.number).await, None);
            // A call whose place has ended gets a new place.
            let again = in_turn(&store, &charges, "dead", dead.number).await.unwrap();
            assert!(again.number > next.number && again.ahead == 0);
        }
    });
}

/// A call that lacks slots of one subject must not hold back the calls on its other subjects.
#[test]
fn a_call_holds_back_later_calls_only_where_it_lacks_slots() {
    run(async {
        let store = ModelStore::new(ManualClock::default());
        let slots = policy("slots: concurrent 1 lease 30s");
        let [a, b] = ["a", "b"].map(|subject| Charge::new(&slots, subject));
        assert_eq!(in_turn(&store, &[a], "on a", 0).await, None);
        let both = in_turn(&store, &[a, b], "on both", 0).await.unwrap();
        assert_eq!(in_turn(&store, &[b], "on b", 0).await, None);
        // The call now lacks slots of both subjects, and goes before later calls on both.
        assert_eq!(in_turn(&store, &[a, b], "on both", both.number).await, Some(both));
        free_slots(&store, &[b], "on b").await;
        let later = in_turn(&store, &[b], "later", 0).await.unwrap();
        free_slots(&store, &[a], "on a").await;
        assert_eq!(in_turn(&store, &[a, b], "on both", both.number).await, None);
        free_slots(&store, &[a, b], "on both").await;
        assert_eq!(in_turn(&store, &[b], "later", later.number).await, None);
    });
}

#[test]
fn a_call_that_only_a_rate_refuses_keeps_its_place_and_holds_back_no_other() {
    run(async {
        let clock = ManualClock::default();
        let store = ModelStore::new(clock.clone());
        let slots = policy("slots: concurrent 1 lease 30s");
        let rate = policy("rate: fixed-window 1/4s anchored");
        let (slot, rate) = (Charge::new(&slots, "a"), Charge::new(&rate, "a"));
        assert_eq!(in_turn(&store, &[slot, rate], "takes the rate", 0).await, None);
        let first = in_turn(&store, &[slot, rate], "first", 0).await.unwrap();
        let used = [slot.cost(0), rate.cost(1)];
        let settle = Call::new(Operation::Settle, &used);
        let _ = store.decide(settle.with_id(CallId::new("takes the rate", MINUTE))).await.unwrap();
        let again = async || in_turn(&store, &[slot, rate], "first", first.number).await;
        assert_eq!(again().await, Some(first));
        assert_eq!(in_turn(&store, &[slot], "other", 0).await, None);
        let later = in_turn(&store, &[slot], "later", 0).await.unwrap();
        assert_eq!(again().await, Some(first));
        free_slots(&store, &[slot], "other").await;
        clock.advance(4 * SECOND);
        // The first call lacked slots when it was last sent, so it goes before the later call.
        assert_eq!(in_turn(&store, &[slot], "later", later.number).await, Some(later));
        assert_eq!(again().await, None);
    });
}

/// A call that can never be admitted, or that takes no slots, does not wait.
#[test]
fn a_call_that_cannot_wait_gets_no_place() {
    run(async {
        let store = ModelStore::new(ManualClock::default());
        let (slots, rate) = (policy("slots: concurrent 1 lease 30s"), policy("rate: gcra 1/1m"));
        let (slot, rate) = (Charge::new(&slots, "a"), Charge::new(&rate, "a"));
        let decide = async |charges: &[Charge<'_>], id: &str, place| {
            let call = Call::new(Operation::HoldInTurn { place }, charges);
            store.decide(call.with_id(CallId::new(id, MINUTE))).await.unwrap()
        };
        assert!(decide(&[slot, rate], "holder", 0).await.is_allowed());
        let waiting = decide(&[slot], "waiting", 0).await.place().unwrap();
        for charges in [&[slot.cost(2)][..], &[slot, rate.cost(2)], &[rate], &[slot.cost(0), rate]]
        {
            let decision = decide(charges, "other", 0).await;
            assert_eq!((decision.is_denied(), decision.place()), (true, None), "{charges:?}");
        }
        // The number of slots is lowered to 0, so the call is refused and loses its place.
        let none = policy("slots: concurrent 0 lease 30s");
        let decision = decide(&[Charge::new(&none, "a")], "waiting", waiting.number).await;
        assert_eq!((decision.is_denied(), decision.place()), (true, None));
        free_slots(&store, &[slot, rate], "holder").await;
        assert!(decide(&[slot], "next", 0).await.is_allowed());
    });
}

/// A shadow must not change when a hold lapses, so its lease does not count.
#[test]
fn the_shortest_lease_that_is_enforced_ends_a_hold() {
    run(async {
        let clock = ManualClock::default();
        let policies = [
            "long: concurrent 2 lease 50s",
            "short: concurrent 2 lease 20s",
            "shadow: concurrent 2 lease 1s shadow",
        ];
        let limiter = limiter(ModelStore::new(clock.clone()), &policies);
        take(&limiter, "id").await.unwrap();
        for (passes, in_use) in
            [(20 * SECOND - Duration::from_micros(1), 1), (Duration::from_micros(1), 0)]
        {
            clock.advance(passes);
            for name in ["long", "short", "shadow"] {
                assert_eq!(free(&limiter, name).await, 2 - in_use, "{name}");
            }
        }
    });
}

#[test]
fn a_holder_learns_that_a_reset_has_removed_its_slots() {
    run(async {
        for (text, kind) in [
            ("slots: concurrent 2 lease 30s", Some(ErrorKind::UnknownHold)),
            ("slots: concurrent 2 lease 30s shadow", None),
        ] {
            let limiter = limiter(ModelStore::new(ManualClock::default()), &[text]);
            let ticket = take(&limiter, "id").await.unwrap();
            limiter.extend(&ticket, MINUTE).await.unwrap();
            limiter.subject("a").reset().await.unwrap();
            assert_eq!(free(&limiter, "slots").await, 2);
            let answer = limiter.extend(&ticket, MINUTE).await;
            assert_eq!(answer.err().map(|error| error.kind()), kind, "{text}");
            assert!(take(&limiter, "new").await.is_some());
            limiter.settle(&ticket, []).await.unwrap();
            assert_eq!(free(&limiter, "slots").await, 1, "the new holder keeps its slot");
        }
    });
}

#[test]
fn only_holds_take_slots_and_no_other_operation_changes_them() {
    run(async {
        let policy = policy("slots: concurrent 3 lease 30s");
        let store = ModelStore::new(ManualClock::default());
        let charge = Charge::new(&policy, "a").cost(2);
        let id = CallId::new("id", MINUTE);
        let hold = store.decide(Call::new(Operation::Hold, &[charge]).with_id(id)).await.unwrap();
        assert!(hold.is_allowed());
        for operation in [
            Operation::Acquire,
            Operation::AcquireUpTo { min: 1 },
            Operation::Charge,
            Operation::Refund,
            Operation::Undo { at: store.now().await.unwrap() },
            Operation::HoldUpTo { min: 1 },
            Operation::Settle,
            Operation::SettleSoFar,
        ] {
            let one = [charge.cost(1)];
            let call = Call::new(operation, &one);
            let call = if operation.is_of_hold() { call.with_id(id) } else { call };
            let error = store.decide(call).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidCall, "{operation:?}");
            assert!(error.to_string().contains(operation.name()), "{error}");
            // A check-only charge and a cost of 0 take nothing.
            let free = [charge.cost(0)];
            if !operation.is_of_hold() && operation.min_amount().is_none() {
                assert!(store.decide(Call::new(operation, &free)).await.is_ok(), "{operation:?}");
                let check = [charge.cost(1).check_only()];
                assert!(store.decide(Call::new(operation, &check)).await.is_ok(), "{operation:?}");
            }
        }
        let reserve = Operation::Reserve { max_wait: SECOND };
        let error = store.decide(Call::new(reserve, &[charge])).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        let peek = store.decide(Call::new(Operation::Peek, &[charge.cost(1)])).await.unwrap();
        assert_eq!((peek.verdicts()[0].remaining(), peek.unspent()), (1, &[Some(2)][..]));
        let too_many = [charge.cost(4)];
        let peek = store.decide(Call::new(Operation::Peek, &too_many)).await.unwrap();
        assert_eq!((peek.verdicts()[0].outcome(), peek.retry_after()), (Outcome::Denied, None));
    });
}

#[test]
fn a_block_refuses_new_holders_and_a_lower_limit_evicts_none() {
    run(async {
        let store = ModelStore::new(ManualClock::default());
        let three = limiter(&store, &["slots: concurrent 3 lease 30s"]);
        let one = limiter(&store, &["slots: concurrent 1 lease 5s"]);
        let tickets = [take(&three, "a").await.unwrap(), take(&three, "b").await.unwrap()];
        assert_eq!((free(&three, "slots").await, free(&one, "slots").await), (1, 0));
        three.subject("a").block(SECOND).await.unwrap();
        assert!(take(&three, "c").await.is_none());
        for ticket in &tickets {
            three.extend(ticket, MINUTE).await.unwrap();
        }
        one.settle(&tickets[0], []).await.unwrap();
        three.subject("a").block(Duration::ZERO).await.unwrap();
        assert!(take(&one, "c").await.is_none());
        one.settle(&tickets[1], []).await.unwrap();
        assert!(take(&one, "c").await.is_some());
    });
}

/// A store must be able to drop the state of holders that have crashed. So the last hold on the
/// state determines how long the state is kept, and the count alone never keeps it.
#[test]
fn slots_without_a_hold_do_not_keep_their_state() {
    let state = State::Concurrent(concurrent::State::new(3));
    let record = Record::restore(&policy("concurrent 5 lease 30s"), Some(state), None).unwrap();
    assert_eq!(record.recovers_at(), Some(Timestamp::EPOCH));
}

#[test]
fn a_guard_frees_its_slots_when_it_is_dropped() {
    run(async {
        let policies = ["slots: concurrent 1 lease 30s", "tokens: token-bucket 100/1m"];
        let limiter = limiter(ModelStore::new(ManualClock::default()), &policies);
        for rule in [OnDrop::Settle, OnDrop::Cancel] {
            let request = limiter.by("slots", "a").by("tokens", "a").cost(60);
            let hold = request.hold(&format!("{rule:?}"), MINUTE).await.unwrap();
            let mut guard = HoldGuard::new(&limiter, hold.into_ticket().unwrap(), rule).unwrap();
            guard.spent("tokens", 10);
            assert_eq!(free(&limiter, "slots").await, 0);
            drop(guard);
            limiter.guards_settled().await;
            assert_eq!(free(&limiter, "slots").await, 1);
        }
        assert_eq!(free(&limiter, "tokens").await, 80);
    });
}

/// While the store is away, no slot of the store can be taken, and the failure policy decides. The
/// tests in `fallback_slots` let a fallback store decide.
#[test]
fn the_failure_policy_decides_while_the_store_is_away() {
    run(async {
        let away = || {
            let down = vec![Fault::Before(ErrorKind::Unavailable); 9];
            ModelStore::new(ManualClock::default()).layer(Faults::new(down))
        };
        let slots = ["slots: concurrent 1 lease 30s"];
        let open = limiter(away().or_fail_open(), &slots);
        let first = take(&open, "a").await.unwrap();
        assert!(first.is_degraded());
        let second = take(&open, "b").await.unwrap();
        let closed = limiter(away().or_fail_closed(), &slots);
        assert!(take(&closed, "a").await.is_none());

        // The store is there again, and does not know the holds.
        let store = ModelStore::new(ManualClock::default()).or_fail_open();
        let limiter = limiter(store, &slots);
        for ticket in [first, second] {
            limiter.settle(&ticket, []).await.unwrap();
        }
        assert_eq!(free(&limiter, "slots").await, 1);
    });
}
