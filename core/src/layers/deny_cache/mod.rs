//! A cache of denials, so that a flood of refused requests does not reach the store.

mod cache;
mod config;
mod entry;
mod in_flight;
mod meter;
mod staleness;
mod table;

use std::fmt;
use std::sync::Arc;

pub use config::DenyCache;

use self::cache::Cache;
use self::entry::{CallKey, is_cacheable};
use self::in_flight::{Batch, InFlight};
use super::layered::{Layer, Layered};
use crate::{Answer, Call, Clock, Decision, Error, Store, StoreExt, SystemClock};

/// A store that keeps denials in memory, and answers denied calls from memory until the denial
/// ends: see [`DenyCache`].
pub type DenyCacheStore<S, C = SystemClock> = Layered<DenyCacheLayer<C>, S>;

/// The layer of a [`DenyCacheStore`].
pub struct DenyCacheLayer<C = SystemClock> {
    clock: C,
    cache: Arc<Cache>,
    /// Whether the cache answers calls.
    answers: bool,
}

impl<C> DenyCacheLayer<C> {
    pub(super) fn new(config: DenyCache<C>) -> Self {
        let DenyCache { clock, max_bytes, only_exact, max_age } = config;
        Self { clock, cache: Arc::new(Cache::new(max_bytes, only_exact, max_age)), answers: true }
    }
}

impl<S, C> DenyCacheStore<S, C> {
    /// Returns the cached denial of a call without calling the inner store. Returns `None` if the
    /// cache has no denial of the call, or if the cache does not answer calls of this operation.
    ///
    /// With this method, a caller can distinguish denials by the cache from denials by the store.
    /// The statistics change only if this method returns a denial.
    ///
    /// ```
    /// use tidegate_core::{Call, Charge, DenyCache, Operation, Policy, Store, StoreExt};
    /// use tidegate_memory::MemoryStore;
    ///
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// let store = MemoryStore::new().deny_cache(DenyCache::new());
    /// let policy: Policy = "fixed-window 1/1d".parse()?;
    /// let charges = [Charge::new(&policy, "alice")];
    /// assert!(store.decide(Call::acquire(&charges)).await?.is_allowed());
    /// assert_eq!(store.cached_denial(Call::acquire(&charges)), None);
    /// assert!(store.decide(Call::acquire(&charges)).await?.is_denied());
    /// assert!(store.cached_denial(Call::new(Operation::Peek, &charges)).is_some());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn cached_denial(&self, call: Call<'_>) -> Option<Decision>
    where
        C: Clock,
    {
        let DenyCacheLayer { clock, cache, .. } = self.as_layer();
        if !is_cacheable(&call) {
            return None;
        }
        let key = CallKey::new(call, &cache.hasher);
        cache.find_hit(&key, cache.clock_guard.now(clock))
    }

    /// Returns a store that shares the cache, but sends each call to the inner store. The answers
    /// to these calls still add denials to the cache, and these calls still make denials invalid.
    ///
    /// This store is for callers that cannot accept a late effect of a reset by another process.
    ///
    /// ```
    /// use tidegate_core::{Call, Charge, DenyCache, Policy, Store, StoreExt};
    /// use tidegate_memory::MemoryStore;
    ///
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// let cached = std::sync::Arc::new(MemoryStore::new()).deny_cache(DenyCache::new());
    /// let direct = cached.without_answers();
    /// let policy: Policy = "fixed-window 1/1d".parse()?;
    /// let charges = [Charge::new(&policy, "alice")];
    /// for _ in 0..3 {
    ///     direct.decide(Call::acquire(&charges)).await?;
    /// }
    /// assert_eq!(cached.stats().hits(), 0);
    /// assert!(cached.decide(Call::acquire(&charges)).await?.is_denied());
    /// assert_eq!(cached.stats().hits(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn without_answers(&self) -> Self
    where
        S: Store + Clone,
        C: Clock + Clone,
    {
        let DenyCacheLayer { clock, cache, .. } = self.as_layer();
        let (clock, cache) = (clock.clone(), Arc::clone(cache));
        self.inner().clone().layer(DenyCacheLayer { clock, cache, answers: false })
    }

