//! The suite over stores around a store: while the store is well, they change nothing.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, and so do its helpers")]

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::layers::Layer;
use tidegate_core::{
    Answer, Breaker, Call, Decision, Error, ManualClock, Share, Store, StoreExt, Timestamp,
};
use tidegate_testkit::{Context, Fixture, ModelStore, StoreWithContext, decide_one_by_one};

/// A layer whose answers are never ready immediately.
#[derive(Debug)]
struct Later;

impl<S: Store> Layer<S> for Later {
    const MAY_WAIT: bool = true;

    fn decide<'a>(&'a self, inner: &'a S, call: Call<'a>) -> Answer<'a, Result<Decision, Error>> {
        Answer::later(async move {
            tokio::task::yield_now().await;
            inner.decide(call).await
        })
    }

    fn decide_many<'a>(
        &'a self,
        inner: &'a S,
        calls: &'a [Call<'a>],
    ) -> Answer<'a, Vec<Result<Decision, Error>>> {
        decide_one_by_one(self, inner, calls)
    }

    fn now<'a>(&'a self, inner: &'a S) -> Answer<'a, Result<Timestamp, Error>> {
        Answer::later(inner.now())
    }
}

/// Any stores around a model store: of one type, so that the suite is compiled once.
type Around = StoreWithContext<Box<dyn Store>, Arc<ModelStore>>;

fn waiting(clock: ManualClock) -> Around {
    let model = Arc::new(ModelStore::new(clock.clone()));
    let store = Arc::clone(&model)
        .layer(Later)
        .timeout(Duration::from_secs(60))
        .breaker(Breaker::new().clock(clock.clone()))
        // The whole, as some of the suite's policies have no smaller share and so would be refused.
        .or_fall_back_to(ModelStore::new(clock), Share::new(1, 1).unwrap());
    (Box::new(store) as Box<dyn Store>).layer(Context(model))
}

fn at_once(clock: ManualClock) -> Around {
    let model = Arc::new(ModelStore::new(clock.clone()));
    let store = Arc::clone(&model).breaker(Breaker::new().clock(clock)).or_fail_open();
    (Box::new(store) as Box<dyn Store>).layer(Context(model))
}

/// The suite in fewer steps: what it says of the model store itself is tried elsewhere.
struct Stack(fn(ManualClock) -> Around);

impl Fixture for Stack {
    type Store = Around;
    type Guard = ();

    async fn open(&self, clock: ManualClock) -> (Around, ()) {
        ((self.0)(clock), ())
    }

    async fn snapshot(&self, around: &Around) -> Option<Vec<u8>> {
        Some(around.as_layer().0.snapshot())
    }

    fn steps(&self) -> u32 {
        50_000
    }
}

tidegate_testkit::conformance!(fall_back_around_breaker_around_timeout, fixture: Stack(waiting));

tidegate_testkit::conformance!(fail_open_around_breaker, fixture: Stack(at_once));
