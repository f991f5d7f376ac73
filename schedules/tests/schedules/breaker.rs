//! Tests of the circuit breaker: it bounds the number of concurrent probes, and counts each probe
//! until its end. It ignores the answer to a call that it sent before the circuit last opened or
//! closed.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use shuttle::future::{JoinHandle, spawn, yield_now};
use shuttle::rand::{Rng, thread_rng};
use tidegate_core::layers::{BreakerStore, CircuitState};
use tidegate_core::{
    Answer, Breaker, Call, Charge, Decision, Error, ErrorKind, Outcome, Policy, Store, StoreExt,
    Timestamp, Verdict, scheduled,
};

use crate::explore::{Seen, cancel, explore, idle, join};
use crate::server::VirtualClock;

const OPEN_FOR: Duration = Duration::from_secs(1);
const PROBES: usize = 2;

/// The answer of the store to a call, selected by the cost of the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Health {
    Alive = 1,
    Failing = 2,
    /// An error that does not show whether the store works.
    Unknown = 3,
}

impl Health {
    fn any() -> Self {
        [Self::Alive, Self::Failing, Self::Unknown][thread_rng().gen_range(0..3)]
    }
}

/// The subject of late calls, which the store answers only after `OPEN_FOR`, when the state of the
/// circuit has changed.
const LATE: &str = "late";

/// A store that counts the calls in flight. All clones are the same store.
#[derive(Debug, Clone, Default)]
struct Backend(Arc<Mutex<Ledger>>);

/// Counts of the calls to a store, without late calls.
#[derive(Debug, Default)]
struct Ledger {
    in_flight: usize,
    max_in_flight: usize,
    /// Whether a late call was answered while other calls were in flight.
    has_met_late: bool,
}

impl Backend {
    fn ledger<T>(&self, run: impl FnOnce(&mut Ledger) -> T) -> T {
        run(&mut self.0.lock().expect("no step panics that holds it"))
    }

    async fn answer(&self, cost: u64, is_late: bool) -> Result<Decision, Error> {
        if is_late {
            scheduled::sleep(OPEN_FOR + Duration::from_micros(2)).await;
        }
        let in_flight = (!is_late).then(|| InFlight::new(self));
        for _ in 0..3 {
            yield_now().await;
        }
        if in_flight.is_none() {
            self.ledger(|ledger| ledger.has_met_late |= ledger.in_flight > 0);
        }
        match cost {
            1 => Ok(Decision::one(Verdict::new(Outcome::Allowed, 1))),
            2 => Err(Error::new(ErrorKind::Timeout, "no answer")),
            _ => Err(Error::new(ErrorKind::TooManyWaiters, "not sent")),
        }
    }
}

struct InFlight<'a>(&'a Backend);

impl<'a> InFlight<'a> {
    fn new(backend: &'a Backend) -> Self {
        backend.ledger(|ledger| {
            ledger.in_flight += 1;
            ledger.max_in_flight = ledger.max_in_flight.max(ledger.in_flight);
        });
        Self(backend)
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.ledger(|ledger| ledger.in_flight -= 1);
    }
}

impl Store for Backend {
    fn decide<'a>(&'a self, call: Call<'a>) -> Answer<'a, Result<Decision, Error>> {
        let cost = call.charges.get(0).map_or(0, |charge| charge.cost);
        let is_late = call.charges.get(0).is_some_and(|charge| charge.subject == LATE.as_bytes());
        Answer::later(self.answer(cost, is_late))
    }

    fn now(&self) -> Answer<'_, Result<Timestamp, Error>> {
        Answer::ready(Ok(Timestamp::from_micros(0)))
    }
}

type Guarded = Arc<BreakerStore<Backend, VirtualClock>>;

fn guarded(failures: u32) -> (Backend, Guarded) {
    let breaker = Breaker::new().failures(failures).open_for(OPEN_FOR);
    let breaker = breaker.probes(u32::try_from(PROBES).expect("few")).clock(VirtualClock);
    let backend = Backend::default();
    (backend.clone(), Arc::new(backend.breaker(breaker)))
}

/// Spawns a task that makes a call. The breaker may refuse the call.
fn call(store: &Guarded, health: Health, subject: &'static str) -> JoinHandle<Option<ErrorKind>> {
    let store = Arc::clone(store);
    spawn(async move {
        let policy: Policy = "fixed-window 1000000/1h".parse().expect("a policy");
        let charges = [Charge::new(&policy, subject).cost(health as u64)];
        store.decide(Call::acquire(&charges)).await.err().map(|error| error.kind())
    })
}

