//! Circuit breaker: a store that keeps failing is not called for a while.
//!
//! No crate that was considered fits: failsafe 1.3 (a lock per call) and recloser 1.4 send all calls once half open,
//! reliakit-circuit 1.1 does the same and needs a lock; tower-circuitbreaker 0.2 is tied to tower; and in none of them
//! a cancelled probe frees its place.

mod circuit;
mod config;
mod meter;
mod state;

use std::sync::Arc;
use std::time::Duration;

use circuit::{Circuit, Refusal, Ticket};
pub use config::Breaker;
pub use state::CircuitState;

#[cfg(feature = "tracing")]
use crate::telemetry::events;
use crate::{
    Answer, Call, Clock, Decision, Error, ErrorKind, Policy, Store, SystemClock, Timestamp,
};

/// A store with a circuit breaker: see [`StoreExt::breaker`](crate::StoreExt::breaker).
#[derive(Debug)]
pub struct BreakerStore<S, C = SystemClock> {
    inner: S,
    watch: BreakerWatch<C>,
}

/// A handle that shows the state of a circuit, as for a metric. Clones show the same circuit.
#[derive(Debug, Clone)]
pub struct BreakerWatch<C = SystemClock> {
    circuit: Arc<Circuit>,
    clock: C,
}

impl<C: Clock> BreakerWatch<C> {
    /// The state of the circuit.
    #[must_use]
    pub fn state(&self) -> CircuitState {
        self.circuit.state(|| self.clock.now())
    }

    /// The number of times the circuit has opened, also after a failed probe.
    #[must_use]
    pub fn times_opened(&self) -> u64 {
        self.circuit.times_opened()
    }
}

impl<S, C: Clock> BreakerStore<S, C> {
    pub(super) fn new(inner: S, breaker: Breaker<C>) -> Self {
        let circuit = Arc::new(Circuit::new(breaker.settings));
        Self { inner, watch: BreakerWatch { circuit, clock: breaker.clock } }
    }

    /// The inner store.
    #[must_use]
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// Unwraps the inner store.
    #[must_use]
    pub fn into_inner(self) -> S {
        self.inner
    }

    /// The state of the circuit.
    #[must_use]
    pub fn state(&self) -> CircuitState {
        self.watch.state()
    }

    /// A handle that stays valid when the store is moved into other layers.
    #[must_use]
    pub fn watch(&self) -> BreakerWatch<C>
    where
        C: Clone,
    {
        self.watch.clone()
    }

    /// Permission to call the store.
    fn enter(&self) -> Result<Permit<'_, C>, Refusal> {
        let watch = &self.watch;
        let ticket = watch.circuit.enter(|| watch.clock.now())?;
        Ok(Permit { watch, ticket, is_used: false })
    }

    fn not_asked(&self, refused: Refusal) -> Error {
        let failures = self.watch.circuit.settings().failures;
        let until = match refused {
            Refusal::Open(micros) => format!("for another {:?}", Duration::from_micros(micros)),
            Refusal::Probing => "until the probe in flight is answered".to_owned(),
        };
        let message =
            format!("the store failed {failures} times in a row; it is not called {until}");
        Error::new(ErrorKind::CircuitOpen, message)
    }

    /// Returns an answer, and records the health that it shows.
    fn watched<'a, T: HealthCheck + Send + 'a>(
        permit: Permit<'a, C>,
        answer: Answer<'a, T>,
    ) -> Answer<'a, T> {
        answer.map(move |answer| {
            permit.end(answer.health());
            answer
        })
    }
}

impl<S: Store, C: Clock> Store for BreakerStore<S, C> {
    fn decide<'a>(&'a self, call: Call<'a>) -> Answer<'a, Result<Decision, Error>> {
        match self.enter() {
            Ok(permit) => Self::watched(permit, self.inner.decide(call)),
            Err(refused) => Answer::ready(Err(self.not_asked(refused))),
        }
    }

