//! Layers around a store: timeout, circuit breaker, fallback, deny cache, coalescing, leases,
//! lists, limit sets, shards, warnings and observation.
//!
//! A store with a layer around it is a [`Store`] itself, so layers can be combined. The methods of
//! [`StoreExt`] add layers. The layer that was added last is the outermost layer, and receives each
//! call first. An application can add its own [`Layer`].

mod adjusted;
pub(crate) mod breaker;
#[cfg(feature = "tokio")]
mod coalesced;
pub(crate) mod deny_cache;
pub(crate) mod fallback;
mod generations;
mod layered;
#[cfg(feature = "tokio")]
pub(crate) mod leased;
mod listed;
#[cfg(any(feature = "metrics", feature = "tracing"))]
mod observed;
pub(crate) mod sharded;
#[cfg(feature = "tokio")]
mod timeout;
pub(crate) mod warned;

#[cfg(feature = "tokio")]
use std::sync::Arc;
#[cfg(feature = "tokio")]
use std::time::Duration;

pub use adjusted::{AdjustedLayer, AdjustedStore};
pub use breaker::{BreakerLayer, BreakerStore, BreakerWatch, CircuitState};
#[cfg(feature = "tokio")]
pub use coalesced::{CoalescedLayer, CoalescedStore};
pub use deny_cache::{DenyCacheLayer, DenyCacheStats, DenyCacheStore};
pub use fallback::{FallbackLayer, FallbackStore, HasFallback, NoFallback};
pub use layered::{Layer, Layered};
#[cfg(feature = "tokio")]
pub use leased::{LeaseStats, LeasedStore};
pub use listed::{ListedLayer, ListedStore};
#[cfg(any(feature = "metrics", feature = "tracing"))]
pub use observed::{ObservedLayer, ObservedStore};
pub use sharded::{ShardedLayer, ShardedStore};
#[cfg(feature = "tokio")]
pub use timeout::{TimeoutLayer, TimeoutStore};
pub use warned::{WarnedLayer, WarnedStore};

use crate::{Clock, CurrentLimits, PolicyLists, Share, Store};
use breaker::Breaker;
use deny_cache::DenyCache;
use fallback::OnFailure;
#[cfg(feature = "tokio")]
use leased::Lease;
use warned::Warnings;

/// Adds layers around a store.
pub trait StoreExt: Store + Sized {
    /// Adds any [`Layer`] around this store, for example a layer of the application.
    fn layer<L: Layer<Self>>(self, layer: L) -> Layered<L, Self> {
        Layered::around(self, layer)
    }

