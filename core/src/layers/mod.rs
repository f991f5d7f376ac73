//! Stores around a store: what happens when it is slow or down, and what it need not be asked.
//!
//! Each is a [`Store`] itself, so they compose, by the methods of [`StoreExt`]. The last one named is
//! the first to be asked.

pub mod breaker;
mod deny_cache;
pub mod fallback;
#[cfg(any(feature = "metrics", feature = "tracing"))]
pub mod observed;
#[cfg(feature = "tokio")]
pub mod timeout;

#[cfg(feature = "tokio")]
use std::time::Duration;

pub use breaker::{Breaker, BreakerStore, BreakerWatch, CircuitState};
pub use deny_cache::{DenyCache, DenyCacheStats, DenyCacheStore};
pub use fallback::{FallbackStore, OnFailure};
#[cfg(any(feature = "metrics", feature = "tracing"))]
pub use observed::ObservedStore;
#[cfg(feature = "tokio")]
pub use timeout::TimeoutStore;

use crate::{Clock, Share, Store};

/// Puts stores around a store.
pub trait StoreExt: Store + Sized {
    /// Bounds every call: one that has no answer after `bound` fails with
    /// [`ErrorKind::Timeout`](crate::ErrorKind::Timeout). A batch is one call. An answer that is
    /// there at once sets no timer; for others, the timers of the Tokio runtime must be enabled.
    ///
    /// A store on a server has timeouts of its own, such as `response_timeout` of Redis, which also replaces a
    /// connection that has fallen silent; this one bounds the whole call, with waiting for a connection, and
    /// should be the shorter one. Where both are set the shorter one ends the call.
    ///
    /// The call is given up, not undone: whether it was or will still be carried out, and so whether
    /// the charge was made, is not known. It is made at most once.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// use std::time::Duration;
    /// use tidegate_core::{Limiter, StoreExt};
    /// use tidegate_memory::MemoryStore;
    ///
    /// let store = MemoryStore::new().timeout(Duration::from_millis(50));
    /// let limiter = Limiter::new(store, ["fixed-window 2/1h".parse()?])?;
    /// assert!(limiter.acquire("alice").await?.is_allowed());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// ```
    #[cfg(feature = "tokio")]
    fn timeout(self, bound: Duration) -> TimeoutStore<Self> {
        TimeoutStore::new(self, bound)
    }

    /// Asks the store no more once it failed several times in a row: for a while every call fails at
    /// once with [`ErrorKind::CircuitOpen`](crate::ErrorKind::CircuitOpen); then a few calls at a
    /// time go through, as probes, until one has an answer (and all go through again) or fails (and
    /// none does for another while).
    ///
    /// Failures are errors of the store as a whole: `Timeout`, `Unavailable`, `ReadOnly`, `Busy`,
    /// `OutOfMemory`, `UnsupportedServer` and `Protocol`. An error about one key or one call says
    /// nothing against the store, so no subject can open the circuit for all. Nor does `Misconfigured`
    /// count: the server has answered, and an open circuit would hide what is wrong. A batch is one call,
    /// failed if none of its calls was answered. Nor does a call count whose caller went away; so put
    /// a timeout within the breaker, not around it.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// use std::time::Duration;
    /// use tidegate_core::layers::CircuitState;
    /// use tidegate_core::{Breaker, Call, Charge, ErrorKind, ManualClock, Store, StoreExt};
    /// use tidegate_testkit::ModelStore;
    /// use tidegate_testkit::faults::{Fault, FaultyStore};
    ///
    /// let clock = ManualClock::default();
    /// let down = vec![Fault::Before(ErrorKind::Unavailable); 2];
    /// let store = FaultyStore::new(ModelStore::new(clock.clone()), down).breaker(
    ///     Breaker::new().failures(2).open_for(Duration::from_secs(1)).clock(clock.clone()),
    /// );
    /// let policy = "sliding-log 5/1m".parse()?;
    /// let charges = [Charge::new(&policy, "alice")];
    ///
    /// for expected in [ErrorKind::Unavailable, ErrorKind::Unavailable, ErrorKind::CircuitOpen] {
    ///     let error = store.decide(Call::acquire(&charges)).await.unwrap_err();
    ///     assert_eq!(error.kind(), expected);
    /// }
    /// clock.advance(Duration::from_secs(1));
    /// assert_eq!(store.state(), CircuitState::HalfOpen);
    /// assert!(store.decide(Call::acquire(&charges)).await?.is_allowed());
    /// assert_eq!(store.state(), CircuitState::Closed);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// ```
    fn breaker<C: Clock>(self, breaker: Breaker<C>) -> BreakerStore<Self, C> {
        BreakerStore::new(self, breaker)
    }

