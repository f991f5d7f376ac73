//! Tests of the circuit breaker, in virtual time.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, and so do its helpers")]

use std::sync::{Arc, Barrier};
use std::time::Duration;

use crate::stubs::{Mood, Stub};
use tidegate_core::layers::{BreakerStore, CircuitState};
use tidegate_core::{
    Breaker, Call, Charge, Decision, Error, ErrorKind, ManualClock, Policy, Store, StoreExt,
};

const SECOND: Duration = Duration::from_secs(1);

struct Bench {
    clock: ManualClock,
    stub: Stub,
    store: BreakerStore<Stub, ManualClock>,
    policy: Policy,
}

/// Creates a store with a circuit breaker. After 3 failures, the breaker opens the circuit for a
/// second. `change` can change these settings.
fn bench(change: impl FnOnce(Breaker<ManualClock>) -> Breaker<ManualClock>) -> Bench {
    let clock = ManualClock::default();
    let stub = Stub::new(&clock);
    let breaker = Breaker::new().failures(3).open_for(SECOND).clock(clock.clone());
    let store = stub.clone().breaker(change(breaker));
    Bench { clock, stub, store, policy: "p: fixed-window 1000000/1h".parse().unwrap() }
}

impl Bench {
    async fn acquire(&self) -> Result<Decision, Error> {
        self.store.decide(Call::acquire(&[Charge::new(&self.policy, "s")])).await
    }

    async fn fails_with(&self, kind: ErrorKind) {
        assert_eq!(self.acquire().await.unwrap_err().kind(), kind);
    }

    async fn fails_in(&self, mood: Mood) {
        self.stub.set(mood);
        assert!(self.acquire().await.is_err());
    }

    /// Makes calls fail until the circuit is open.
    async fn open(&self) {
        self.stub.set(Mood::Down(ErrorKind::Unavailable));
        while self.store.state() == CircuitState::Closed {
            self.fails_with(ErrorKind::Unavailable).await;
        }
        let _ = self.stub.take_calls();
    }
}

#[test]
fn the_circuit_opens_after_consecutive_failures() {
    crate::run(async {
        let bench = bench(|breaker| breaker);
        for _ in 0..2 {
            bench.stub.set(Mood::Down(ErrorKind::Busy));
            bench.fails_with(ErrorKind::Busy).await;
            bench.stub.set(Mood::SlowlyDown(ErrorKind::Timeout));
            bench.fails_with(ErrorKind::Timeout).await;
            assert_eq!(bench.store.state(), CircuitState::Closed);
            bench.stub.set(Mood::Slow);
            assert!(bench.acquire().await.is_ok(), "a success ends a run of failures");
        }
        bench.stub.set(Mood::Down(ErrorKind::Busy));
        for _ in 0..3 {
            bench.fails_with(ErrorKind::Busy).await;
        }
        assert_eq!(bench.store.state(), CircuitState::Open);
        assert_eq!(bench.store.watch().times_opened(), 1);
    });
}

#[test]
fn a_dead_store_gets_no_calls_but_probes() {
    crate::run(async {
        let bench = bench(|breaker| breaker);
        bench.open().await;
        for _ in 0..10 {
            for tenth in 0..10 {
                let error = bench.acquire().await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::CircuitOpen);
                let remaining = 1_000 - 100 * tenth;
                let remaining = format!("{:?}", Duration::from_millis(remaining));
                assert!(
                    error.to_string().contains(&remaining),
                    "{error} does not contain {remaining}"
                );
                assert_eq!(bench.stub.take_calls().len(), 0);
                bench.clock.advance(SECOND / 10);
            }
            assert_eq!(bench.store.state(), CircuitState::HalfOpen);
            bench.fails_with(ErrorKind::Unavailable).await;
            assert_eq!(bench.stub.take_calls().len(), 1, "only the probe is called");
            assert_eq!(bench.store.state(), CircuitState::Open);
        }
        assert_eq!(bench.store.watch().times_opened(), 11);
    });
}

