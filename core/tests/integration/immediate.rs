//! Tests of layers around a store that answers immediately. The layered store must also answer
//! immediately, and its method `answers_immediately` must return `true`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, and so do its helpers")]

use std::time::Duration;

use crate::stubs::{Mood, Stub};
use tidegate_core::{
    Breaker, Call, CallId, Charge, DenyCache, ErrorKind, ManualClock, OnFailure, Operation, Policy,
    Share, Store, StoreExt, Timestamp,
};

const HOUR: Duration = Duration::from_secs(3600);
const DOWN: Mood = Mood::Down(ErrorKind::Unavailable);

const OPERATIONS: [Operation; 10] = [
    Operation::Peek,
    Operation::Acquire,
    Operation::AcquireUpTo { min: 1 },
    Operation::Reserve { max_wait: HOUR },
    Operation::Charge,
    Operation::Refund,
    Operation::Undo { at: Timestamp::EPOCH },
    Operation::Reset,
    Operation::BlockAtLeast { span: HOUR },
    Operation::Block { span: HOUR },
];

/// Checks that `store` answers immediately while `inner` answers immediately, with decisions or
/// with errors. Some of the calls are admitted, some are refused, and some are blocked.
fn check(inner: &Stub, store: &dyn Store) {
    let policy: Policy = "p: sliding-log 3/1h".parse().unwrap();
    let charges = [Charge::new(&policy, "s").cost(2)];
    for mood in [Mood::Up, DOWN, Mood::Up, DOWN, DOWN] {
        inner.set(mood);
        assert!(store.answers_immediately(), "{mood:?}");
        for operation in OPERATIONS.into_iter().chain([Operation::Acquire; 3]) {
            let answer = store.decide(Call::new(operation, &charges));
            assert!(answer.into_ready().is_ok(), "{operation:?} {mood:?}");
        }
    }
    inner.set(Mood::Slow);
    assert!(!store.answers_immediately());
}

fn stub() -> Stub {
    Stub::new(&ManualClock::default())
}

fn third() -> Share {
    Share::new(1, 3).unwrap()
}

#[test]
fn a_timeout_answers_immediately() {
    let inner = stub();
    check(&inner, &inner.clone().timeout(Duration::from_millis(1)));
}

#[test]
fn a_breaker_answers_immediately_even_if_its_circuit_is_open() {
    let inner = stub();
    let store = inner.clone().breaker(Breaker::new().failures(2).clock(ManualClock::default()));
    check(&inner, &store);
    assert_eq!(store.watch().times_opened(), 1);
}

#[test]
fn a_deny_cache_answers_hits_and_misses_immediately() {
    let inner = stub();
    let store = inner.clone().deny_cache(DenyCache::new().clock(ManualClock::default()));
    let stats = store.stats();
    check(&inner, &store);
    assert!(stats.hits() > 0 && stats.misses() > 0, "{stats:?}");
}

#[test]
fn a_failure_policy_without_a_fallback_store_answers_immediately() {
    let inner = stub();
    check(&inner, &inner.clone().or_fail_open());
    check(&inner, &inner.clone().or_fail_closed());
}

#[test]
fn a_fallback_answers_immediately_only_if_its_store_does() {
    let (inner, spare) = (stub(), stub());
    let store = inner.clone().on_failure(OnFailure::fall_back_to(spare.clone(), third()));
    check(&inner, &store);
    assert!(!spare.take_calls().is_empty());
    inner.set(Mood::Up);
    spare.set(DOWN);
    assert!(store.answers_immediately());
    spare.set(Mood::Slow);
    assert!(!store.answers_immediately());
}

#[test]
fn the_fallback_store_is_called_once_and_decides_as_it_does_later() {
    crate::run(async {
        let policy: Policy = "p: sliding-log 6/1h".parse().unwrap();
        let mut decisions = vec![];
        for mood in [Mood::Up, Mood::Slow] {
            let (inner, spare) = (stub(), stub());
            inner.set(DOWN);
            spare.set(mood);
            let store = inner.on_failure(OnFailure::fall_back_to(spare.clone(), third()));
            for _ in 0..3 {
                let charges = [Charge::new(&policy, "s")];
                decisions.push(store.decide(Call::acquire(&charges)).await.unwrap());
                assert_eq!(spare.take_calls(), [[Operation::Acquire]]);
            }
        }
        let (immediate, later) = decisions.split_at(3);
        assert_eq!(immediate, later);
        assert_eq!(immediate.iter().filter(|decision| decision.is_allowed()).count(), 2);
    });
}

#[test]
fn all_layers_together_answer_immediately() {
    let inner = stub();
    let store = inner
        .clone()
        .timeout(Duration::from_millis(1))
        .breaker(Breaker::new())
        .deny_cache(DenyCache::new())
        .or_fall_back_to(stub(), third())
        .observed();
    check(&inner, &store);
    let policy: Policy = "p: sliding-log 3/1h".parse().unwrap();
    let charges = [Charge::new(&policy, "s")];
    inner.set(Mood::Up);
    let call = Call::acquire(&charges).with_id(CallId::new(b"1", HOUR));
    assert!(store.decide(call).into_ready().is_ok());
}
