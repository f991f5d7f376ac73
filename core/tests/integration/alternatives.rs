//! Tests of lists of alternatives through a limiter and through each layer.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, and so do its helpers")]

use std::time::Duration;

use tidegate_core::Outcome::{Allowed, Denied, DenyListed, Skipped};
use tidegate_core::{
    Call, Charge, CurrentLimits, Decision, DegradedAnswer, DenyCache, ErrorKind, Lease, Limiter,
    ManualClock, OnFailure, Operation, Outcome, Policy, PolicyLists, Share, Store, StoreExt,
    Ticket, TokioClock,
};
use tidegate_memory::MemoryStore;

use crate::run;
use crate::stubs::{Mood, Stub};

const MINUTE: Duration = Duration::from_secs(60);
const POLICIES: [&str; 2] = ["own: fixed-window 3/1h anchored", "pool: fixed-window 6/1h anchored"];

fn policies() -> [Policy; 2] {
    POLICIES.map(|text| text.parse().unwrap())
}

fn limiter<S: Store>(store: S) -> Limiter<S> {
    Limiter::new(store, policies()).unwrap()
}

fn outcomes(decision: &Decision) -> Vec<Outcome> {
    decision.verdicts().iter().map(|verdict| verdict.outcome()).collect()
}

/// Acquires a cost from a list, and returns the outcomes.
async fn take(limiter: &Limiter<impl Store>, cost: u64) -> Vec<Outcome> {
    let request = limiter.by("own", "a").cost(cost).or("pool", "all").cost(cost);
    outcomes(&request.acquire().await.unwrap())
}

async fn left(limiter: &Limiter<impl Store>) -> [u64; 2] {
    let (own, pool) = (limiter.by("own", "a"), limiter.by("pool", "all"));
    [own.peek().await.unwrap(), pool.peek().await.unwrap()]
        .map(|decision| decision.verdicts()[0].remaining())
}

#[test]
fn a_hold_and_its_ticket_settle_the_charge_that_paid() {
    run(async {
        let limiter = limiter(Stub::new(&ManualClock::default()));
        let request = limiter.by("own", "a").cost(2).or("pool", "all").cost(4);
        let first = request.hold("1", MINUTE).await.unwrap();
        let second = request.hold("2", MINUTE).await.unwrap();
        assert_eq!(outcomes(first.decision()), [Allowed, Skipped]);
        assert_eq!(outcomes(second.decision()), [Skipped, Allowed]);
        let ticket = second.into_ticket().unwrap();
        assert_eq!(ticket.held().collect::<Vec<_>>(), [("own", 0), ("pool", 4)]);
        // Another process has only the serialized ticket.
        let text = serde_json::to_string(&ticket).unwrap();
        let ticket: Ticket = serde_json::from_str(&text).unwrap();
        let settled = limiter.settle(&ticket, [("own", 9), ("pool", 1)]).await.unwrap();
        assert_eq!((settled.given_back("own"), settled.charged("own")), (0, 0));
        assert_eq!(settled.given_back("pool"), 3);
        assert_eq!(left(&limiter).await, [1, 5]);
    });
}

#[test]
fn a_ticket_of_an_earlier_release_has_no_list() {
    run(async {
        let limiter = limiter(Stub::new(&ManualClock::default()));
        let hold = limiter.by("own", "a").hold("1", MINUTE).await.unwrap();
        let text = serde_json::to_string(hold.ticket().unwrap()).unwrap();
        assert!(!text.contains("list"), "{text}");
    });
}

#[test]
fn a_hold_that_failed_open_charges_the_first_alternative() {
    run(async {
        let stub = Stub::new(&ManualClock::default());
        let limiter = limiter(stub.clone().or_fail_open());
        stub.set(Mood::Down(ErrorKind::Unavailable));
        let request = limiter.by("own", "a").cost(2).or("pool", "all").cost(2);
        let hold = request.hold("1", MINUTE).await.unwrap();
        assert_eq!(outcomes(hold.decision()), [Allowed, Skipped]);
        stub.set(Mood::Up);
        let settled = limiter.settle(hold.ticket().unwrap(), [("own", 1), ("pool", 1)]).await;
        assert_eq!(settled.unwrap().charged("own"), 1);
        assert_eq!(left(&limiter).await, [2, 6]);
    });
}

