//! Tests of the timeout layer: a call gets its answer in time, or an error.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, and so do its helpers")]

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use crate::stubs::{Mood, Stub};
use tidegate_core::{
    Breaker, Call, Charge, ErrorKind, Limiter, ManualClock, Policy, Share, Store, StoreExt,
};
use tidegate_testkit::ModelStore;
use tidegate_testkit::faults::{Fault, Faults};

const BOUND: Duration = Duration::from_millis(50);

fn policy() -> Policy {
    "p: sliding-log 3/1h".parse().unwrap()
}

#[test]
fn an_answer_that_is_there_needs_no_timer_and_no_runtime() {
    let store = Stub::new(&ManualClock::default()).timeout(BOUND);
    let (policy, now) = (policy(), store.now().into_ready().unwrap().unwrap());
    let charges = [Charge::new(&policy, "s")];
    let calls = [Call::acquire(&charges); 2];
    assert_eq!(now, tidegate_core::Timestamp::EPOCH);
    assert!(store.decide(calls[0]).into_ready().unwrap().unwrap().is_allowed());
    store.inner().set(Mood::Down(ErrorKind::Busy));
    let error = store.decide(calls[0]).into_ready().unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy, "an error in time is returned unchanged");
}

#[test]
fn b48_a_call_that_is_too_slow_is_an_error_at_the_bound() {
    crate::run(async {
        let store = Stub::new(&ManualClock::default()).timeout(BOUND);
        let limiter = Limiter::new(store, [policy()]).unwrap();
        limiter.store().inner().set(Mood::Silent);
        let start = tokio::time::Instant::now();
        let error = limiter.acquire("s").await.unwrap_err();
        assert_eq!(start.elapsed().as_millis(), BOUND.as_millis());
        assert_eq!(error.to_string(), "timeout: no answer within 50ms");
        assert!(!error.kind().is_definitely_not_charged());
        let error = limiter.store().now().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout);
        assert_eq!(limiter.store().inner().in_flight(), 0, "no call waits any longer");

        limiter.store().inner().set(Mood::Slow);
        assert!(limiter.acquire("s").await.unwrap().is_allowed(), "slow, but in time");
    });
}

#[test]
fn a_batch_is_one_call_with_one_bound() {
    crate::run(async {
        let store = Stub::new(&ManualClock::default()).timeout(BOUND);
        let policy = policy();
        let charges = [Charge::new(&policy, "s")];
        let calls = [Call::acquire(&charges); 3];
        store.inner().set(Mood::Silent);
        let start = tokio::time::Instant::now();
        let answers = store.decide_many(&calls).await;
        assert_eq!(start.elapsed().as_millis(), BOUND.as_millis());
        assert_eq!(answers.len(), 3);
        for answer in answers {
            assert_eq!(answer.unwrap_err().kind(), ErrorKind::Timeout);
        }
        assert_eq!(store.inner().take_calls().len(), 1);
        store.inner().set(Mood::Slow);
        let answers = store.decide_many(&calls).await;
        assert!(answers.iter().all(|answer| answer.as_ref().unwrap().is_allowed()));
        assert_eq!(store.inner().take_calls().len(), 1);
    });
}

#[test]
fn b42_a_call_that_lands_after_the_timeout_is_charged_once() {
    crate::run(async {
        let model = ModelStore::new(ManualClock::default());
        let faulty = model.layer(Faults::new(vec![Fault::Delayed, Fault::Late]));
        let limiter = Limiter::new(faulty.timeout(BOUND), [policy()]).unwrap();
        for _ in 0..2 {
            let error = limiter.acquire("s").await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Timeout);
        }
        Faults::deliver(limiter.store().inner()).await;
        let peek = limiter.subject("s").peek().await.unwrap();
        assert_eq!(peek.verdicts()[0].remaining(), 1, "both calls are charged once each");
    });
}

#[test]
fn b52_cancelled_callers_leave_no_call_and_no_task() {
    crate::run(async {
        let clock = ManualClock::default();
        let stub = Stub::new(&clock);
        let store = stub.clone().timeout(BOUND).breaker(Breaker::new());
        let store = store.or_fall_back_to(Stub::new(&clock), Share::new(1, 2).unwrap());
        let limiter = Limiter::new(store, [policy()]).unwrap();
        stub.set(Mood::Silent);
        {
            let mut answers: Vec<_> = (0..64).map(|_| Box::pin(limiter.acquire("s"))).collect();
            for answer in &mut answers {
                let once = poll_fn(|context| Poll::Ready(pin!(&mut *answer).poll(context))).await;
                assert!(once.is_pending());
            }
            assert_eq!(stub.in_flight(), 64);
        }
        drop(limiter);
        assert_eq!(stub.in_flight(), 0);
        let tasks = tokio::runtime::Handle::current().metrics().num_alive_tasks();
        assert_eq!(tasks, 0);
    });
}

#[test]
fn a_store_that_never_answers_costs_a_few_timeouts_and_then_nothing() {
    crate::run(async {
        let clock = ManualClock::default();
        let stub = Stub::new(&clock);
        let breaker = Breaker::new().failures(3).clock(clock.clone());
        let store = stub.clone().timeout(BOUND).breaker(breaker).or_fail_open();
        let limiter = Limiter::new(store, [policy()]).unwrap();
        stub.set(Mood::Silent);
        let start = tokio::time::Instant::now();
        for call in 1..100_u64 {
            let decision = limiter.acquire("s").await.unwrap();
            let reason = if call <= 3 { ErrorKind::Timeout } else { ErrorKind::CircuitOpen };
            assert_eq!(decision.degraded().unwrap().reason, reason);
            assert_eq!(start.elapsed().as_millis(), u128::from(call.min(3)) * BOUND.as_millis());
        }
        stub.set(Mood::Up);
        clock.advance(Duration::from_secs(1));
        assert_eq!(limiter.acquire("s").await.unwrap().degraded(), None, "the store is used again");
    });
}