fn is_refused(answer: &Option<ErrorKind>) -> bool {
    *answer == Some(ErrorKind::CircuitOpen)
}

/// Checks that no probe is counted after its end: the breaker sends `PROBES` concurrent calls as
/// probes, and closes the circuit after the next answer.
async fn assert_no_place_is_lost(store: &Guarded) {
    scheduled::advance(OPEN_FOR);
    assert_eq!(store.state(), CircuitState::HalfOpen);
    let calls = [(); PROBES].map(|()| call(store, Health::Unknown, "s"));
    assert!(!join(calls).await.iter().any(is_refused), "a place was lost");
    assert_eq!(join([call(store, Health::Alive, "s")]).await, [None]);
    assert_eq!(store.state(), CircuitState::Closed);
}

#[test]
fn no_more_probes_are_in_flight_than_may_and_each_frees_its_place() {
    static FULL: Seen = Seen::new();
    static CANCELLED: Seen = Seen::new();
    explore(|| async {
        let (backend, store) = guarded(1);
        join([call(&store, Health::Failing, "s")]).await;
        assert_eq!(store.state(), CircuitState::Open);
        scheduled::advance(OPEN_FOR);
        let calls = [(); 4].map(|()| call(&store, Health::Unknown, "s"));
        let [one, others @ ..] = calls;
        CANCELLED.record(cancel(one).await.is_none());
        let refused = join(others).await.iter().any(is_refused);
        let max = backend.ledger(|ledger| ledger.max_in_flight);
        assert!(max <= PROBES, "{max} probes at once");
        FULL.record(refused);
        assert_no_place_is_lost(&store).await;
        assert_eq!(store.watch().times_opened(), 1);
    });
    FULL.assert("a call that is refused, as all probes are in flight");
    CANCELLED.assert("a probe that is cancelled");
}

#[test]
fn a_probe_of_an_earlier_opening_changes_nothing() {
    static OUTDATED: Seen = Seen::new();
    explore(|| async {
        let (backend, store) = guarded(1);
        join([call(&store, Health::Failing, "s")]).await;
        scheduled::advance(OPEN_FOR);
        let late = call(&store, Health::any(), LATE);
        idle().await;
        join([call(&store, Health::Failing, "s")]).await;
        assert_eq!(store.watch().times_opened(), 2);
        // The circuit opened again after the late call was sent, and is half-open when the store
        // answers this call.
        scheduled::advance(OPEN_FOR + Duration::from_micros(1));
        join([(); 4].map(|()| call(&store, Health::Unknown, "s"))).await;
        assert!(!is_refused(&join([late]).await[0]));
        assert_eq!(store.state(), CircuitState::HalfOpen);
        assert_eq!(store.watch().times_opened(), 2);
        let max = backend.ledger(|ledger| ledger.max_in_flight);
        assert!(max <= PROBES, "{max} probes at once");
        OUTDATED.record(backend.ledger(|ledger| ledger.has_met_late));
        assert_no_place_is_lost(&store).await;
    });
    OUTDATED.assert("calls that meet the outdated probe");
}

#[test]
fn each_failure_counts_once_and_only_in_its_own_round() {
    static REFUSED: Seen = Seen::new();
    explore(|| async {
        let (_, store) = guarded(3);
        let late = [(); 3].map(|()| call(&store, Health::Failing, LATE));
        idle().await;
        let calls = [(); 3].map(|()| call(&store, Health::Failing, "s"));
        join(calls).await;
        assert_eq!(store.state(), CircuitState::Open, "three failures");
        assert_eq!(store.watch().times_opened(), 1);
        // The breaker sent the late calls before the circuit opened. The store answers them while
        // probes close the circuit.
        scheduled::advance(OPEN_FOR + Duration::from_micros(2));
        let probes = [(); 3].map(|()| call(&store, Health::Alive, "s"));
        REFUSED.record(join(probes).await.iter().any(is_refused));
        join(late).await;
        assert_eq!(store.state(), CircuitState::Closed);
        assert_eq!(store.watch().times_opened(), 1);
    });
    REFUSED.assert("a call that comes while all probes are in flight");
}
