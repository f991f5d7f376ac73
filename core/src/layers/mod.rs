//! Layers around a store: timeout, circuit breaker, fallback, deny cache, coalescing, leases, observation.
//!
//! Each layer is a [`Store`] itself, so they compose, by the methods of [`StoreExt`]. The layer that is added last
//! is called first.

pub(crate) mod breaker;
#[cfg(feature = "tokio")]
mod coalesced;
pub(crate) mod deny_cache;
pub(crate) mod fallback;
mod generations;
#[cfg(feature = "tokio")]
pub(crate) mod leased;
#[cfg(any(feature = "metrics", feature = "tracing"))]
mod observed;
#[cfg(feature = "tokio")]
mod timeout;

#[cfg(feature = "tokio")]
use std::time::Duration;

pub use breaker::{BreakerStore, BreakerWatch, CircuitState};
#[cfg(feature = "tokio")]
pub use coalesced::CoalescedStore;
pub use deny_cache::{DenyCacheStats, DenyCacheStore};
pub use fallback::{FallbackStore, HasFallback, NoFallback};
#[cfg(feature = "tokio")]
pub use leased::{LeaseStats, LeasedStore};
#[cfg(any(feature = "metrics", feature = "tracing"))]
pub use observed::ObservedStore;
#[cfg(feature = "tokio")]
pub use timeout::TimeoutStore;

pub use crate::shards::ShardedStore;
use crate::{Clock, Share, Store};
use breaker::Breaker;
use deny_cache::DenyCache;
use fallback::OnFailure;
#[cfg(feature = "tokio")]
use leased::Lease;

/// Adds layers around a store.
pub trait StoreExt: Store + Sized {
    /// Limits the duration of every call: one without an answer after `bound` fails with
    /// [`ErrorKind::Timeout`](crate::ErrorKind::Timeout). A batch is one call. An answer that is ready immediately
    /// sets no timer; for others, the timers of the Tokio runtime must be enabled.
    ///
    /// A store on a server has timeouts of its own, such as `response_timeout` of Redis, which also replaces a
    /// silent connection. This one covers the whole call, with the wait for a connection, and should be the shorter
    /// one. If both are set, the shorter one ends the call.
    ///
    /// The call is abandoned, not undone: whether it was or will be carried out, and so whether the charge was made,
    /// is not known. It is made at most once.
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

    /// Adds a circuit breaker. After several consecutive failures the circuit opens: each call fails immediately
    /// with [`ErrorKind::CircuitOpen`](crate::ErrorKind::CircuitOpen). After a while it is half open: a few calls at
    /// a time are sent as probes, until one is answered (the circuit closes) or fails (it opens again).
    ///
    /// Failures are errors of the store as a whole: `Timeout`, `Unavailable`, `ReadOnly`, `Busy`, `OutOfMemory`,
    /// `UnsupportedServer` and `Protocol`. An error about one key or one call does not count, so no subject can open
    /// the circuit for all. Nor does `Misconfigured`: the server has answered, and an open circuit would hide the
    /// cause. A batch is one call, which fails if none of its calls is answered. A cancelled call does not count, so
    /// put a timeout within the breaker, not around it.
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

    /// Sends the calls of concurrent callers in batches: those that arrive while a batch is in flight make up the next
    /// one. See [`CoalescedStore`].
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// use tidegate_core::{Limiter, StoreExt};
    /// use tidegate_memory::MemoryStore;
    ///
    /// let store = MemoryStore::new().coalesced(); // of use for a store on a server
    /// let limiter = Limiter::new(store, ["fixed-window 2/1h".parse()?])?;
    /// assert!(limiter.acquire("alice").await?.is_allowed());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// ```
    #[cfg(feature = "tokio")]
    fn coalesced(self) -> CoalescedStore<Self>
    where
        Self: 'static,
    {
        CoalescedStore::new(self)
    }

    /// Admits the calls that are made often from chunks of the budget, which the store grants: see [`Lease`].
    ///
    /// Put it around the store and [`coalesced`](Self::coalesced), with the other layers around it.
    /// In the other order, leases work as well, but each call looks at them twice.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// use tidegate_core::{Lease, Limiter, StoreExt};
    /// use tidegate_memory::MemoryStore;
    ///
    /// let store = MemoryStore::new(); // of use for a store on a server
    /// let store = store.coalesced().leased(Lease::new());
    /// let limiter = Limiter::new(store.clone(), ["fixed-window 1000000/1h".parse()?])?;
    /// assert!(limiter.acquire("ingest").await?.is_allowed());
    /// store.close().await;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// ```
    #[cfg(feature = "tokio")]
    fn leased<C: Clock + 'static>(self, lease: Lease<C>) -> LeasedStore<Self, C>
    where
        Self: 'static,
    {
        lease.wrap(self)
    }

    /// Adds a cache of denials, which answers them from memory until they end: see [`DenyCache`].
    fn deny_cache<C: Clock>(self, cache: DenyCache<C>) -> DenyCacheStore<Self, C> {
        cache.wrap(self)
    }

    /// Admits requests on which the store does not decide. See [`on_failure`](Self::on_failure).
    fn or_fail_open(self) -> FallbackStore<Self> {
        self.on_failure(OnFailure::open())
    }

    /// Refuses requests on which the store does not decide. See [`on_failure`](Self::on_failure).
    fn or_fail_closed(self) -> FallbackStore<Self> {
        self.on_failure(OnFailure::closed())
    }

    /// Lets the store `other` decide when this one does not, each policy with its share of the limit. See
    /// [`on_failure`](Self::on_failure).
    fn or_fall_back_to(self, other: impl Store + 'static, share: Share) -> FallbackStore<Self> {
        self.on_failure(OnFailure::fall_back_to(other, share))
    }

    /// Decides when the store returns an error, as configured for each policy.
    ///
    /// Such a decision is marked: [`Decision::degraded`](crate::Decision::degraded) has what decided instead, and
    /// why the store did not. An invalid request
    /// ([`ErrorKind::is_invalid_request`](crate::ErrorKind::is_invalid_request)) remains an error, even if the store
    /// was not called. So do settings that do not fit the server, such as a wrong password
    /// ([`ErrorKind::Misconfigured`](crate::ErrorKind::Misconfigured)), unless [`OnFailure::also_on`] includes them.
    ///
    /// [`FallbackStore`] describes what each setting does to each operation, and what it costs.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// use tidegate_core::{DegradedAnswer, ErrorKind, Limiter, Share, StoreExt};
    /// use tidegate_memory::MemoryStore;
    /// use tidegate_testkit::faults::{Fault, FaultyStore};
    ///
    /// let down = vec![Fault::Before(ErrorKind::Unavailable); 3];
    /// let store = FaultyStore::new(MemoryStore::new(), down);
    /// // One of three nodes: each falls back to a third of the limit.
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

    /// Reports decisions and their latency: with the feature `metrics` to the recorder of the application, with the
    /// feature `tracing` to its subscriber, with both to both. `docs/metrics.md` lists all names.
    ///
    /// Add it last and once: then it sees what the caller sees, with degraded answers and errors.
    ///
    /// The metrics are looked up at the first call, so the recorder must be installed by then; later calls need no
    /// look-up, no lock and no allocation. Each call has a span, of level debug and target `tidegate`, which costs
    /// nothing without a subscriber. Neither ever contains a subject or a tenant.
    ///
    /// A cancelled call is counted as `cancelled`.
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
