use std::fmt;

use tidegate_core::layers::{Layer, Layered};
use tidegate_core::{Answer, Call, Decision, Error, Store};

/// A store, together with a value (the context) that a [`Fixture`](crate::Fixture) needs for
/// snapshots of the store. For example, the context is the prefix of the store's keys, or the
/// innermost store of a stack of layers.
///
/// ```
/// use tidegate_core::{ManualClock, StoreExt};
/// use tidegate_testkit::{Context, ModelStore, StoreWithContext};
///
/// let store: StoreWithContext<ModelStore, String> =
///     ModelStore::new(ManualClock::default()).layer(Context("prefix".to_owned()));
/// assert_eq!(store.as_layer().0, "prefix");
/// ```
pub type StoreWithContext<S, T> = Layered<Context<T>, S>;

/// A [`Layer`] that keeps a value next to a store. It passes all calls to the store unchanged.
#[derive(Debug, Clone)]
pub struct Context<T>(pub T);

impl<S: Store, T: fmt::Debug + Send + Sync> Layer<S> for Context<T> {
    const MAY_WAIT: bool = false;

    fn decide<'a>(&'a self, inner: &'a S, call: Call<'a>) -> Answer<'a, Result<Decision, Error>> {
        inner.decide(call)
    }

    fn decide_many<'a>(
        &'a self,
        inner: &'a S,
        calls: &'a [Call<'a>],
    ) -> Answer<'a, Vec<Result<Decision, Error>>> {
        inner.decide_many(calls)
    }
}

/// Decides the calls of a batch one after another, for a [`Layer`] that treats them like single
/// calls.
pub fn decide_one_by_one<'a, L: Layer<S>, S: Store>(
    layer: &'a L,
    inner: &'a S,
    calls: &'a [Call<'a>],
) -> Answer<'a, Vec<Result<Decision, Error>>> {
    Answer::later(async move {
        let mut answers = Vec::with_capacity(calls.len());
        for call in calls {
            answers.push(layer.decide(inner, *call).await);
        }
        answers
    })
}
