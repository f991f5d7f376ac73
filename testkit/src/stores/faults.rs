//! A layer that makes calls fail, so that tests can check the behavior on failures.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use proptest::prelude::*;
use tidegate_core::layers::{Layer, Layered};
use tidegate_core::{Answer, Call, Decision, Error, ErrorKind, OwnedCall, Store};
use tokio::sync::oneshot;

use super::with_context::decide_one_by_one;

/// The fault of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The call has no fault.
    None,
    /// The call fails with this error, and the store does not execute the call.
    Before(ErrorKind),
    /// The store executes the call, but the answer is lost: the caller gets this error instead.
    After(ErrorKind),
    /// The store executes the call immediately. The answer arrives at the next call of
    /// [`Faults::deliver`].
    Late,
    /// The store executes the call at the next call of [`Faults::deliver`], even if the caller is
    /// cancelled before that.
    Delayed,
}

/// A store whose calls fail according to a plan. The documentation of [`Faults`] explains the plan.
pub type FaultyStore<S> = Layered<Faults, S>;

/// A [`Layer`] whose calls fail according to a plan.
///
/// The first fault of the plan applies to the first call, the second fault to the second call, and
/// so on. After the last fault, no call fails. In a batch, each call uses its own fault of the
/// plan.
///
/// ```
/// use tidegate_core::{Call, Charge, ErrorKind, ManualClock, Store, StoreExt};
/// use tidegate_testkit::ModelStore;
/// use tidegate_testkit::faults::{Fault, Faults};
///
/// let store = ModelStore::new(ManualClock::default());
/// let store = store.layer(Faults::new(vec![Fault::Before(ErrorKind::Busy)]));
/// let policy = "sliding-log 1/1m".parse().unwrap();
/// let charges = [Charge::new(&policy, "alice")];
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// assert!(store.decide(Call::acquire(&charges)).await.is_err());
/// assert!(store.decide(Call::acquire(&charges)).await.unwrap().is_allowed());
/// assert_eq!(store.as_layer().calls(), 2);
/// # });
/// ```
#[derive(Debug)]
pub struct Faults(Mutex<State>);

#[derive(Debug)]
struct State {
    plan: VecDeque<Fault>,
    calls: usize,
    in_flight: Vec<Message>,
}

/// A call or an answer whose delivery is delayed.
#[derive(Debug)]
enum Message {
    /// A call that the store has not executed yet, and the channel to the caller.
    Call(OwnedCall, oneshot::Sender<Result<Decision, Error>>),
    /// An answer of the store, and the channel to the caller.
    Answer(Result<Decision, Error>, oneshot::Sender<Result<Decision, Error>>),
}

impl Faults {
    /// Creates a layer whose calls fail according to `plan`.
    #[must_use]
    pub fn new(plan: Vec<Fault>) -> Self {
        Self(Mutex::new(State { plan: plan.into(), calls: 0, in_flight: vec![] }))
    }

    /// Returns the number of calls that the layer has received so far.
    pub fn calls(&self) -> usize {
        self.state().calls
    }

    /// Returns the number of calls and answers that wait to be delivered.
    pub fn in_flight(&self) -> usize {
        self.state().in_flight.len()
    }

    /// Delivers all waiting calls and answers of a store, in the order in which they were sent.
    pub async fn deliver<S: Store>(store: &FaultyStore<S>) {
        let messages = std::mem::take(&mut store.as_layer().state().in_flight);
        for message in messages {
            // Sending fails if the caller has been cancelled, which is not an error.
            let _ = match message {
                Message::Answer(answer, caller) => caller.send(answer),
                Message::Call(call, caller) => {
                    caller.send(store.inner().decide(call.as_call()).await)
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
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn fail(
        &self,
        inner: &impl Store,
        fault: Fault,
        call: Call<'_>,
    ) -> Result<Decision, Error> {
        let failed = |kind| Err(Error::new(kind, format!("planned: {fault:?}")));
        let (sender, receiver) = oneshot::channel();
        let message = match fault {
            Fault::None => return inner.decide(call).await,
            Fault::Before(kind) => return failed(kind),
            Fault::After(kind) => {
                let _ = inner.decide(call).await;
                return failed(kind);
            }
            Fault::Late => Message::Answer(inner.decide(call).await, sender),
            Fault::Delayed => Message::Call(OwnedCall::from(call), sender),
        };
        self.state().in_flight.push(message);
        receiver.await.unwrap_or_else(|_| failed(ErrorKind::Unavailable))
    }
}

impl<S: Store> Layer<S> for Faults {
    const MAY_WAIT: bool = true;

    fn decide<'a>(&'a self, inner: &'a S, call: Call<'a>) -> Answer<'a, Result<Decision, Error>> {
        match self.next_fault() {
            Fault::None => inner.decide(call),
            fault => Answer::later(self.fail(inner, fault, call)),
        }
    }

    fn decide_many<'a>(
        &'a self,
        inner: &'a S,
        calls: &'a [Call<'a>],
    ) -> Answer<'a, Vec<Result<Decision, Error>>> {
        decide_one_by_one(self, inner, calls)
    }
}

/// Returns a strategy for plans of faults. The number of faults in a plan is in the range `calls`.
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
        // Some errors do not say whether the call was charged. Such an error can occur before or
        // after the store executes the call.
        1 => after.clone().prop_map(Fault::Before),
        1 => after.prop_map(Fault::After),
        1 => Just(Fault::Late),
        1 => Just(Fault::Delayed),
    ];
    prop::collection::vec(fault, calls)
}