    fn decide_many<'a>(
        &'a self,
        calls: &'a [Call<'a>],
    ) -> Answer<'a, Vec<Result<Decision, Error>>> {
        if calls.is_empty() {
            return self.inner.decide_many(calls);
        }
        match self.enter() {
            Ok(permit) => Self::watched(permit, self.inner.decide_many(calls)),
            Err(refused) => {
                Answer::ready(calls.iter().map(|_| Err(self.not_asked(refused))).collect())
            }
        }
    }

    fn now(&self) -> Answer<'_, Result<Timestamp, Error>> {
        match self.enter() {
            Ok(permit) => Self::watched(permit, self.inner.now()),
            Err(refused) => Answer::ready(Err(self.not_asked(refused))),
        }
    }

    fn ready(&self) -> Answer<'_, Result<(), Error>> {
        self.inner.ready()
    }

    fn answers_immediately(&self) -> bool {
        self.inner.answers_immediately()
    }

    fn batch_group(&self, call: &Call<'_>) -> Option<u64> {
        self.inner.batch_group(call)
    }

    fn supports(&self, policy: &Policy) -> Result<(), Error> {
        self.inner.supports(policy)
    }
}

/// Permission for one call. Dropped before its end, as when the call is cancelled, it frees its place and counts
/// neither as success nor as failure.
struct Permit<'a, C: Clock> {
    watch: &'a BreakerWatch<C>,
    ticket: Ticket,
    is_used: bool,
}

impl<C: Clock> Permit<'_, C> {
    fn end(mut self, health: Health<'_>) {
        let circuit = &self.watch.circuit;
        match health {
            Health::Alive => {
                if circuit.answered(self.ticket) {
                    #[cfg(feature = "tracing")]
                    events::closed();
                }
            }
            Health::Failing(error) => {
                if circuit.failed(self.ticket, self.watch.clock.now()) {
                    #[cfg(feature = "tracing")]
                    events::opened(error, circuit.settings().failures);
                    #[cfg(not(feature = "tracing"))]
                    let _ = error;
                }
            }
            Health::Unknown => return,
        }
        self.is_used = true;
    }
}

impl<C: Clock> Drop for Permit<'_, C> {
    fn drop(&mut self) {
        if !self.is_used {
            self.watch.circuit.release(self.ticket);
        }
    }
}

/// The health of the store that an answer shows.
#[derive(Debug, Clone, Copy)]
enum Health<'e> {
    Alive,
    Failing(&'e Error),
    /// Unknown: it may not have been called.
    Unknown,
}

/// An answer that shows the health of the store.
trait HealthCheck {
    fn health(&self) -> Health<'_>;
}

impl<T> HealthCheck for Result<T, Error> {
    fn health(&self) -> Health<'_> {
        match self {
            Ok(_) => Health::Alive,
            Err(error) => Health::of_error(error),
        }
    }
}

/// A batch is one round trip: with one answer the store is alive, and all failures count as one.
impl<T> HealthCheck for Vec<Result<T, Error>> {
    fn health(&self) -> Health<'_> {
        let states = || self.iter().map(HealthCheck::health);
        if states().any(|state| matches!(state, Health::Alive)) {
            return Health::Alive;
        }
        states().find(|state| matches!(state, Health::Failing(_))).unwrap_or(Health::Unknown)
    }
}

impl<'e> Health<'e> {
    fn of_error(error: &'e Error) -> Self {
        match error.kind() {
            ErrorKind::Timeout
            | ErrorKind::Unavailable
            | ErrorKind::ReadOnly
            | ErrorKind::Busy
            | ErrorKind::OutOfMemory
            | ErrorKind::UnsupportedServer
            | ErrorKind::Protocol => Self::Failing(error),
            // The server has answered; only this key or this id is wrong.
            ErrorKind::ForeignValue | ErrorKind::IdReused => Self::Alive,
            ErrorKind::UnknownHold
            | ErrorKind::AlreadySettled
            | ErrorKind::HoldLapsed
            | ErrorKind::TooManyHolds => Self::Alive,
            // The server has answered; the settings are wrong. An open circuit would turn this into an error
            // that a fallback hides.
            ErrorKind::Misconfigured => Self::Alive,
            ErrorKind::Unsupported
            | ErrorKind::InvalidCall
            | ErrorKind::InvalidConfig
            | ErrorKind::CircuitOpen
            | ErrorKind::TooManyWaiters
            | ErrorKind::WaitTooLong => Self::Unknown,
        }
    }
}