    /// Limits the duration of each call. A call without an answer after `bound` fails with
    /// [`ErrorKind::Timeout`](crate::ErrorKind::Timeout).
    ///
    /// For the timeout, a batch is one call. An answer that is ready immediately needs no timer.
    /// For other answers, the timers of the Tokio runtime must be enabled.
    ///
    /// A store on a server has its own timeouts. For example, the Redis store has a
    /// `response_timeout`, after which it also replaces a silent connection. The timeout of this
    /// layer covers the whole call, including the wait for a connection, and should be shorter.
    ///
    /// A call that times out is cancelled, and not undone. The store has possibly executed the
    /// call, or possibly executes the call later. The charge is made at most once.
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
        self.layer(TimeoutLayer::new(bound))
    }

    /// Adds a circuit breaker. After several consecutive failures the circuit opens, and each call
    /// fails immediately with [`ErrorKind::CircuitOpen`](crate::ErrorKind::CircuitOpen).
    ///
    /// After [some time](Breaker::open_for), the circuit is half open, and the breaker sends a few
    /// calls to the store as probes. If the store answers a probe, the circuit closes. If a probe
    /// fails, the circuit opens again.
    ///
    /// A failure is an error of the store as a whole: `Timeout`, `Unavailable`, `ReadOnly`, `Busy`,
    /// `OutOfMemory`, `UnsupportedServer` and `Protocol`. The following results do not count as
    /// failures:
    ///
    /// * An error about one key or one call does not count, so that no subject can open the circuit
    ///   for all subjects.
    /// * `Misconfigured` does not count. This error is an answer of the server, and an open circuit
    ///   would hide its cause.
    /// * A cancelled call does not count. So add the timeout before the breaker, because a timeout
    ///   around the breaker cancels calls.
    ///
    /// The breaker counts a batch as one call. The batch fails if the store answers no call in the
    /// batch.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// use std::time::Duration;
    /// use tidegate_core::layers::CircuitState;
    /// use tidegate_core::{Breaker, Call, Charge, ErrorKind, ManualClock, Store, StoreExt};
    /// use tidegate_testkit::ModelStore;
    /// use tidegate_testkit::faults::{Fault, Faults};
    ///
    /// let clock = ManualClock::default();
    /// let down = vec![Fault::Before(ErrorKind::Unavailable); 2];
    /// let breaker = Breaker::new().failures(2).open_for(Duration::from_secs(1));
    /// let store = ModelStore::new(clock.clone())
    ///     .layer(Faults::new(down))
    ///     .breaker(breaker.clock(clock.clone()));
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
        self.layer(BreakerLayer::new(breaker))
    }

    /// Sends the calls of concurrent callers in batches. The calls that arrive while a batch is in
    /// flight form the next batch: see [`CoalescedStore`].
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// use tidegate_core::{Limiter, StoreExt};
    /// use tidegate_memory::MemoryStore;
    ///
    /// let store = MemoryStore::new().coalesced(); // useful for a store on a server
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
        Arc::new(self).layer(CoalescedLayer::new())
    }

    /// Admits frequent calls from chunks of the limit, which the store grants: see [`Lease`].
    ///
    /// Add this layer directly after [`coalesced`](Self::coalesced), and before all other layers.
    /// In the opposite order of `coalesced` and the leases, each call looks up its lease twice.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// use tidegate_core::{Lease, Limiter, StoreExt};
    /// use tidegate_memory::MemoryStore;
    ///
    /// let store = MemoryStore::new(); // useful for a store on a server
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

    /// Adds a cache of denials. The cache refuses a denied call again from memory, until the denial
    /// ends: see [`DenyCache`].
    ///
    /// Add this layer after `coalesced`. In the opposite order, each call looks at the cache twice.
    fn deny_cache<C: Clock>(self, cache: DenyCache<C>) -> DenyCacheStore<Self, C> {
        self.layer(DenyCacheLayer::new(cache))
    }

    /// Admits requests for which the store returns an error: see [`on_failure`](Self::on_failure).
    fn or_fail_open(self) -> FallbackStore<Self> {
        self.on_failure(OnFailure::open())
    }

    /// Refuses requests for which the store returns an error: see [`on_failure`](Self::on_failure).
    fn or_fail_closed(self) -> FallbackStore<Self> {
        self.on_failure(OnFailure::closed())
    }

    /// Lets the store `other` decide when this store returns an error, with a share of each limit:
    /// see [`on_failure`](Self::on_failure).
    fn or_fall_back_to(self, other: impl Store + 'static, share: Share) -> FallbackStore<Self> {
        self.on_failure(OnFailure::fall_back_to(other, share))
    }

    /// Decides calls for which the store returns an error, as `on_failure` configures for each
    /// policy.
    ///
    /// A decision without the store is *degraded*. For such a decision,
    /// [`Decision::degraded`](crate::Decision::degraded) returns the kind of fallback and the kind
    /// of the store's error. Two kinds of errors remain errors:
    ///
    /// * the error for an invalid request
    ///   ([`ErrorKind::is_invalid_request`](crate::ErrorKind::is_invalid_request)), even if a layer
    ///   returned it without calling the store;
    /// * the error for settings that do not fit the server, such as a wrong password
    ///   ([`ErrorKind::Misconfigured`](crate::ErrorKind::Misconfigured)), unless
    ///   [`OnFailure::also_on`] includes this kind.
    ///
    /// [`FallbackStore`] describes the effect of each setting on each operation, and the number of
    /// additional requests that each setting admits.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// use tidegate_core::{DegradedAnswer, ErrorKind, Limiter, Share, StoreExt};
    /// use tidegate_memory::MemoryStore;
    /// use tidegate_testkit::faults::{Fault, Faults};
    ///
    /// let down = vec![Fault::Before(ErrorKind::Unavailable); 3];
    /// let store = MemoryStore::new().layer(Faults::new(down));
    /// // There are three nodes, and each of them falls back to a third of the limit.
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
    /// // The store answers again.
    /// let decision = limiter.acquire("alice").await?;
    /// assert!(decision.is_allowed() && decision.degraded().is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// ```
    fn on_failure<F>(self, on_failure: OnFailure<F>) -> FallbackStore<Self> {
        self.layer(FallbackLayer::new(on_failure))
    }

    /// Allows and denies subjects by [lists](crate::Lists), for each policy that has lists. A
    /// subject that is denied is refused without a call to the store. A subject that is allowed is
    /// counted beyond the limit, and is refused only if it is blocked: see [`ListedStore`].
    ///
    /// Add this layer after all layers that can refuse a call, such as the deny cache and the
    /// fallback, so that these layers receive the charges of an allowed subject beyond the limit. A
    /// clone of `lists` can replace the lists while calls are decided. Each decision uses one
    /// version of the lists.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// use tidegate_core::{Limiter, Outcome, PolicyLists, StoreExt};
    /// use tidegate_memory::MemoryStore;
    ///
    /// let lists = "deny 203.0.113.0/24\nallow 203.0.113.9".parse()?;
    /// let store = MemoryStore::new().listed(PolicyLists::new().with("ip", lists));
    /// let limiter = Limiter::new(store, ["ip: fixed-window 1/1h".parse()?])?;
    ///
    /// let denied = limiter.acquire("203.0.113.7").await?;
    /// assert_eq!(denied.verdicts()[0].outcome(), Outcome::DenyListed);
    /// assert_eq!(denied.retry_after(), None);
    /// for _ in 0..3 {
    ///     assert!(limiter.acquire("203.0.113.9").await?.is_allowed()); // beyond the limit
    /// }
    /// assert!(limiter.acquire("198.51.100.1").await?.is_allowed());
    /// assert!(limiter.acquire("198.51.100.1").await?.is_denied());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// ```
    fn listed(self, lists: PolicyLists) -> ListedStore<Self> {
        self.layer(ListedLayer::new(lists))
    }

    /// Replaces policies by the policies and overrides of a [limit set](crate::LimitSet), which can
    /// change while the program runs: see [`AdjustedStore`].
    ///
    /// Add this layer after all layers that decide, such as the fallback, the lists and the
    /// warnings, so that all of them receive the policies of the set.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// use tidegate_core::{CurrentLimits, Limiter, StoreExt};
    /// use tidegate_memory::MemoryStore;
    ///
    /// let set = "plan: fixed-window 9/1h\nplan: fixed-window 20/1h for tenant acme".parse()?;
    /// let store = MemoryStore::new().adjusted(CurrentLimits::new(set));
    /// let limiter = Limiter::new(store, ["plan: fixed-window 5/1h".parse()?])?;
    ///
    /// let decision = limiter.acquire("alice").await?;
    /// assert_eq!(decision.verdicts()[0].limit(), 9);
    /// let decision = limiter.subject("alice").tenant("acme").acquire().await?;
    /// assert_eq!(decision.verdicts()[0].limit(), 20);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// ```
    fn adjusted(self, limits: CurrentLimits) -> AdjustedStore<Self> {
        self.layer(AdjustedLayer::new(limits))
    }

    /// Reports the first [warning](crate::Policy::warn_at) about a subject in each window: see
    /// [`Warnings`].
    ///
    /// Add this layer after all layers that decide, such as the fallback and the lists.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// use tidegate_core::{Limiter, StoreExt, Warnings};
    /// use tidegate_memory::MemoryStore;
    ///
    /// let (sender, reports) = std::sync::mpsc::channel();
    /// let store = MemoryStore::new().warned(Warnings::new(move |warning| {
    ///     let remaining = warning.verdict.remaining();
    ///     let _ = sender.send(format!("{}: {remaining} left", warning.policy.name()));
    /// }));
    /// let limiter = Limiter::new(store, ["plan: quota 10/month in UTC warn 80%".parse()?])?;
    /// for _ in 0..10 {
    ///     assert!(limiter.acquire("alice").await?.is_allowed());
    /// }
    /// assert_eq!(reports.try_iter().collect::<Vec<_>>(), ["plan: 2 left"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// ```
    fn warned<C: Clock>(self, warnings: Warnings<C>) -> WarnedStore<Self, C> {
        self.layer(WarnedLayer::new(warnings))
    }

    /// Reports decisions and their latency. With the feature `metrics`, the layer sends reports to
    /// the metrics recorder of the application. With the feature `tracing`, it sends reports to the
    /// tracing subscriber. `docs/metrics.md` lists all names of metrics and spans.
    ///
    /// Add this layer last and once, so that the layer reports the answers that the caller gets,
    /// including degraded decisions and errors.
    ///
    /// The layer looks up its metrics at the first call, so the application must install the
    /// metrics recorder before the first call. Later calls need no look-up, no lock and no
    /// allocation. Each call has a tracing span of level debug and target `tidegate`. The span
    /// costs nothing without a subscriber. Neither metrics nor spans ever contain a subject or a
    /// tenant.
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
        self.layer(ObservedLayer::new())
    }
}

impl<S: Store> StoreExt for S {}
