//! A time limit for calls.

use std::time::Duration;

use tokio::runtime::Handle;

use crate::{Answer, Call, Decision, Error, ErrorKind, Policy, Store, Timestamp};

/// A store whose calls fail with [`ErrorKind::Timeout`] after a bound: see
/// [`StoreExt::timeout`](crate::StoreExt::timeout).
#[derive(Debug, Clone)]
pub struct TimeoutStore<S> {
    inner: S,
    bound: Duration,
}

impl<S> TimeoutStore<S> {
    pub(super) fn new(inner: S, bound: Duration) -> Self {
        Self { inner, bound }
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

    /// Returns an answer that is ready; for another one, sets a timer.
    fn bounded<'a, T: Send + 'a>(
        &self,
        answer: Answer<'a, T>,
        fail: impl FnOnce(Error) -> T + Send + 'a,
    ) -> Answer<'a, T> {
        let bound = self.bound;
        match answer.into_ready() {
            Ok(answer) => Answer::ready(answer),
            Err(later) => Answer::later(async move {
                // Without a runtime, a timer would panic.
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

impl<S: Store> Store for TimeoutStore<S> {
    fn decide<'a>(&'a self, call: Call<'a>) -> Answer<'a, Result<Decision, Error>> {
        self.bounded(self.inner.decide(call), Err)
    }

    fn decide_many<'a>(
        &'a self,
        calls: &'a [Call<'a>],
    ) -> Answer<'a, Vec<Result<Decision, Error>>> {
        self.bounded(self.inner.decide_many(calls), |error| {
            calls.iter().map(|_| Err(error.clone().with_context("in a batch"))).collect()
        })
    }

    fn now(&self) -> Answer<'_, Result<Timestamp, Error>> {
        self.bounded(self.inner.now(), Err)
    }

    fn ready(&self) -> Answer<'_, Result<(), Error>> {
        self.inner.ready()
    }

    // The bound applies to answers that have to be waited for.
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

fn no_runtime() -> Error {
    let message = "a timeout around a store that does not answer immediately needs a Tokio runtime with timers";
    Error::new(ErrorKind::Unsupported, message)
}

fn too_late(bound: Duration) -> Error {
    Error::new(ErrorKind::Timeout, format!("no answer within {bound:?}"))
}
