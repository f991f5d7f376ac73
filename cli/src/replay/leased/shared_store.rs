use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_core::{Answer, Call, Decision, Error, Policy, Store, Timestamp};
use tidegate_memory::MemoryStore;

use super::time::LogTime;

/// The store of all nodes, which counts the calls to it.
#[derive(Debug, Clone)]
pub(super) struct SharedStore(Arc<Counted>);

#[derive(Debug)]
struct Counted {
    store: MemoryStore<LogTime>,
    calls: AtomicU64,
}

impl SharedStore {
    pub(super) fn new(store: MemoryStore<LogTime>) -> Self {
        Self(Arc::new(Counted { store, calls: AtomicU64::new(0) }))
    }

    /// The number of calls so far; a batch is one.
    pub(super) fn calls(&self) -> u64 {
        self.0.calls.load(Ordering::Relaxed)
    }

    fn count(&self) -> &MemoryStore<LogTime> {
        self.0.calls.fetch_add(1, Ordering::Relaxed);
        &self.0.store
    }
}

impl Store for SharedStore {
    fn decide<'a>(&'a self, call: Call<'a>) -> Answer<'a, Result<Decision, Error>> {
        self.count().decide(call)
    }

    fn decide_many<'a>(
        &'a self,
        calls: &'a [Call<'a>],
    ) -> Answer<'a, Vec<Result<Decision, Error>>> {
        self.count().decide_many(calls)
    }

    fn now(&self) -> Answer<'_, Result<Timestamp, Error>> {
        self.0.store.now()
    }

    fn batch_group(&self, call: &Call<'_>) -> Option<u64> {
        self.0.store.batch_group(call)
    }

    fn supports(&self, policy: &Policy) -> Result<(), Error> {
        self.0.store.supports(policy)
    }
}