    /// Answers refusals from memory until they end: see [`DenyCache`].
    fn deny_cache<C: Clock>(self, cache: DenyCache<C>) -> DenyCacheStore<Self, C> {
        cache.wrap(self)
    }

    /// Lets pass what the store does not decide. See [`on_failure`](Self::on_failure).
    fn or_fail_open(self) -> FallbackStore<Self> {
        self.on_failure(OnFailure::open())
    }

    /// Refuses what the store does not decide. See [`on_failure`](Self::on_failure).
    fn or_fail_closed(self) -> FallbackStore<Self> {
        self.on_failure(OnFailure::closed())
    }

    /// Asks `other` about what the store does not decide, each policy with its share of the budget.
    /// See [`on_failure`](Self::on_failure).
    fn or_fall_back_to(self, other: impl Store + 'static, share: Share) -> FallbackStore<Self> {
        self.on_failure(OnFailure::fall_back_to(other, share))
    }

    /// Decides in any case, policy by policy, when the store gives no decision but an error.
    ///
    /// Each such decision says so: [`Decision::degraded`](crate::Decision::degraded) tells who
    /// decided instead, and why the store did not. A caller's mistake
    /// ([`ErrorKind::is_invalid_request`](crate::ErrorKind::is_invalid_request)) stays an error, even
    /// where the store was not asked and so could not find it. So do settings that do not fit the server,
    /// such as a wrong password ([`ErrorKind::Misconfigured`](crate::ErrorKind::Misconfigured)), unless
    /// [`OnFailure::also_on`] says otherwise.
    ///
    /// The module [`fallback`] says what each setting does to each operation, and what it costs.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// use tidegate_core::{DegradedAnswer, ErrorKind, Limiter, Share, StoreExt};
    /// use tidegate_memory::MemoryStore;
    /// use tidegate_testkit::faults::{Fault, FaultyStore};
    ///
    /// let down = vec![Fault::Before(ErrorKind::Unavailable); 3];
    /// let store = FaultyStore::new(MemoryStore::new(), down);
    /// // One of three nodes: each falls back to a third of the budget.
    /// let store = store.or_fall_back_to(MemoryStore::new(), Share::new(1, 3)?);
    /// let limiter = Limiter::new(store, ["sliding-log 6/1h".parse()?])?;
    ///
    /// for passes in [true, true, false] {
    ///     let decision = limiter.acquire("alice").await?;
    ///     assert_eq!(decision.is_allowed(), passes);
    ///     let degraded = decision.degraded().unwrap();
    ///     assert_eq!(degraded.answer, DegradedAnswer::FellBack);
    ///     assert_eq!(degraded.reason, ErrorKind::Unavailable);
    /// }
    /// // The store is back.
    /// let decision = limiter.acquire("alice").await?;
    /// assert!(decision.is_allowed() && decision.degraded().is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// ```
    fn on_failure<F>(self, on_failure: OnFailure<F>) -> FallbackStore<Self> {
        FallbackStore::new(self, on_failure)
    }

    /// Tells what the store decides, and how long that takes: by the feature `metrics` to the recorder
    /// that the application has installed, by the feature `tracing` to its subscriber, by both to
    /// both. `docs/metrics.md` has all names.
    ///
    /// Name it last and once: then it sees what the caller sees, degraded answers and errors included.
    ///
    /// The metrics are looked up at the first call, so the recorder must be installed by then; what
    /// comes after costs no look-up, no lock and no allocation. A span, of level debug and target
    /// `tidegate`, is around each call; it costs nothing while nobody listens. Neither ever holds a
    /// subject or a tenant.
    ///
    /// A caller that goes away before it has its answer is counted too, as `cancelled`.
    ///
    /// ```
    /// use tidegate_core::{Limiter, StoreExt};
    /// use tidegate_memory::MemoryStore;
    ///
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let store = MemoryStore::new().observed();
    /// let limiter = Limiter::new(store, ["api: token-bucket 10/1s".parse()?])?;
    /// assert!(limiter.acquire("alice").await?.is_allowed());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// ```
    #[cfg(any(feature = "metrics", feature = "tracing"))]
    fn observed(self) -> ObservedStore<Self> {
        ObservedStore::new(self)
    }
}

impl<S: Store> StoreExt for S {}
