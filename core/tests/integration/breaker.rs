//! The circuit breaker, in virtual time.

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

/// A circuit that opens after 3 failures for a second.
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

    async fn fails(&self, mood: Mood) {
        self.stub.set(mood);
        assert!(self.acquire().await.is_err());
    }

    /// Fails so often that the circuit is open.
    async fn open(&self) {
        self.stub.set(Mood::Down(ErrorKind::Unavailable));
        while self.store.state() == CircuitState::Closed {
            self.fails_with(ErrorKind::Unavailable).await;
        }
        let _ = self.stub.asked();
    }
}

#[test]
fn it_opens_after_so_many_failures_in_a_row() {
    crate::run(async {
        let bench = bench(|breaker| breaker);
        for _ in 0..2 {
            bench.stub.set(Mood::Down(ErrorKind::Busy));
            bench.fails_with(ErrorKind::Busy).await;
            bench.stub.set(Mood::SlowlyDown(ErrorKind::Timeout));
            bench.fails_with(ErrorKind::Timeout).await;
            assert_eq!(bench.store.state(), CircuitState::Closed);
            bench.stub.set(Mood::Slow);
            assert!(bench.acquire().await.is_ok(), "and so they were not in a row");
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
fn a_dead_store_sees_nothing_but_the_probes() {
    crate::run(async {
        let bench = bench(|breaker| breaker);
        bench.open().await;
        for _ in 0..10 {
            for tenth in 0..10 {
                let error = bench.acquire().await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::CircuitOpen);
                let left = 1_000 - 100 * tenth;
                let left = format!("{:?}", Duration::from_millis(left));
                assert!(error.to_string().contains(&left), "{error} does not say {left}");
                assert_eq!(bench.stub.asked().len(), 0);
                bench.clock.advance(SECOND / 10);
            }
            assert_eq!(bench.store.state(), CircuitState::HalfOpen);
            bench.fails_with(ErrorKind::Unavailable).await;
            assert_eq!(bench.stub.asked().len(), 1, "the probe");
            assert_eq!(bench.store.state(), CircuitState::Open);
        }
        assert_eq!(bench.store.watch().times_opened(), 11);
    });
}

#[test]
fn it_is_open_for_exactly_its_time() {
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
        assert_eq!(bench.store.state(), CircuitState::HalfOpen, "it begins anew");
    });
}

#[test]
fn errors_about_one_key_or_one_call_do_not_open_it() {
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
fn a_call_that_says_nothing_of_the_store_neither_hides_failures_nor_ends_a_probe() {
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

/// An open circuit would turn a wrong password into an error that failure policies hide.
#[test]
fn settings_that_do_not_fit_the_server_open_no_circuit() {
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
        assert_eq!(bench.stub.asked(), vec![vec![calls[0].operation; 3]; 9]);
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
        assert_eq!(bench.store.state(), CircuitState::HalfOpen, "no calls, no probe");
        bench.stub.set(Mood::Slow);
        assert!(bench.store.decide_many(&calls).await[0].is_ok());
        assert_eq!(bench.store.state(), CircuitState::Closed);
    });
}

#[test]
fn the_clock_of_a_dead_store_is_not_asked_either() {
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
fn a_probe_whose_caller_goes_away_gives_its_place_back() {
    crate::run(async {
        let bench = bench(|breaker| breaker.probes(2));
        bench.open().await;
        bench.clock.advance(SECOND);
        bench.stub.set(Mood::Silent);
        let charges = [Charge::new(&bench.policy, "s")];
        let ask = || bench.store.decide(Call::acquire(&charges));
        let (first, second) = (ask(), ask());
        let error = ask().into_ready().unwrap().unwrap_err();
        assert!(error.to_string().contains("until the probe in flight is answered"));
        drop(first);
        let third = ask();
        assert_eq!(bench.stub.on_the_way(), 2);
        bench.fails_with(ErrorKind::CircuitOpen).await;
        drop((second, third));
        assert_eq!(bench.store.state(), CircuitState::HalfOpen);
        bench.stub.set(Mood::Up);
        assert!(bench.acquire().await.is_ok());
        assert_eq!(bench.store.state(), CircuitState::Closed);
    });
}

#[test]
fn answers_to_calls_of_the_past_change_nothing() {
    crate::run(async {
        let bench = bench(|breaker| breaker.probes(2));
        let charges = [Charge::new(&bench.policy, "s")];
        let ask = |mood| {
            bench.stub.set(mood);
            bench.store.decide(Call::acquire(&charges))
        };
        let old_failures: Vec<_> =
            (0..3).map(|_| ask(Mood::SlowlyDown(ErrorKind::Timeout))).collect();
        let old_success = ask(Mood::Slow);
        bench.open().await;
        assert!(old_success.await.is_ok());
        assert_eq!(bench.store.state(), CircuitState::Open, "that was sent before");

        bench.clock.advance(SECOND);
        let old_probe = ask(Mood::Slow);
        bench.fails(Mood::Down(ErrorKind::Busy)).await;
        assert_eq!(bench.store.state(), CircuitState::Open);
        bench.clock.advance(SECOND);
        assert!(old_probe.await.is_ok());
        assert_eq!(bench.store.state(), CircuitState::HalfOpen, "nor is a probe of the last time");

        bench.stub.set(Mood::Up);
        assert!(bench.acquire().await.is_ok());
        for failure in old_failures {
            assert!(failure.await.is_err());
        }
        assert_eq!(bench.store.state(), CircuitState::Closed, "they failed before it was closed");
    });
}

/// Sixty-four callers at once on a circuit that is half open.
fn half_open_under_load(probes: u32) {
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
                // All who got through hold their places until everybody has asked.
                start.wait();
                drop(answer);
                is_probe
            })
        });
        let callers: Vec<_> = callers.collect();
        let through = callers.into_iter().filter_map(|caller| caller.join().unwrap().then_some(()));
        assert_eq!(through.count(), usize::try_from(probes).unwrap(), "in round {round}");
        let asked = bench.stub.asked().len();
        assert_eq!(asked, usize::try_from(probes).unwrap(), "in round {round}");
        assert_eq!(bench.stub.on_the_way(), 0);
        bench.stub.set(Mood::Down(ErrorKind::Unavailable));
        crate::run(bench.fails_with(ErrorKind::Unavailable));
        assert_eq!(bench.stub.asked().len(), 1);
    }
}

#[test]
fn of_sixty_four_callers_one_probes() {
    half_open_under_load(1);
}

#[test]
fn of_sixty_four_callers_as_many_probe_as_may() {
    half_open_under_load(7);
}

#[test]
fn failures_of_many_threads_open_it_once() {
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
        let asked = bench.stub.asked().len();
        assert!((3..=8).contains(&asked), "{asked} calls came through");
    }
}

#[test]
fn what_cannot_be_set_is_set_to_the_nearest() {
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
