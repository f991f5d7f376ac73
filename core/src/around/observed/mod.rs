//! A store that is seen from outside: it tells what it decides, and how long that takes.

#[cfg(feature = "metrics")]
pub mod names;
#[cfg(feature = "metrics")]
mod policies;
#[cfg(feature = "tracing")]
mod span;
#[cfg(feature = "metrics")]
mod tally;

use crate::{Answer, Call, Decision, Error, Policy, Store, Timestamp};

/// A store that tells what it decides; made by [`StoreExt::observed`](crate::StoreExt::observed), which
/// says more.
#[derive(Debug)]
pub struct Observed<S> {
    inner: S,
    #[cfg(feature = "metrics")]
    tally: tally::Tally,
}

/// What was asked of the store.
#[derive(Debug, Clone, Copy)]
enum Asked<'a> {
    One(Call<'a>),
    Many(&'a [Call<'a>]),
}

impl<'a> Asked<'a> {
    #[cfg(feature = "metrics")]
    fn calls(&self) -> &[Call<'a>] {
        match self {
            Self::One(call) => std::slice::from_ref(call),
            Self::Many(calls) => calls,
        }
    }
}

/// What it answers: to one call, or to many.
trait Answers: Send {
    fn each(&self) -> &[Result<Decision, Error>];
}

impl Answers for Result<Decision, Error> {
    fn each(&self) -> &[Self] {
        std::slice::from_ref(self)
    }
}

impl Answers for Vec<Result<Decision, Error>> {
    fn each(&self) -> &[Result<Decision, Error>] {
        self
    }
}

/// What is under way.
struct Watch<'a> {
    #[cfg(feature = "metrics")]
    timed: tally::Timed<'a>,
    #[cfg(feature = "tracing")]
    asked: Asked<'a>,
    #[cfg(feature = "tracing")]
    span: tracing::Span,
}

impl<'a> Watch<'a> {
    fn start<S>(store: &'a Observed<S>, asked: Asked<'a>) -> Self {
        #[cfg(not(feature = "metrics"))]
        let _ = store;
        Self {
            #[cfg(feature = "metrics")]
            timed: tally::Timed::start(&store.tally, asked),
            #[cfg(feature = "tracing")]
            asked,
            #[cfg(feature = "tracing")]
            span: span::of(asked),
        }
    }

    /// Asks the store, within the span.
    fn ask<T>(&self, ask: impl FnOnce() -> T) -> T {
        #[cfg(feature = "tracing")]
        let _within = self.span.enter();
        ask()
    }

    /// Waits for the store, within the span.
    async fn wait_for<T>(&self, answer: Answer<'_, T>) -> T {
        #[cfg(feature = "tracing")]
        let answer = tracing::Instrument::instrument(answer, self.span.clone());
        answer.await
    }

    fn end(self, answers: &[Result<Decision, Error>]) {
        #[cfg(feature = "tracing")]
        span::record(&self.span, self.asked, answers);
        #[cfg(feature = "metrics")]
        self.timed.end(answers);
    }
}

impl<S: Store> Observed<S> {
    pub(super) fn new(inner: S) -> Self {
        Self {
            inner,
            #[cfg(feature = "metrics")]
            tally: tally::Tally::default(),
        }
    }

    fn watch<'a, T: Answers + 'a>(
        &'a self,
        asked: Asked<'a>,
        ask: impl FnOnce() -> Answer<'a, T>,
    ) -> Answer<'a, T> {
        let watch = Watch::start(self, asked);
        match watch.ask(ask).into_ready() {
            Ok(answer) => {
                watch.end(answer.each());
                Answer::ready(answer)
            }
            Err(later) => Answer::later(async move {
                let answer = watch.wait_for(later).await;
                watch.end(answer.each());
                answer
            }),
        }
    }

    fn note(&self, time: &Result<Timestamp, Error>) {
        #[cfg(feature = "metrics")]
        if let Err(error) = time {
            self.tally.error(error);
        }
        #[cfg(not(feature = "metrics"))]
        let _ = time;
    }
}

impl<S: Store> Store for Observed<S> {
    fn decide<'a>(&'a self, call: Call<'a>) -> Answer<'a, Result<Decision, Error>> {
        self.watch(Asked::One(call), || self.inner.decide(call))
    }

    fn decide_many<'a>(
        &'a self,
        calls: &'a [Call<'a>],
    ) -> Answer<'a, Vec<Result<Decision, Error>>> {
        self.watch(Asked::Many(calls), || self.inner.decide_many(calls))
    }

    fn now(&self) -> Answer<'_, Result<Timestamp, Error>> {
        match self.inner.now().into_ready() {
            Ok(time) => {
                self.note(&time);
                Answer::ready(time)
            }
            Err(later) => Answer::later(async move {
                let time = later.await;
                self.note(&time);
                time
            }),
        }
    }

    fn ready(&self) -> Answer<'_, Result<(), Error>> {
        self.inner.ready()
    }

    fn supports(&self, policy: &Policy) -> Result<(), Error> {
        self.inner.supports(policy)
    }
}
