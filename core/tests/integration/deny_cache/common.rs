//! A store that counts and fails by a plan, behind a deny cache.

use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tidegate_core::layers::DenyCacheStore;
use tidegate_core::{
    Answer, Call, Charge, Decision, DenyCache, Error, ManualClock, Operation, Policy, Store,
    StoreExt, Timestamp,
};
use tidegate_testkit::ModelStore;
use tidegate_testkit::faults::{Fault, Faults, FaultyStore};

pub(crate) type Inner = FaultyStore<Arc<ModelStore>>;

/// A cache around a store, and all that one needs to look behind it.
pub(crate) struct Bench {
    pub(crate) store: DenyCacheStore<Inner, ManualClock>,
    pub(crate) model: Arc<ModelStore>,
    pub(crate) hand: ManualClock,
}

pub(crate) const START: u64 = 1_790_000_000_000_123;

impl Bench {
    pub(crate) fn new() -> Self {
        Self::with(DenyCache::new(), vec![])
    }

    /// Calls fail as planned, the first as the first says, and so on.
    pub(crate) fn failing(plan: Vec<Fault>) -> Self {
        Self::with(DenyCache::new(), plan)
    }

    pub(crate) fn with(cache: DenyCache, plan: Vec<Fault>) -> Self {
        let hand = ManualClock::new(Timestamp::from_micros(START));
        let model = Arc::new(ModelStore::keeping_all(hand.clone()));
        let inner = Arc::clone(&model).layer(Faults::new(plan));
        let store = inner.deny_cache(cache.max_bytes(1 << 18).clock(hand.clone()));
        Self { store, model, hand }
    }

    /// How often the store was asked.
    pub(crate) fn asked(&self) -> usize {
        self.store.inner().as_layer().calls()
    }

    pub(crate) fn advance(&self, micros: u64) {
        self.hand.advance(Duration::from_micros(micros));
    }

    pub(crate) fn set(&self, micros: u64) {
        self.hand.set(Timestamp::from_micros(micros));
    }

    /// Asks; the answer must be there at once.
    pub(crate) fn ask(&self, operation: Operation, charges: &[Charge<'_>]) -> Decision {
        self.try_ask(operation, charges).unwrap()
    }

    pub(crate) fn try_ask(
        &self,
        operation: Operation,
        charges: &[Charge<'_>],
    ) -> Result<Decision, Error> {
        now(self.store.decide(Call::new(operation, charges)))
    }

    pub(crate) fn acquire(&self, policy: &Policy, cost: u64) -> Decision {
        self.ask(Operation::Acquire, &[Charge::new(policy, "s").cost(cost)])
    }

    /// Acquires; the store must have been asked, or must not.
    pub(crate) fn acquire_by(&self, who: Who, charges: &[Charge<'_>]) -> Decision {
        let before = self.asked();
        let decision = self.ask(Operation::Acquire, charges);
        assert_eq!(self.asked() - before, usize::from(who == Who::Store), "{decision:?}");
        decision
    }
}

/// Who answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Who {
    Store,
    Cache,
}

pub(crate) fn policy(text: &str) -> Policy {
    text.parse().unwrap()
}

/// The value of a future that does not wait.
pub(crate) fn now<T>(answer: Answer<'_, T>) -> T {
    let mut answer = std::pin::pin!(answer);
    match poll(answer.as_mut()) {
        Poll::Ready(answer) => answer,
        Poll::Pending => panic!("no answer yet"),
    }
}

pub(crate) fn poll<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}