#[tokio::test(start_paused = true)]
async fn a_caller_waits_for_no_place_while_another_alternative_admits() {
    let store = MemoryStore::builder().clock(TokioClock::new()).build();
    let policies = ["own: gcra 1/1m", "pool: gcra 1/1s"].map(|text| text.parse().unwrap());
    let limiter = Limiter::new(store, policies).unwrap();
    let request = limiter.by("own", "a").or("pool", "all");
    for (payer, wait) in [(0, 0), (1, 0), (1, 1), (1, 1)] {
        let decision = request.acquire_within(MINUTE * 5).await.unwrap();
        assert_eq!(decision.verdicts()[payer].outcome(), Allowed);
        // A caller that waits again adds a few milliseconds.
        assert_eq!(decision.wait().as_secs(), wait);
    }
}

#[test]
fn the_cache_of_denials_and_leases_leave_lists_to_the_store() {
    run(async {
        let clock = ManualClock::default();
        let store = Stub::new(&clock).deny_cache(DenyCache::new().clock(clock.clone()));
        let stats = store.stats();
        let cached = limiter(store);
        for expected in [[Allowed, Skipped], [Skipped, Allowed], [Skipped, Allowed]] {
            assert_eq!(take(&cached, 3).await, expected);
        }
        // The own limit denies a cost of 3 alone, which the cache keeps.
        assert!(cached.by("own", "a").cost(3).acquire().await.unwrap().is_denied());
        let denied = take(&cached, 3).await;
        assert_eq!(denied, [Denied, Skipped]);
        assert_eq!((stats.hits(), left(&cached).await), (0, [0, 0]));
        // The cache has a denial of both charges together, and not of the list.
        let (own, pool) = (cached.by("own", "b"), cached.by("pool", "b"));
        assert!(own.cost(3).acquire().await.unwrap().is_allowed());
        let both = || cached.by("own", "b").by("pool", "b");
        for hits in [0, 1] {
            assert!(both().acquire().await.unwrap().is_denied());
            assert_eq!(stats.hits(), hits);
        }
        let request = cached.by("own", "b").or("pool", "b");
        assert_eq!(outcomes(&request.acquire().await.unwrap()), [Skipped, Allowed]);
        assert_eq!(pool.peek().await.unwrap().verdicts()[0].remaining(), 5);
    });
}

