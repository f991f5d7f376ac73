use std::fmt;

use tidegate_core::{Answer, Call, Decision, Error, Policy, Store, Timestamp};

/// A store with the context that a [`Fixture`](crate::Fixture) needs to take snapshots of it, such as the
/// prefix of its keys, or the innermost store of a stack.
#[derive(Debug)]
pub struct StoreWithContext<S, T> {
    /// The store.
    pub store: S,
    /// The context.
    pub context: T,
}

impl<S: Store, T: fmt::Debug + Send + Sync> Store for StoreWithContext<S, T> {
    fn decide<'a>(&'a self, call: Call<'a>) -> Answer<'a, Result<Decision, Error>> {
        self.store.decide(call)
    }

    fn decide_many<'a>(
        &'a self,
        calls: &'a [Call<'a>],
    ) -> Answer<'a, Vec<Result<Decision, Error>>> {
        self.store.decide_many(calls)
    }

    fn now(&self) -> Answer<'_, Result<Timestamp, Error>> {
        self.store.now()
    }

    fn supports(&self, policy: &Policy) -> Result<(), Error> {
        self.store.supports(policy)
    }
}
