//! The layer that limits the duration of calls.

use std::time::Duration;

use tokio::runtime::Handle;

use super::layered::{Layer, Layered};
use crate::{Answer, Call, Decision, Error, ErrorKind, Store, Timestamp};

/// A store with a maximum duration of each call. A longer call fails with [`ErrorKind::Timeout`]:
/// see [`StoreExt::timeout`](super::StoreExt::timeout).
pub type TimeoutStore<S> = Layered<TimeoutLayer, S>;

/// The layer of a [`TimeoutStore`].
#[derive(Debug, Clone)]
pub struct TimeoutLayer {
    bound: Duration,
}

impl TimeoutLayer {
    pub(super) fn new(bound: Duration) -> Self {
        Self { bound }
    }

    /// Returns the answer unchanged if it is ready. If not, returns an answer that becomes a
    /// timeout error after the maximum duration of a call.
    fn bounded<'a, T: Send + 'a>(
        &self,
        answer: Answer<'a, T>,
        fail: impl FnOnce(Error) -> T + Send + 'a,
    ) -> Answer<'a, T> {
        let bound = self.bound;
        match answer.into_ready() {
            Ok(answer) => Answer::ready(answer),
            Err(later) => Answer::later(async move {
                // Without a Tokio runtime, a timer would panic.
                if Handle::try_current().is_err() {
                    return fail(no_runtime());
                }
                match tokio::time::timeout(bound, later).await {
                    Ok(answer) => answer,
                    Err(_) => fail(too_late(bound)),
                }
            }),
        }
    }
}

impl<S: Store> Layer<S> for TimeoutLayer {
    const MAY_WAIT: bool = false;

    fn decide<'a>(&'a self, inner: &'a S, call: Call<'a>) -> Answer<'a, Result<Decision, Error>> {
        self.bounded(inner.decide(call), Err)
    }

    fn decide_many<'a>(
        &'a self,
        inner: &'a S,
        calls: &'a [Call<'a>],
    ) -> Answer<'a, Vec<Result<Decision, Error>>> {
        self.bounded(inner.decide_many(calls), |error| {
            calls.iter().map(|_| Err(error.clone().with_context("in a batch"))).collect()
        })
    }

    fn now<'a>(&'a self, inner: &'a S) -> Answer<'a, Result<Timestamp, Error>> {
        self.bounded(inner.now(), Err)
    }
}

fn no_runtime() -> Error {
    let message = "a timeout around a store that does not answer immediately needs a Tokio runtime with timers";
    Error::new(ErrorKind::Unsupported, message)
}

fn too_late(bound: Duration) -> Error {
    Error::new(ErrorKind::Timeout, format!("no answer within {bound:?}"))
}
