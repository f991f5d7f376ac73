//! A store that goes down when told to, and remembers what it was asked.
#![allow(clippy::unwrap_used, reason = "a helper of a test that fails panics, as the test does")]

use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use tidegate_core::{
    Answer, Call, Decision, Error, ErrorKind, ManualClock, Operation, Policy, Store, Timestamp,
};
use tidegate_testkit::ModelStore;

/// How a [`Stub`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(dead_code, reason = "each test needs some of them")]
pub(crate) enum Mood {
    Up,
    /// Answers each call with this error, at once.
    Down(ErrorKind),
    /// Answers each call with this error, but not at once.
    SlowlyDown(ErrorKind),
    /// Answers, but not at once.
    Slow,
    /// Never answers.
    Silent,
}

/// A model store that can be put down. Clones are the same store.
#[derive(Debug, Clone)]
pub(crate) struct Stub(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    model: ModelStore,
    mood: Mutex<Mood>,
    asked: Mutex<Vec<Vec<Operation>>>,
    on_the_way: AtomicUsize,
}

#[allow(dead_code, reason = "each test needs some of them")]
impl Stub {
    pub(crate) fn new(clock: &ManualClock) -> Self {
        Self(Arc::new(Inner {
            model: ModelStore::new(clock.clone()),
            mood: Mutex::new(Mood::Up),
            asked: Mutex::default(),
            on_the_way: AtomicUsize::new(0),
        }))
    }

    pub(crate) fn set(&self, mood: Mood) {
        *self.0.mood.lock().unwrap() = mood;
    }

    /// What was asked since this was last called: the operations of each call or batch.
    pub(crate) fn asked(&self) -> Vec<Vec<Operation>> {
        std::mem::take(&mut self.0.asked.lock().unwrap())
    }

    /// How many answers are being waited for.
    pub(crate) fn on_the_way(&self) -> usize {
        self.0.on_the_way.load(SeqCst)
    }

    pub(crate) fn model(&self) -> &ModelStore {
        &self.0.model
    }

    fn answer<'a, T: Send + 'a>(
        &'a self,
        asked: Vec<Operation>,
        answer: impl FnOnce() -> Answer<'a, T> + Send + 'a,
        fail: impl Fn(Error) -> T + Send + 'a,
    ) -> Answer<'a, T> {
        self.0.asked.lock().unwrap().push(asked);
        let mood = *self.0.mood.lock().unwrap();
        match mood {
            Mood::Up => return answer(),
            Mood::Down(kind) => return Answer::ready(fail(Error::new(kind, "down"))),
            _ => {}
        }
        self.0.on_the_way.fetch_add(1, SeqCst);
        let on_the_way = OnTheWay(self);
        Answer::later(async move {
            let _on_the_way = on_the_way;
            tokio::task::yield_now().await;
            match mood {
                Mood::SlowlyDown(kind) => fail(Error::new(kind, "down")),
                Mood::Slow => answer().await,
                _ => pending().await,
            }
        })
    }
}

struct OnTheWay<'a>(&'a Stub);

impl Drop for OnTheWay<'_> {
    fn drop(&mut self) {
        self.0.0.on_the_way.fetch_sub(1, SeqCst);
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
        let asked = calls.iter().map(|call| call.operation).collect();
        self.answer(
            asked,
            || self.0.model.decide_many(calls),
            |error| calls.iter().map(|_| Err(Error::new(error.kind(), "down"))).collect(),
        )
    }

    fn now(&self) -> Answer<'_, Result<Timestamp, Error>> {
        self.answer(vec![], || self.0.model.now(), Err)
    }

    /// In its mood of now.
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
