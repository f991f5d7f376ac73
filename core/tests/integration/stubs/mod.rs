//! A store that fails when a test requires a failure, and that records its calls.
#![allow(clippy::unwrap_used, reason = "a helper of a test that fails panics, as the test does")]

use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use tidegate_core::{
    Answer, Call, Decision, Error, ErrorKind, ManualClock, Operation, Policy, Store, Timestamp,
};
use tidegate_testkit::ModelStore;

/// The behavior of a [`Stub`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(dead_code, reason = "each test needs some of them")]
pub(crate) enum Mood {
    Up,
    /// Answers each call with this error, immediately.
    Down(ErrorKind),
    /// Answers each call with this error, but not immediately.
    SlowlyDown(ErrorKind),
    /// Answers each call, but not immediately.
    Slow,
    /// Never answers a call.
    Silent,
}

/// A [`ModelStore`] that can fail on demand. All clones use one `ModelStore`.
#[derive(Debug, Clone)]
pub(crate) struct Stub(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    model: ModelStore,
    mood: Mutex<Mood>,
    calls: Mutex<Vec<Vec<Operation>>>,
    in_flight: AtomicUsize,
}

#[allow(dead_code, reason = "each test needs some of them")]
impl Stub {
    pub(crate) fn new(clock: &ManualClock) -> Self {
        Self(Arc::new(Inner {
            model: ModelStore::new(clock.clone()),
            mood: Mutex::new(Mood::Up),
            calls: Mutex::default(),
            in_flight: AtomicUsize::new(0),
        }))
    }

    pub(crate) fn set(&self, mood: Mood) {
        *self.0.mood.lock().unwrap() = mood;
    }

    /// Returns the calls that the store has received since this function was last called. Each
    /// element contains the operations of a call or a batch.
    pub(crate) fn take_calls(&self) -> Vec<Vec<Operation>> {
        std::mem::take(&mut self.0.calls.lock().unwrap())
    }

    /// Returns the number of calls that have no answer yet.
    pub(crate) fn in_flight(&self) -> usize {
        self.0.in_flight.load(SeqCst)
    }

    pub(crate) fn model(&self) -> &ModelStore {
        &self.0.model
    }

    fn answer<'a, T: Send + 'a>(
        &'a self,
        operations: Vec<Operation>,
        answer: impl FnOnce() -> Answer<'a, T> + Send + 'a,
        fail: impl Fn(Error) -> T + Send + 'a,
    ) -> Answer<'a, T> {
        self.0.calls.lock().unwrap().push(operations);
        let mood = *self.0.mood.lock().unwrap();
        match mood {
            Mood::Up => return answer(),
            Mood::Down(kind) => return Answer::ready(fail(Error::new(kind, "down"))),
            _ => {}
        }
        self.0.in_flight.fetch_add(1, SeqCst);
        let in_flight = InFlight(self);
        Answer::later(async move {
            let _in_flight = in_flight;
            tokio::task::yield_now().await;
            match mood {
                Mood::SlowlyDown(kind) => fail(Error::new(kind, "down")),
                Mood::Slow => answer().await,
                _ => pending().await,
            }
        })
    }
}

struct InFlight<'a>(&'a Stub);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.0.in_flight.fetch_sub(1, SeqCst);
    }
}

impl Store for Stub {
    fn decide<'a>(&'a self, call: Call<'a>) -> Answer<'a, Result<Decision, Error>> {
        self.answer(vec![call.operation], move || self.0.model.decide(call), Err)
    }

    fn decide_many<'a>(
        &'a self,
        calls: &'a [Call<'a>],
    ) -> Answer<'a, Vec<Result<Decision, Error>>> {
        let operations = calls.iter().map(|call| call.operation).collect();
        self.answer(
            operations,
            || self.0.model.decide_many(calls),
            |error| calls.iter().map(|_| Err(Error::new(error.kind(), "down"))).collect(),
        )
    }

    fn now(&self) -> Answer<'_, Result<Timestamp, Error>> {
        self.answer(vec![], || self.0.model.now(), Err)
    }

    /// Returns `true` if the store currently answers immediately.
    fn answers_immediately(&self) -> bool {
        matches!(*self.0.mood.lock().unwrap(), Mood::Up | Mood::Down(_))
    }

    fn supports(&self, policy: &Policy) -> Result<(), Error> {
        if policy.name() == "unsupported" {
            return Err(Error::new(ErrorKind::Unsupported, "for no reason"));
        }
        Ok(())
    }
}
