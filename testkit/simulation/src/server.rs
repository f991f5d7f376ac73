//! The server of a simulation. Its store decides each call when the call arrives.

use std::fmt;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::task::{Context, Poll, Waker};

use tidegate_core::{
    Answer, Clock, Decision, Error, ErrorKind, OwnedCall, Policy, Store, Timestamp,
};

use super::clock::SimulatedClock;

/// The server of a simulation. This trait hides the type of the server's store.
pub(super) trait Server: fmt::Debug + Send + Sync {
    fn execute(&self, calls: &[OwnedCall]) -> Vec<Result<Decision, Error>>;
    fn is_away(&self) -> bool;
    fn now(&self) -> Timestamp;
    fn supports(&self, policy: &Policy) -> Result<(), Error>;
}

#[derive(Debug)]
pub(super) struct StoreServer<S> {
    pub(super) store: S,
    pub(super) clock: SimulatedClock,
    pub(super) is_away: AtomicBool,
}

impl<S: Store> Server for StoreServer<S> {
    fn execute(&self, calls: &[OwnedCall]) -> Vec<Result<Decision, Error>> {
        let calls: Vec<_> = calls.iter().map(OwnedCall::as_call).collect();
        match &calls[..] {
            [call] => vec![ready(self.store.decide(*call)).unwrap_or_else(|| Err(not_ready()))],
            calls => ready(self.store.decide_many(calls))
                .unwrap_or_else(|| calls.iter().map(|_| Err(not_ready())).collect()),
        }
    }

    fn is_away(&self) -> bool {
        self.is_away.load(SeqCst)
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn supports(&self, policy: &Policy) -> Result<(), Error> {
        self.store.supports(policy)
    }
}

/// Returns the output of an answer if the answer is ready, and `None` otherwise.
fn ready<T>(answer: Answer<'_, T>) -> Option<T> {
    match pin!(answer).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => Some(answer),
        Poll::Pending => None,
    }
}

fn not_ready() -> Error {
    let message = "the store of a simulated server must answer immediately, as stores in memory do";
    Error::new(ErrorKind::Unsupported, message)
}
