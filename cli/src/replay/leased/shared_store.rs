use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_core::layers::{Layer, Layered};
use tidegate_core::{Answer, Call, Decision, Error, Store};
use tidegate_memory::MemoryStore;

use super::time::LogTime;

/// The store that all nodes share.
pub(super) type SharedStore = Arc<Layered<CallCounter, MemoryStore<LogTime>>>;

/// A layer that counts the calls to the store. A batch counts as one call.
#[derive(Debug, Default)]
pub(super) struct CallCounter(AtomicU64);

impl CallCounter {
    pub(super) fn calls(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn count(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl<S: Store> Layer<S> for CallCounter {
    const MAY_WAIT: bool = false;

    fn decide<'a>(&'a self, inner: &'a S, call: Call<'a>) -> Answer<'a, Result<Decision, Error>> {
        self.count();
        inner.decide(call)
    }

    fn decide_many<'a>(
        &'a self,
        inner: &'a S,
        calls: &'a [Call<'a>],
    ) -> Answer<'a, Vec<Result<Decision, Error>>> {
        self.count();
        inner.decide_many(calls)
    }
}