#[tokio::test(start_paused = true)]
async fn a_list_is_never_leased() {
    let clock = ManualClock::default();
    let lease = Lease::new().hot_after(1).max_share(Share::new(1, 1).unwrap());
    let stub = Stub::new(&clock);
    let store = stub.clone().leased(lease.clock(clock.clone()));
    let leased = limiter(store.clone());
    let mut paid = [0; 2];
    for _ in 0..9 {
        let payer = take(&leased, 1).await.iter().position(|outcome| *outcome == Allowed);
        paid[payer.unwrap()] += 1;
        // A task would request a chunk.
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(paid, [3, 6]);
    assert_eq!(take(&leased, 1).await.iter().filter(|outcome| **outcome == Denied).count(), 1);
    // The limits of this test are too small for a chunk, so larger ones are tried too.
    let wide = ["own: fixed-window 9000/1h", "pool: fixed-window 9000/1h"];
    let wide = Limiter::new(store.clone(), wide.map(|text| text.parse().unwrap())).unwrap();
    for _ in 0..9 {
        assert_eq!(take(&wide, 1).await, [Allowed, Skipped]);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let mut calls = stub.take_calls().into_iter().flatten();
    assert!(calls.all(|operation| operation == Operation::Acquire), "no chunk is requested");
    for _ in 0..9 {
        assert!(wide.by("own", "a").acquire().await.unwrap().is_allowed());
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let mut calls = stub.take_calls().into_iter().flatten();
    assert!(calls.any(Operation::is_of_hold), "a request without a list is leased");
    store.close().await;
}

#[test]
fn a_skipped_policy_admits_more_when_it_recovers() {
    run(async {
        let limiter = limiter(Stub::new(&ManualClock::default()));
        assert_eq!(take(&limiter, 3).await, [Allowed, Skipped]);
        let request = limiter.by("pool", "all").or("own", "a");
        let decision = request.acquire().await.unwrap();
        assert_eq!(outcomes(&decision), [Allowed, Skipped]);
        let request = limiter.by("own", "b").or("pool", "all");
        let decision = request.acquire().await.unwrap();
        assert_eq!(outcomes(&decision), [Allowed, Skipped]);
        // The pool would admit the cost now, but more than its rest only in an hour.
        let pool = request.verdicts(&decision).nth(1).unwrap();
        assert_eq!((pool.retry_after(), pool.remaining()), (Some(Duration::ZERO), 5));
        assert_eq!(pool.next_after(), MINUTE * 60);
    });
}

#[test]
fn a_list_entry_that_denies_an_alternative_refuses_the_call() {
    run(async {
        let lists =
            PolicyLists::new().with("own", "deny subject a\nallow subject b".parse().unwrap());
        let limiter = limiter(Stub::new(&ManualClock::default()).listed(lists));
        assert_eq!(take(&limiter, 1).await, [DenyListed, Allowed]);
        assert_eq!(left(&limiter).await[1], 6);
        // A subject that is allowed is counted beyond its limit, so it never needs the pool.
        for _ in 0..5 {
            let request = limiter.by("own", "b").or("pool", "all");
            assert_eq!(outcomes(&request.acquire().await.unwrap()), [Allowed, Skipped]);
        }
    });
}

#[test]
fn an_override_applies_to_an_alternative() {
    run(async {
        let set = "own: fixed-window 1/1h anchored for subject a".parse().unwrap();
        let store = Stub::new(&ManualClock::default()).adjusted(CurrentLimits::new(set));
        let limiter = limiter(store);
        assert_eq!(take(&limiter, 1).await, [Allowed, Skipped]);
        assert_eq!(take(&limiter, 1).await, [Skipped, Allowed]);
    });
}

#[test]
fn a_fallback_store_decides_lists_with_shares() {
    run(async {
        let clock = ManualClock::default();
        let (main, spare) = (Stub::new(&clock), Stub::new(&clock));
        let third = Share::new(1, 3).unwrap();
        let limiter = limiter(main.clone().or_fall_back_to(spare, third));
        main.set(Mood::Down(ErrorKind::Unavailable));
        // A third of the limits: 1 and 2.
        for expected in [[Allowed, Skipped], [Skipped, Allowed], [Skipped, Allowed]] {
            assert_eq!(take(&limiter, 1).await, expected);
        }
        let request = limiter.by("own", "a").or("pool", "all");
        let refused = request.acquire().await.unwrap();
        assert_eq!(refused.degraded().unwrap().answer, DegradedAnswer::FellBack);
        assert_eq!(refused.refused_by().count(), 1);
    });
}

/// Returns the outcomes and the kind of the answer while the store is down. The first policy has
/// the setting `own`, and the second one the setting `pool`.
async fn answer_of(own: DegradedAnswer, pool: DegradedAnswer) -> (Vec<Outcome>, DegradedAnswer) {
    let clock = ManualClock::default();
    let (main, spare) = (Stub::new(&clock), Stub::new(&clock));
    let mut on_failure = OnFailure::fall_back_to(spare, Share::new(1, 3).unwrap());
    for (name, answer) in [("own", own), ("pool", pool)] {
        on_failure = match answer {
            DegradedAnswer::FailedOpen => on_failure.open_for(name),
            DegradedAnswer::FailedClosed => on_failure.closed_for(name),
            _ => on_failure,
        };
    }
    let store = main.clone().on_failure(on_failure);
    main.set(Mood::Down(ErrorKind::Unavailable));
    let [own, pool] = policies();
    let charges = [Charge::new(&own, "a").in_list(1), Charge::new(&pool, "all").in_list(1)];
    let decision = store.decide(Call::acquire(&charges)).await.unwrap();
    (outcomes(&decision), decision.degraded().unwrap().answer)
}

#[test]
fn alternatives_with_different_failure_settings_use_the_first_that_can_admit() {
    use DegradedAnswer::{FailedClosed, FailedOpen, FellBack};
    run(async {
        for (own, pool, expected) in [
            (FellBack, FailedOpen, ([Allowed, Skipped], FellBack)),
            (FailedOpen, FellBack, ([Allowed, Skipped], FailedOpen)),
            (FailedClosed, FailedOpen, ([Skipped, Allowed], FailedOpen)),
            (FailedClosed, FellBack, ([Skipped, Allowed], FellBack)),
            (FailedClosed, FailedClosed, ([Denied, Skipped], FailedClosed)),
        ] {
            let (outcomes, answer) = answer_of(own, pool).await;
            assert_eq!((&outcomes[..], answer), (&expected.0[..], expected.1), "{own:?}, {pool:?}");
        }
    });
}
