//! Stores that fail on purpose, around any store.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use proptest::prelude::*;
use tidegate_core::no_semver::OwnedCall;
use tidegate_core::{Answer, Call, Decision, Error, ErrorKind, Policy, Store, Timestamp};
use tokio::sync::oneshot;

/// What goes wrong with a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    None,
    /// It fails before anything is written.
    Before(ErrorKind),
    /// It is carried out, and the answer is lost.
    After(ErrorKind),
    /// It is carried out at once, and answered at the next [`FaultyStore::deliver`].
    Late,
    /// It is carried out, and answered, at the next [`FaultyStore::deliver`]: even if the caller has
    /// gone away by then.
    Delayed,
}

/// A store whose calls fail by a plan: the first call as the first entry says, and so on; after the
/// last, none fails.
///
/// ```
/// use tidegate_core::{Call, Charge, ErrorKind, ManualClock, Store};
/// use tidegate_testkit::ModelStore;
/// use tidegate_testkit::faults::{Fault, FaultyStore};
///
/// let store = ModelStore::new(ManualClock::default());
/// let store = FaultyStore::new(store, vec![Fault::Before(ErrorKind::Busy)]);
/// let policy = "sliding-log 1/1m".parse().unwrap();
/// let charges = [Charge::new(&policy, "alice")];
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// assert!(store.decide(Call::acquire(&charges)).await.is_err());
/// assert!(store.decide(Call::acquire(&charges)).await.unwrap().is_allowed());
/// # });
/// ```
#[derive(Debug)]
pub struct FaultyStore<S> {
    inner: S,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    plan: VecDeque<Fault>,
    calls: usize,
    on_the_way: Vec<Letter>,
}

/// What is delivered later.
#[derive(Debug)]
enum Letter {
    /// A call, and the channel to its caller.
    Call(OwnedCall, oneshot::Sender<Result<Decision, Error>>),
    /// An answer, and the channel to its caller.
    Answer(Result<Decision, Error>, oneshot::Sender<Result<Decision, Error>>),
}

impl<S: Store> FaultyStore<S> {
    /// A store over `inner` whose calls fail as `plan` says.
    pub fn new(inner: S, plan: Vec<Fault>) -> Self {
        Self { inner, state: Mutex::new(State { plan: plan.into(), calls: 0, on_the_way: vec![] }) }
    }

    /// How many calls were made so far.
    pub fn calls(&self) -> usize {
        self.state().calls
    }

    /// How many calls and answers wait to be delivered.
    pub fn on_the_way(&self) -> usize {
        self.state().on_the_way.len()
    }

    /// Delivers the calls and answers that are on the way, in the order in which they were sent.
    pub async fn deliver(&self) {
        let letters = std::mem::take(&mut self.state().on_the_way);
        for letter in letters {
            // The caller may have gone: that is not an error here.
            let _ = match letter {
                Letter::Answer(answer, to) => to.send(answer),
                Letter::Call(call, to) => {
                    let charges = call.charges();
                    to.send(self.inner.decide(call.call(&charges)).await)
                }
            };
        }
    }

    fn next_fault(&self) -> Fault {
        let mut state = self.state();
        state.calls += 1;
        state.plan.pop_front().unwrap_or(Fault::None)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn fail(&self, fault: Fault, call: Call<'_>) -> Result<Decision, Error> {
        let failed = |kind| Err(Error::new(kind, format!("planned: {fault:?}")));
        let (sender, receiver) = oneshot::channel();
        let letter = match fault {
            Fault::None => return self.inner.decide(call).await,
            Fault::Before(kind) => return failed(kind),
            Fault::After(kind) => {
                let _ = self.inner.decide(call).await;
                return failed(kind);
            }
            Fault::Late => Letter::Answer(self.inner.decide(call).await, sender),
            Fault::Delayed => Letter::Call(OwnedCall::new(&call), sender),
        };
        self.state().on_the_way.push(letter);
        receiver.await.unwrap_or_else(|_| failed(ErrorKind::Unavailable))
    }
}

impl<S: Store> Store for FaultyStore<S> {
    fn decide<'a>(&'a self, call: Call<'a>) -> Answer<'a, Result<Decision, Error>> {
        match self.next_fault() {
            Fault::None => self.inner.decide(call),
            fault => Answer::later(self.fail(fault, call)),
        }
    }

    fn now(&self) -> Answer<'_, Result<Timestamp, Error>> {
        self.inner.now()
    }

    fn supports(&self, policy: &Policy) -> Result<(), Error> {
        self.inner.supports(policy)
    }
}

/// Plans of so many calls.
pub fn plan(calls: Range<usize>) -> impl Strategy<Value = Vec<Fault>> {
    let before = prop::sample::select(vec![
        ErrorKind::ReadOnly,
        ErrorKind::Busy,
        ErrorKind::OutOfMemory,
        ErrorKind::ForeignValue,
    ]);
    let after =
        prop::sample::select(vec![ErrorKind::Timeout, ErrorKind::Unavailable, ErrorKind::Protocol]);
    let fault = prop_oneof![
        3 => Just(Fault::None),
        1 => before.prop_map(Fault::Before),
        // An error that leaves open whether it was charged may also come before the commit.
        1 => after.clone().prop_map(Fault::Before),
        1 => after.prop_map(Fault::After),
        1 => Just(Fault::Late),
        1 => Just(Fault::Delayed),
    ];
    prop::collection::vec(fault, calls)
}
