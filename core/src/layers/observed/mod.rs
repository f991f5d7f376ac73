//! Metrics and spans of a store: what it decides, and how long that takes.

#[cfg(feature = "metrics")]
mod policy_counters;
#[cfg(feature = "tracing")]
mod span;
#[cfg(feature = "metrics")]
mod store_metrics;

use crate::{Answer, Call, Decision, Error, Policy, Store, Timestamp};

/// A store whose calls are reported to metrics and spans: see [`StoreExt::observed`](crate::StoreExt::observed).
#[derive(Debug)]
pub struct ObservedStore<S> {
    inner: S,
    #[cfg(feature = "metrics")]
    metrics: store_metrics::StoreMetrics,
}

/// One call, or a batch.
#[derive(Debug, Clone, Copy)]
enum Calls<'a> {
    One(Call<'a>),
    Batch(&'a [Call<'a>]),
}

impl<'a> Calls<'a> {
    #[cfg(feature = "metrics")]
    fn as_slice(&self) -> &[Call<'a>] {
        match self {
            Self::One(call) => std::slice::from_ref(call),
            Self::Batch(calls) => calls,
        }
    }
}

/// The answer to one call, or to a batch.
trait Answers: Send {
    fn as_slice(&self) -> &[Result<Decision, Error>];
}

impl Answers for Result<Decision, Error> {
    fn as_slice(&self) -> &[Self] {
        std::slice::from_ref(self)
    }
}

impl Answers for Vec<Result<Decision, Error>> {
    fn as_slice(&self) -> &[Result<Decision, Error>] {
        self
    }
}

/// The metrics and the span of calls in flight.
struct Observation<'a> {
    #[cfg(feature = "metrics")]
    timer: store_metrics::CallTimer<'a>,
    #[cfg(feature = "tracing")]
    calls: Calls<'a>,
    #[cfg(feature = "tracing")]
    span: tracing::Span,
}

impl<'a> Observation<'a> {
    fn start<S>(store: &'a ObservedStore<S>, calls: Calls<'a>) -> Self {
        #[cfg(not(feature = "metrics"))]
        let _ = store;
        Self {
            #[cfg(feature = "metrics")]
            timer: store_metrics::CallTimer::start(&store.metrics, calls),
            #[cfg(feature = "tracing")]
            calls,
            #[cfg(feature = "tracing")]
            span: span::new(calls),
        }
    }

    /// Sends calls within the span.
    fn send<T>(&self, send: impl FnOnce() -> T) -> T {
        #[cfg(feature = "tracing")]
        let _within = self.span.enter();
        send()
    }

    /// Awaits the answer within the span.
    async fn answer_of<T>(&self, answer: Answer<'_, T>) -> T {
        #[cfg(feature = "tracing")]
        let answer = tracing::Instrument::instrument(answer, self.span.clone());
        answer.await
    }

    fn end(self, answers: &[Result<Decision, Error>]) {
        #[cfg(feature = "tracing")]
        span::record(&self.span, self.calls, answers);
        #[cfg(feature = "metrics")]
        self.timer.end(answers);
    }
}

impl<S> ObservedStore<S> {
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
}

impl<S: Store> ObservedStore<S> {
    pub(super) fn new(inner: S) -> Self {
        Self {
            inner,
            #[cfg(feature = "metrics")]
            metrics: store_metrics::StoreMetrics::default(),
        }
    }

    fn observe<'a, T: Answers + 'a>(
        &'a self,
        calls: Calls<'a>,
        send: impl FnOnce() -> Answer<'a, T>,
    ) -> Answer<'a, T> {
        let observation = Observation::start(self, calls);
        match observation.send(send).into_ready() {
            Ok(answer) => {
                observation.end(answer.as_slice());
                Answer::ready(answer)
            }
            Err(pending) => Answer::later(async move {
                let answer = observation.answer_of(pending).await;
                observation.end(answer.as_slice());
                answer
            }),
        }
    }
}

impl<S: Store> Store for ObservedStore<S> {
    fn decide<'a>(&'a self, call: Call<'a>) -> Answer<'a, Result<Decision, Error>> {
        self.observe(Calls::One(call), || self.inner.decide(call))
    }

    fn decide_many<'a>(
        &'a self,
        calls: &'a [Call<'a>],
    ) -> Answer<'a, Vec<Result<Decision, Error>>> {
        self.observe(Calls::Batch(calls), || self.inner.decide_many(calls))
    }

    fn now(&self) -> Answer<'_, Result<Timestamp, Error>> {
        self.inner.now().map(|time| {
            #[cfg(feature = "metrics")]
            if let Err(error) = &time {
                self.metrics.count_error(error);
            }
            time
        })
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