    /// Returns a handle to the statistics of the cache. The handle stays valid when the store is
    /// moved into a limiter.
    #[must_use]
    pub fn stats(&self) -> DenyCacheStats {
        DenyCacheStats(Arc::clone(&self.as_layer().cache))
    }
}

impl<S: Store, C: Clock> Layer<S> for DenyCacheLayer<C> {
    const MAY_WAIT: bool = false;

    fn decide<'a>(&'a self, inner: &'a S, call: Call<'a>) -> Answer<'a, Result<Decision, Error>> {
        let key = CallKey::new(call, &self.cache.hasher);
        let at = self.cache.clock_guard.now(&self.clock);
        if self.answers
            && is_cacheable(&call)
            && let Some(decision) = self.cache.find(&key, at)
        {
            return Answer::ready(Ok(decision));
        }
        let in_flight = InFlight::new(&self.cache, key, at);
        inner.decide(call).inspect(move |answer| in_flight.answered(answer))
    }

    fn decide_many<'a>(
        &'a self,
        inner: &'a S,
        calls: &'a [Call<'a>],
    ) -> Answer<'a, Vec<Result<Decision, Error>>> {
        let batch = Batch::look_up(&self.cache, &self.clock, calls, self.answers);
        match batch.in_flight() {
            0 => Answer::ready(batch.merge(vec![])),
            sent if sent == calls.len() => {
                inner.decide_many(calls).map(move |answers| batch.merge(answers))
            }
            _ => Answer::later(async move {
                let answers = inner.decide_many(&batch.calls()).await;
                batch.merge(answers)
            }),
        }
    }

    /// Returns `None` if the denial of the call is cached, so that the call does not wait for a
    /// batch.
    fn batch_group(&self, inner: &S, call: &Call<'_>) -> Option<u64> {
        let is_denied = self.answers && is_cacheable(call) && {
            let key = CallKey::new(*call, &self.cache.hasher);
            self.cache.contains(&key, self.cache.clock_guard.now(&self.clock))
        };
        if is_denied { None } else { inner.batch_group(call) }
    }
}

impl<C: fmt::Debug> fmt::Debug for DenyCacheLayer<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DenyCacheLayer")
            .field("clock", &self.clock)
            .field("stats", &DenyCacheStats(Arc::clone(&self.cache)))
            .finish()
    }
}

/// A handle to the statistics of a [`DenyCache`].
#[derive(Clone)]
pub struct DenyCacheStats(Arc<Cache>);

impl DenyCacheStats {
    /// Returns the number of calls that the cache has answered.
    #[must_use]
    pub fn hits(&self) -> u64 {
        self.0.table.sums().hits
    }

    /// Returns the number of acquires and peeks that the layer sent to the store, including calls
    /// that the store admitted.
    #[must_use]
    pub fn misses(&self) -> u64 {
        self.0.table.sums().misses
    }

    /// Returns the number of cached denials, including expired denials that are not removed yet.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.table.sums().len
    }

    /// Returns `true` if no denial is cached.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of bytes that the cache has requested from the allocator. The number is
    /// an upper bound, because each denial counts the size of its policy, even if denials share a
    /// policy.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0.fixed_bytes + self.0.table.sums().bytes
    }

    /// Returns the maximum of [`bytes`](Self::bytes).
    #[must_use]
    pub fn max_bytes(&self) -> usize {
        self.0.max_bytes
    }
}

impl fmt::Debug for DenyCacheStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sums = self.0.table.sums();
        f.debug_struct("DenyCacheStats")
            .field("hits", &sums.hits)
            .field("misses", &sums.misses)
            .field("len", &sums.len)
            .field("bytes", &self.bytes())
            .finish()
    }
}
