//! A store with a deny cache, for tests. The inner store counts its calls, and fails according to a
//! plan.

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

/// A store with a deny cache, the [`ModelStore`] inside it, and the clock of both stores.
pub(crate) struct Bench {
    pub(crate) store: DenyCacheStore<Inner, ManualClock>,
    pub(crate) model: Arc<ModelStore>,
    pub(crate) clock: ManualClock,
}

pub(crate) const START: u64 = 1_790_000_000_000_123;

impl Bench {
    pub(crate) fn new() -> Self {
        Self::with(DenyCache::new(), vec![])
    }

    /// Creates the stores of a test. The inner store fails according to `plan`: the first fault
    /// applies to the first call, the second fault to the second call, and so on.
    pub(crate) fn failing(plan: Vec<Fault>) -> Self {
        Self::with(DenyCache::new(), plan)
    }

    pub(crate) fn with(cache: DenyCache, plan: Vec<Fault>) -> Self {
        let clock = ManualClock::new(Timestamp::from_micros(START));
        let model = Arc::new(ModelStore::keeping_all(clock.clone()));
        let inner = Arc::clone(&model).layer(Faults::new(plan));
        let store = inner.deny_cache(cache.max_bytes(1 << 18).clock(clock.clone()));
        Self { store, model, clock }
    }

    /// Returns the number of calls that have reached the store.
    pub(crate) fn calls(&self) -> usize {
        self.store.inner().as_layer().calls()
    }

    pub(crate) fn advance(&self, micros: u64) {
        self.clock.advance(Duration::from_micros(micros));
    }

    pub(crate) fn set(&self, micros: u64) {
        self.clock.set(Timestamp::from_micros(micros));
    }

    /// Makes a call that must be answered immediately.
    pub(crate) fn decide(&self, operation: Operation, charges: &[Charge<'_>]) -> Decision {
        self.try_decide(operation, charges).unwrap()
    }

    pub(crate) fn try_decide(
        &self,
        operation: Operation,
        charges: &[Charge<'_>],
    ) -> Result<Decision, Error> {
        ready(self.store.decide(Call::new(operation, charges)))
    }

    pub(crate) fn acquire(&self, policy: &Policy, cost: u64) -> Decision {
        self.decide(Operation::Acquire, &[Charge::new(policy, "s").cost(cost)])
    }

    /// Makes an acquire, and checks that the answer comes from `source`.
    pub(crate) fn acquire_by(&self, source: Source, charges: &[Charge<'_>]) -> Decision {
        let before = self.calls();
        let decision = self.decide(Operation::Acquire, charges);
        assert_eq!(self.calls() - before, usize::from(source == Source::Store), "{decision:?}");
        decision
    }
}

/// The source of an answer: the cache or the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    Store,
    Cache,
}

pub(crate) fn policy(text: &str) -> Policy {
    text.parse().unwrap()
}

/// Returns the output of a future that is ready immediately.
pub(crate) fn ready<T>(answer: Answer<'_, T>) -> T {
    let mut answer = std::pin::pin!(answer);
    match poll(answer.as_mut()) {
        Poll::Ready(answer) => answer,
        Poll::Pending => panic!("the future is pending"),
    }
}

pub(crate) fn poll<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}