#[test]
fn the_circuit_is_open_for_exactly_its_time() {
    crate::run(async {
        let bench = bench(|breaker| breaker);
        bench.open().await;
        bench.clock.advance(SECOND - Duration::from_micros(1));
        bench.fails_with(ErrorKind::CircuitOpen).await;
        bench.clock.advance(Duration::from_micros(1));
        bench.stub.set(Mood::Up);
        assert!(bench.acquire().await.is_ok());
        assert_eq!(bench.store.state(), CircuitState::Closed);
        assert!(bench.acquire().await.is_ok());
    });
}

#[test]
fn each_failed_probe_doubles_the_time_up_to_the_bound() {
    crate::run(async {
        let bench = bench(|breaker| breaker.open_for_at_most(5 * SECOND));
        bench.open().await;
        for seconds in [1, 2, 4, 5, 5] {
            bench.clock.advance(seconds * SECOND - Duration::from_micros(1));
            assert_eq!(bench.store.state(), CircuitState::Open);
            bench.clock.advance(Duration::from_micros(1));
            bench.fails_with(ErrorKind::Unavailable).await;
        }
        bench.clock.advance(5 * SECOND);
        bench.stub.set(Mood::Up);
        assert!(bench.acquire().await.is_ok());
        bench.open().await;
        bench.clock.advance(SECOND);
        assert_eq!(
            bench.store.state(),
            CircuitState::HalfOpen,
            "the time begins with its minimum again"
        );
    });
}

#[test]
fn errors_about_one_key_or_one_call_do_not_open_the_circuit() {
    crate::run(async {
        let bench = bench(|breaker| breaker);
        for kind in [ErrorKind::ForeignValue, ErrorKind::InvalidCall, ErrorKind::Unsupported] {
            bench.stub.set(Mood::Down(kind));
            for _ in 0..10 {
                bench.fails_with(kind).await;
            }
            assert_eq!(bench.store.state(), CircuitState::Closed);
        }
    });
}

#[test]
fn an_invalid_call_neither_ends_a_run_of_failures_nor_a_probe() {
    crate::run(async {
        let bench = bench(|breaker| breaker);
        for kind in [ErrorKind::Busy, ErrorKind::Busy, ErrorKind::InvalidCall, ErrorKind::Busy] {
            assert_eq!(bench.store.state(), CircuitState::Closed);
            bench.stub.set(Mood::Down(kind));
            bench.fails_with(kind).await;
        }
        assert_eq!(bench.store.state(), CircuitState::Open);
        bench.clock.advance(SECOND);
        bench.stub.set(Mood::Down(ErrorKind::InvalidCall));
        bench.fails_with(ErrorKind::InvalidCall).await;
        assert_eq!(bench.store.state(), CircuitState::HalfOpen);
        bench.stub.set(Mood::Down(ErrorKind::ForeignValue));
        bench.fails_with(ErrorKind::ForeignValue).await;
        assert_eq!(bench.store.state(), CircuitState::Closed, "the server has answered");
    });
}

/// An error of the kind `Misconfigured`, such as a wrong password, must not open the circuit. With
/// an open circuit, calls fail with `CircuitOpen`, and a failure policy would hide the wrong
/// password.
#[test]
fn misconfigured_errors_open_no_circuit() {
    crate::run(async {
        let bench = bench(|breaker| breaker);
        bench.stub.set(Mood::Down(ErrorKind::Misconfigured));
        for _ in 0..9 {
            bench.fails_with(ErrorKind::Misconfigured).await;
        }
        assert_eq!(bench.store.watch().times_opened(), 0);
        bench.open().await;
        bench.clock.advance(SECOND);
        bench.stub.set(Mood::Down(ErrorKind::Misconfigured));
        bench.fails_with(ErrorKind::Misconfigured).await;
        assert_eq!(bench.store.state(), CircuitState::Closed, "the server has answered");
    });
}

