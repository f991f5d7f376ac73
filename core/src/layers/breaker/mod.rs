//! The circuit breaker: if a store keeps failing, the layer stops calling the store for a while.
//!
//! Tidegate has its own circuit breaker, because no existing crate has the required behavior:
//!
//! * failsafe 1.3, recloser 1.4 and reliakit-circuit 1.1 send all calls as soon as the circuit is
//!   half open. failsafe and reliakit-circuit also need a lock for each call.
//! * tower-circuitbreaker 0.2 depends on tower.
//! * failsafe, recloser, reliakit-circuit and tower-circuitbreaker continue to count a cancelled
//!   probe as a probe in flight.

mod circuit;
mod config;
mod meter;
mod state;

use std::sync::Arc;
use std::time::Duration;

use circuit::{Circuit, Refusal, Ticket};
pub use config::Breaker;
pub use state::CircuitState;

use super::layered::{Layer, Layered};
#[cfg(feature = "tracing")]
use crate::telemetry::events;
use crate::{Answer, Call, Clock, Decision, Error, ErrorKind, Store, SystemClock, Timestamp};

/// A store with a circuit breaker: see [`StoreExt::breaker`](super::StoreExt::breaker).
pub type BreakerStore<S, C = SystemClock> = Layered<BreakerLayer<C>, S>;

/// The layer of a [`BreakerStore`].
#[derive(Debug)]
pub struct BreakerLayer<C = SystemClock> {
    watch: BreakerWatch<C>,
}

/// A handle that shows the state of a circuit, for example for a metric. All clones of a handle
/// show the same circuit.
#[derive(Debug, Clone)]
pub struct BreakerWatch<C = SystemClock> {
    circuit: Arc<Circuit>,
    clock: C,
}

impl<C: Clock> BreakerWatch<C> {
    /// Returns the state of the circuit.
    #[must_use]
    pub fn state(&self) -> CircuitState {
        self.circuit.state(|| self.clock.now())
    }

    /// Returns the number of times that the circuit has opened. A failed probe opens the circuit
    /// again, and also counts.
    #[must_use]
    pub fn times_opened(&self) -> u64 {
        self.circuit.times_opened()
    }
}

impl<S, C: Clock> BreakerStore<S, C> {
    /// Returns the state of the circuit.
    #[must_use]
    pub fn state(&self) -> CircuitState {
        self.as_layer().watch.state()
    }

    /// Returns a handle that shows the state of the circuit. The handle stays valid when the store
    /// is moved into other layers.
    #[must_use]
    pub fn watch(&self) -> BreakerWatch<C>
    where
        C: Clone,
    {
        self.as_layer().watch.clone()
    }
}

impl<C: Clock> BreakerLayer<C> {
    pub(super) fn new(breaker: Breaker<C>) -> Self {
        let circuit = Arc::new(Circuit::new(breaker.settings));
        Self { watch: BreakerWatch { circuit, clock: breaker.clock } }
    }

    fn enter(&self) -> Result<Permit<'_, C>, Refusal> {
        let watch = &self.watch;
        let ticket = watch.circuit.enter(|| watch.clock.now())?;
        Ok(Permit { watch, ticket, is_used: false })
    }

    fn refusal_error(&self, refusal: Refusal) -> Error {
        let failures = self.watch.circuit.settings().failures;
        let until = match refusal {
            Refusal::Open(micros) => format!("for another {:?}", Duration::from_micros(micros)),
            Refusal::Probing => "until the probe in flight is answered".to_owned(),
        };
        let message =
            format!("the store failed {failures} times in a row; it is not called {until}");
        Error::new(ErrorKind::CircuitOpen, message)
    }

    fn send<'a, T: HealthCheck + Send + 'a>(
        &'a self,
        send: impl FnOnce() -> Answer<'a, T>,
        fail: impl FnOnce(Error) -> T,
    ) -> Answer<'a, T> {
        match self.enter() {
            Ok(permit) => send().inspect(move |answer| permit.end(answer.health())),
            Err(refusal) => Answer::ready(fail(self.refusal_error(refusal))),
        }
    }
}

impl<S: Store, C: Clock> Layer<S> for BreakerLayer<C> {
    const MAY_WAIT: bool = false;

    fn decide<'a>(&'a self, inner: &'a S, call: Call<'a>) -> Answer<'a, Result<Decision, Error>> {
        self.send(|| inner.decide(call), Err)
    }

    fn decide_many<'a>(
        &'a self,
        inner: &'a S,
        calls: &'a [Call<'a>],
    ) -> Answer<'a, Vec<Result<Decision, Error>>> {
        if calls.is_empty() {
            return inner.decide_many(calls);
        }
        self.send(
            || inner.decide_many(calls),
            |error| calls.iter().map(|_| Err(error.clone())).collect(),
        )
    }

    fn now<'a>(&'a self, inner: &'a S) -> Answer<'a, Result<Timestamp, Error>> {
        self.send(|| inner.now(), Err)
    }
}

/// The permission to send one call to the store. If the call is cancelled, `drop` returns the
/// permission, and the call counts neither as a success nor as a failure.
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

#[derive(Debug, Clone, Copy)]
enum Health<'e> {
    Alive,
    Failing(&'e Error),
    Unknown,
}

trait HealthCheck {
    fn health(&self) -> Health<'_>;
}

impl<T> HealthCheck for Result<T, Error> {
    fn health(&self) -> Health<'_> {
        match self {
            Ok(_) => Health::Alive,
            Err(error) => Health::from_error(error),
        }
    }
}

/// A batch is one round trip to the store. An answer to any call of the batch shows that the store
/// is alive. If all calls of the batch fail, the breaker counts one failure.
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
    fn from_error(error: &'e Error) -> Self {
        match error.kind() {
            ErrorKind::Timeout
            | ErrorKind::Unavailable
            | ErrorKind::ReadOnly
            | ErrorKind::Busy
            | ErrorKind::OutOfMemory
            | ErrorKind::UnsupportedServer
            | ErrorKind::Protocol => Self::Failing(error),
            // An error about one key or one id is an answer of the server, so the store is alive.
            ErrorKind::ForeignValue | ErrorKind::IdReused => Self::Alive,
            ErrorKind::UnknownHold
            | ErrorKind::AlreadySettled
            | ErrorKind::HoldLapsed
            | ErrorKind::TooManyHolds
            | ErrorKind::TooManyGrants => Self::Alive,
            // `Misconfigured` is an answer of the server, so the store is alive. If this error
            // opened the circuit, callers would get `CircuitOpen` instead, and a fallback would
            // hide the wrong settings.
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
