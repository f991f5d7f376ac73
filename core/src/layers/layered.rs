//! The wrapper that makes a store from a layer and an inner store.

use std::fmt;

use crate::{Answer, Call, Charge, Charges, Decision, Error, Policy, Store, Timestamp};

/// The behavior of a layer around an inner store.
///
/// [`StoreExt::layer`](super::StoreExt::layer) adds a layer to a store. The result is a [`Layered`]
/// store, which implements [`Store`]. A layer must implement single calls and batches. For each
/// other method of `Store`, the trait `Layer` has a method that by default calls the inner store.
/// So a layer cannot forget to forward a method.
///
/// # Example
///
/// This layer counts the calls that fail:
///
/// ```
/// use std::slice;
/// use std::sync::atomic::{AtomicUsize, Ordering};
///
/// use tidegate_core::layers::Layer;
/// use tidegate_core::{Answer, Call, Decision, Error, Limiter, Store, StoreExt};
/// use tidegate_memory::MemoryStore;
///
/// #[derive(Debug, Default)]
/// struct CountFailures(AtomicUsize);
///
/// impl CountFailures {
///     fn count(&self, answers: &[Result<Decision, Error>]) {
///         let failures = answers.iter().filter(|answer| answer.is_err()).count();
///         self.0.fetch_add(failures, Ordering::Relaxed);
///     }
/// }
///
/// impl<S: Store> Layer<S> for CountFailures {
///     const MAY_WAIT: bool = false;
///
///     fn decide<'a>(&'a self, inner: &'a S, call: Call<'a>) -> Answer<'a, Result<Decision, Error>> {
///         inner.decide(call).inspect(|answer| self.count(slice::from_ref(answer)))
///     }
///
///     fn decide_many<'a>(
///         &'a self,
///         inner: &'a S,
///         calls: &'a [Call<'a>],
///     ) -> Answer<'a, Vec<Result<Decision, Error>>> {
///         inner.decide_many(calls).inspect(|answers| self.count(answers))
///     }
/// }
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let store = MemoryStore::new().layer(CountFailures::default());
/// let limiter = Limiter::new(store, ["api: fixed-window 2/1h".parse()?])?;
/// assert!(limiter.acquire("alice").await?.is_allowed());
/// assert_eq!(limiter.store().as_layer().0.load(Ordering::Relaxed), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Layer<S: Store>: fmt::Debug + Send + Sync {
    /// Whether a call can wait in this layer although the inner store answers immediately. If
    /// `true`, the layered store does not [promise ready answers](Store::answers_immediately).
    const MAY_WAIT: bool;

    /// Executes one call: see [`Store::decide`].
    fn decide<'a>(&'a self, inner: &'a S, call: Call<'a>) -> Answer<'a, Result<Decision, Error>>;

    /// Executes a batch: see [`Store::decide_many`]. A layer should send the calls of the batch to
    /// the inner store in one batch.
    fn decide_many<'a>(
        &'a self,
        inner: &'a S,
        calls: &'a [Call<'a>],
    ) -> Answer<'a, Vec<Result<Decision, Error>>>;

    /// Returns the time: see [`Store::now`].
    fn now<'a>(&'a self, inner: &'a S) -> Answer<'a, Result<Timestamp, Error>> {
        inner.now()
    }

    /// Checks that the inner store can decide: see [`Store::ready`].
    fn ready<'a>(&'a self, inner: &'a S) -> Answer<'a, Result<(), Error>> {
        inner.ready()
    }

    /// Returns `true` if the answers to single calls are always ready: see
    /// [`Store::answers_immediately`]. The default depends on [`MAY_WAIT`](Self::MAY_WAIT) and the
    /// inner store.
    fn answers_immediately(&self, inner: &S) -> bool {
        !Self::MAY_WAIT && inner.answers_immediately()
    }

    /// Returns the batch group of a call: see [`Store::batch_group`].
    fn batch_group(&self, inner: &S, call: &Call<'_>) -> Option<u64> {
        inner.batch_group(call)
    }

    /// Returns a future that completes when a call should be sent again: see
    /// [`Store::until_turn`].
    fn until_turn<'a>(
        &'a self,
        inner: &'a S,
        charges: Charges<'_>,
        place: u64,
    ) -> Option<Answer<'a, ()>> {
        inner.until_turn(charges, place)
    }

    /// Returns the policy that replaces the policy of a charge: see [`Store::adjusted_policy`].
    fn adjusted_policy<'a>(
        &'a self,
        inner: &'a S,
        charge: Charge<'a>,
    ) -> Answer<'a, Option<Policy>> {
        inner.adjusted_policy(charge)
    }

    /// Checks that the store can keep states of this policy: see [`Store::supports`].
    ///
    /// # Errors
    ///
    /// Returns an error of kind [`Unsupported`](crate::ErrorKind::Unsupported) if the store cannot
    /// keep states of this policy.
    fn supports(&self, inner: &S, policy: &Policy) -> Result<(), Error> {
        inner.supports(policy)
    }
}

/// A store with a [`Layer`] around it.
///
/// Stores with layers of this module, such as [`BreakerStore`](super::BreakerStore), have the type
/// `Layered`. If both the layer and the inner store are `Clone`, the layered store is `Clone` too.
#[derive(Debug, Clone)]
pub struct Layered<L, S> {
    layer: L,
    inner: S,
}

impl<L, S> Layered<L, S> {
    pub(super) fn around(inner: S, layer: L) -> Self {
        Self { layer, inner }
    }

    #[cfg(feature = "tokio")]
    pub(super) fn map_layer(self, change: impl FnOnce(L) -> L) -> Self {
        Self { layer: change(self.layer), inner: self.inner }
    }

    /// Returns the inner store.
    #[must_use]
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// Removes the layer, and returns the inner store.
    #[must_use]
    pub fn into_inner(self) -> S {
        self.inner
    }

    /// Returns the layer, for example to read a counter in the layer.
    #[must_use]
    pub fn as_layer(&self) -> &L {
        &self.layer
    }
}

impl<L: Layer<S>, S: Store> Store for Layered<L, S> {
    fn decide<'a>(&'a self, call: Call<'a>) -> Answer<'a, Result<Decision, Error>> {
        self.layer.decide(&self.inner, call)
    }

    fn decide_many<'a>(
        &'a self,
        calls: &'a [Call<'a>],
    ) -> Answer<'a, Vec<Result<Decision, Error>>> {
        self.layer.decide_many(&self.inner, calls)
    }

    fn now(&self) -> Answer<'_, Result<Timestamp, Error>> {
        self.layer.now(&self.inner)
    }

    fn ready(&self) -> Answer<'_, Result<(), Error>> {
        self.layer.ready(&self.inner)
    }

    fn answers_immediately(&self) -> bool {
        self.layer.answers_immediately(&self.inner)
    }

    fn batch_group(&self, call: &Call<'_>) -> Option<u64> {
        self.layer.batch_group(&self.inner, call)
    }

    fn until_turn(&self, charges: Charges<'_>, place: u64) -> Option<Answer<'_, ()>> {
        self.layer.until_turn(&self.inner, charges, place)
    }

    fn adjusted_policy<'a>(&'a self, charge: Charge<'a>) -> Answer<'a, Option<Policy>> {
        self.layer.adjusted_policy(&self.inner, charge)
    }

    fn supports(&self, policy: &Policy) -> Result<(), Error> {
        self.layer.supports(&self.inner, policy)
    }
}