#[test]
fn a_batch_is_one_call() {
    crate::run(async {
        let bench = bench(|breaker| breaker);
        let charges = [Charge::new(&bench.policy, "s")];
        let wrong = Call::acquire(&[]);
        let calls = [Call::acquire(&charges), wrong, Call::acquire(&charges)];
        for _ in 0..9 {
            let answers = bench.store.decide_many(&calls).await;
            assert!(answers[0].is_ok() && answers[1].is_err() && answers[2].is_ok());
        }
        assert_eq!(bench.store.state(), CircuitState::Closed);
        assert_eq!(bench.stub.take_calls(), vec![vec![calls[0].operation; 3]; 9]);
        bench.stub.set(Mood::Down(ErrorKind::Timeout));
        for _ in 0..3 {
            assert_eq!(bench.store.state(), CircuitState::Closed);
            assert_eq!(bench.store.decide_many(&calls).await.len(), 3);
        }
        assert_eq!(bench.store.state(), CircuitState::Open);
        let answers = bench.store.decide_many(&calls).await;
        for answer in answers {
            assert_eq!(answer.unwrap_err().kind(), ErrorKind::CircuitOpen);
        }
        bench.clock.advance(SECOND);
        assert!(bench.store.decide_many(&[]).await.is_empty());
        assert_eq!(bench.store.state(), CircuitState::HalfOpen, "an empty batch is not a probe");
        bench.stub.set(Mood::Slow);
        assert!(bench.store.decide_many(&calls).await[0].is_ok());
        assert_eq!(bench.store.state(), CircuitState::Closed);
    });
}

#[test]
fn the_clock_of_a_dead_store_is_not_read_either() {
    crate::run(async {
        let bench = bench(|breaker| breaker);
        bench.stub.set(Mood::Down(ErrorKind::Unavailable));
        for _ in 0..3 {
            assert_eq!(bench.store.now().await.unwrap_err().kind(), ErrorKind::Unavailable);
        }
        assert_eq!(bench.store.now().await.unwrap_err().kind(), ErrorKind::CircuitOpen);
        bench.clock.advance(SECOND);
        bench.stub.set(Mood::Up);
        assert!(bench.store.now().await.is_ok());
        assert_eq!(bench.store.state(), CircuitState::Closed);
    });
}

#[test]
fn a_cancelled_probe_frees_its_place() {
    crate::run(async {
        let bench = bench(|breaker| breaker.probes(2));
        bench.open().await;
        bench.clock.advance(SECOND);
        bench.stub.set(Mood::Silent);
        let charges = [Charge::new(&bench.policy, "s")];
        let probe = || bench.store.decide(Call::acquire(&charges));
        let (first, second) = (probe(), probe());
        let error = probe().into_ready().unwrap().unwrap_err();
        assert!(error.to_string().contains("until the probe in flight is answered"));
        drop(first);
        let third = probe();
        assert_eq!(bench.stub.in_flight(), 2);
        bench.fails_with(ErrorKind::CircuitOpen).await;
        drop((second, third));
        assert_eq!(bench.store.state(), CircuitState::HalfOpen);
        bench.stub.set(Mood::Up);
        assert!(bench.acquire().await.is_ok());
        assert_eq!(bench.store.state(), CircuitState::Closed);
    });
}

#[test]
fn answers_to_calls_from_before_a_change_of_the_circuit_are_ignored() {
    crate::run(async {
        let bench = bench(|breaker| breaker.probes(2));
        let charges = [Charge::new(&bench.policy, "s")];
        let call = |mood| {
            bench.stub.set(mood);
            bench.store.decide(Call::acquire(&charges))
        };
        let old_failures: Vec<_> =
            (0..3).map(|_| call(Mood::SlowlyDown(ErrorKind::Timeout))).collect();
        let old_success = call(Mood::Slow);
        bench.open().await;
        assert!(old_success.await.is_ok());
        assert_eq!(
            bench.store.state(),
            CircuitState::Open,
            "the call was sent before the circuit opened"
        );

        bench.clock.advance(SECOND);
        let old_probe = call(Mood::Slow);
        bench.fails_in(Mood::Down(ErrorKind::Busy)).await;
        assert_eq!(bench.store.state(), CircuitState::Open);
        bench.clock.advance(SECOND);
        assert!(old_probe.await.is_ok());
        assert_eq!(
            bench.store.state(),
            CircuitState::HalfOpen,
            "a probe of an earlier half-open state does not count"
        );

        bench.stub.set(Mood::Up);
        assert!(bench.acquire().await.is_ok());
        for failure in old_failures {
            assert!(failure.await.is_err());
        }
        assert_eq!(
            bench.store.state(),
            CircuitState::Closed,
            "the calls were sent before the circuit closed"
        );
    });
}

