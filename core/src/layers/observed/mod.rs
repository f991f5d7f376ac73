//! The layer that reports the decisions of a store, and their latency, as metrics and spans.

mod calls;
#[cfg(feature = "metrics")]
mod policy_counters;
#[cfg(feature = "tracing")]
mod span;
#[cfg(feature = "metrics")]
mod store_metrics;

use self::calls::{Answers, Calls};
use super::layered::{Layer, Layered};
#[cfg(feature = "metrics")]
use crate::Timestamp;
use crate::{Answer, Call, Decision, Error, Store};

/// A store that reports its calls as metrics and spans: see
/// [`StoreExt::observed`](super::StoreExt::observed).
pub type ObservedStore<S> = Layered<ObservedLayer, S>;

/// The layer of an [`ObservedStore`].
#[derive(Debug)]
pub struct ObservedLayer {
    #[cfg(feature = "metrics")]
    metrics: store_metrics::StoreMetrics,
}

struct Observation<'a> {
    #[cfg(feature = "metrics")]
    timer: store_metrics::CallTimer<'a>,
    #[cfg(feature = "tracing")]
    calls: Calls<'a>,
    #[cfg(feature = "tracing")]
    span: tracing::Span,
}

impl<'a> Observation<'a> {
    #[cfg_attr(
        not(feature = "metrics"),
        expect(unused_variables, reason = "the layer has only metrics")
    )]
    fn start(layer: &'a ObservedLayer, calls: Calls<'a>) -> Self {
        Self {
            #[cfg(feature = "metrics")]
            timer: store_metrics::CallTimer::start(&layer.metrics, calls),
            #[cfg(feature = "tracing")]
            calls,
            #[cfg(feature = "tracing")]
            span: span::new(calls),
        }
    }

    fn send<T>(&self, send: impl FnOnce() -> T) -> T {
        #[cfg(feature = "tracing")]
        let _within = self.span.enter();
        send()
    }

    async fn answer_in_span<T>(&self, answer: Answer<'_, T>) -> T {
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

impl ObservedLayer {
    pub(super) fn new() -> Self {
        Self {
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
                let answer = observation.answer_in_span(pending).await;
                observation.end(answer.as_slice());
                answer
            }),
        }
    }
}

impl<S: Store> Layer<S> for ObservedLayer {
    const MAY_WAIT: bool = false;

    fn decide<'a>(&'a self, inner: &'a S, call: Call<'a>) -> Answer<'a, Result<Decision, Error>> {
        self.observe(Calls::One(call), || inner.decide(call))
    }

    fn decide_many<'a>(
        &'a self,
        inner: &'a S,
        calls: &'a [Call<'a>],
    ) -> Answer<'a, Vec<Result<Decision, Error>>> {
        self.observe(Calls::Batch(calls), || inner.decide_many(calls))
    }

    #[cfg(feature = "metrics")]
    fn now<'a>(&'a self, inner: &'a S) -> Answer<'a, Result<Timestamp, Error>> {
        inner.now().inspect(|time| {
            if let Err(error) = time {
                self.metrics.count_error(error);
            }
        })
    }
}
