//! The conformance suite on a store with layers. While the store works, the layers must not change
//! any decision.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, and so do its helpers")]

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::layers::Layer;
use tidegate_core::{
    Answer, Breaker, Call, Decision, Error, ManualClock, Share, Store, StoreExt, Timestamp,
};
use tidegate_testkit::{Context, Fixture, ModelStore, StoreWithContext, decide_one_by_one};

/// A layer whose answers are never ready immediately, so that the caller must await each answer.
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

/// A [`ModelStore`] with any layers around it. All such stores have one type, so that the suite is
/// compiled once.
type LayeredModel = StoreWithContext<Box<dyn Store>, Arc<ModelStore>>;

fn waiting(clock: ManualClock) -> LayeredModel {
    let model = Arc::new(ModelStore::new(clock.clone()));
    let store = Arc::clone(&model)
        .layer(Later)
        .timeout(Duration::from_secs(60))
        .breaker(Breaker::new().clock(clock.clone()))
        // The fallback store gets a share of 1/1. With a smaller share, some policies of the suite
        // would be rejected, because their share would round down to zero.
        .or_fall_back_to(ModelStore::new(clock), Share::new(1, 1).unwrap());
    (Box::new(store) as Box<dyn Store>).layer(Context(model))
}

fn immediate(clock: ManualClock) -> LayeredModel {
    let model = Arc::new(ModelStore::new(clock.clone()));
    let store = Arc::clone(&model).breaker(Breaker::new().clock(clock)).or_fail_open();
    (Box::new(store) as Box<dyn Store>).layer(Context(model))
}

/// A fixture that opens a store with layers.
struct Stack(fn(ManualClock) -> LayeredModel);

impl Fixture for Stack {
    type Store = LayeredModel;
    type Guard = ();

    async fn open(&self, clock: ManualClock) -> (LayeredModel, ()) {
        ((self.0)(clock), ())
    }

    async fn snapshot(&self, store: &LayeredModel) -> Option<Vec<u8>> {
        Some(store.as_layer().0.snapshot())
    }
}

tidegate_testkit::conformance!(fall_back_around_breaker_around_timeout, fixture: Stack(waiting));

tidegate_testkit::conformance!(fail_open_around_breaker, fixture: Stack(immediate));