fn check_half_open_under_load(probes: u32) {
    let bench = Arc::new(bench(|breaker| breaker.probes(probes)));
    crate::run(bench.open());
    for round in 1..50 {
        bench.clock.advance(SECOND);
        bench.stub.set(Mood::Silent);
        let start = Arc::new(Barrier::new(64));
        let callers = (0..64).map(|_| {
            let (bench, start) = (Arc::clone(&bench), Arc::clone(&start));
            std::thread::spawn(move || {
                let charges = [Charge::new(&bench.policy, "s")];
                start.wait();
                let answer = bench.store.decide(Call::acquire(&charges)).into_ready();
                let is_probe = answer.is_err();
                // Each thread keeps its call in flight until all threads have called. Otherwise a
                // probe could end early, and the call of a later thread could be another probe.
                start.wait();
                drop(answer);
                is_probe
            })
        });
        let callers: Vec<_> = callers.collect();
        let probing = callers.into_iter().filter_map(|caller| caller.join().unwrap().then_some(()));
        assert_eq!(probing.count(), usize::try_from(probes).unwrap(), "round {round}");
        let asked = bench.stub.take_calls().len();
        assert_eq!(asked, usize::try_from(probes).unwrap(), "round {round}");
        assert_eq!(bench.stub.in_flight(), 0);
        bench.stub.set(Mood::Down(ErrorKind::Unavailable));
        crate::run(bench.fails_with(ErrorKind::Unavailable));
        assert_eq!(bench.stub.take_calls().len(), 1);
    }
}

#[test]
fn one_of_sixty_four_callers_probes() {
    check_half_open_under_load(1);
}

#[test]
fn the_maximum_of_sixty_four_callers_probe() {
    check_half_open_under_load(7);
}

#[test]
fn failures_of_many_threads_open_the_circuit_once() {
    for _ in 0..50 {
        let bench = Arc::new(bench(|breaker| breaker));
        bench.stub.set(Mood::Down(ErrorKind::Unavailable));
        let callers = (0..8).map(|_| {
            let bench = Arc::clone(&bench);
            std::thread::spawn(move || crate::run(async { bench.acquire().await.is_err() }))
        });
        let callers: Vec<_> = callers.collect();
        assert!(callers.into_iter().all(|caller| caller.join().unwrap()));
        assert_eq!(bench.store.watch().times_opened(), 1);
        assert_eq!(bench.store.state(), CircuitState::Open);
        let asked = bench.stub.take_calls().len();
        assert!((3..=8).contains(&asked), "{asked} calls reached the store");
    }
}

#[test]
fn settings_out_of_range_are_set_to_the_nearest_bound() {
    crate::run(async {
        let clock = ManualClock::default();
        let breaker = Breaker::new().failures(0).probes(0).open_for(Duration::ZERO);
        let breaker = breaker.open_for_at_most(Duration::ZERO).clock(clock.clone());
        let store = Stub::new(&clock).breaker(breaker);
        assert_eq!(store.state(), CircuitState::Closed);
        store.inner().set(Mood::Down(ErrorKind::Busy));
        assert!(store.now().await.is_err());
        assert_eq!(store.state(), CircuitState::Open);
        clock.advance(Duration::from_micros(1));
        store.inner().set(Mood::Up);
        assert!(store.now().await.is_ok());
    });
}
