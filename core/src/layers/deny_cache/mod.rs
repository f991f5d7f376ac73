//! A cache of denials, so that a flood of refused requests costs the store nothing.

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
use crate::{Answer, Call, Clock, Decision, Error, Policy, Store, SystemClock, Timestamp};

/// A store that answers denials of another from memory until they end: see [`DenyCache`].
pub struct DenyCacheStore<S, C = SystemClock> {
    inner: S,
    clock: C,
    cache: Arc<Cache>,
}

impl<S, C> DenyCacheStore<S, C> {
    /// The inner store.
    #[must_use]
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// Unwraps the inner store.
    #[must_use]
    pub fn into_inner(self) -> S {
        self.inner
    }

    /// Returns the cached denial of a call without calling the inner store; `None` if there is
    /// none, or if the cache does not answer such calls.
    ///
    /// Use it to distinguish denials of the cache from denials of the store. Only a hit changes the
    /// statistics.
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
        if !is_cacheable(&call) {
            return None;
        }
        let key = CallKey::new(call, &self.cache.hasher);
        self.cache.find_hit(&key, self.cache.clock_guard.now(&self.clock))
    }

    /// Statistics of the cache: a handle that stays valid when the store is moved into a limiter.
    #[must_use]
    pub fn stats(&self) -> DenyCacheStats {
        DenyCacheStats(Arc::clone(&self.cache))
    }
}

impl<S: Store, C: Clock> Store for DenyCacheStore<S, C> {
    fn decide<'a>(&'a self, call: Call<'a>) -> Answer<'a, Result<Decision, Error>> {
        let key = CallKey::new(call, &self.cache.hasher);
        let at = self.cache.clock_guard.now(&self.clock);
        if is_cacheable(&call)
            && let Some(decision) = self.cache.find(&key, at)
        {
            return Answer::ready(Ok(decision));
        }
        let in_flight = InFlight::new(&self.cache, key, at);
        self.inner.decide(call).map(move |answer| {
            in_flight.answered(&answer);
            answer
        })
    }

    fn decide_many<'a>(
        &'a self,
        calls: &'a [Call<'a>],
    ) -> Answer<'a, Vec<Result<Decision, Error>>> {
        let batch = Batch::look_up(&self.cache, &self.clock, calls);
        match batch.in_flight() {
            0 => Answer::ready(batch.merge(vec![])),
            sent if sent == calls.len() => {
                self.inner.decide_many(calls).map(move |answers| batch.merge(answers))
            }
            _ => Answer::later(async move {
                let answers = self.inner.decide_many(&batch.calls()).await;
                batch.merge(answers)
            }),
        }
    }

    fn now(&self) -> Answer<'_, Result<Timestamp, Error>> {
        self.inner.now()
    }

    fn ready(&self) -> Answer<'_, Result<(), Error>> {
        self.inner.ready()
    }

    fn answers_immediately(&self) -> bool {
        self.inner.answers_immediately()
    }

    fn batch_group(&self, call: &Call<'_>) -> Option<u64> {
        self.inner.batch_group(call)
    }

    fn supports(&self, policy: &Policy) -> Result<(), Error> {
        self.inner.supports(policy)
    }
}

impl<S: fmt::Debug, C: fmt::Debug> fmt::Debug for DenyCacheStore<S, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DenyCacheStore")
            .field("inner", &self.inner)
            .field("clock", &self.clock)
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

/// Statistics of a [`DenyCache`].
#[derive(Clone)]
pub struct DenyCacheStats(Arc<Cache>);

impl DenyCacheStats {
    /// Calls that were answered by the cache.
    #[must_use]
    pub fn hits(&self) -> u64 {
        self.0.table.sums().hits
    }

    /// Acquires and peeks that went to the store, with all that were admitted.
    #[must_use]
    pub fn misses(&self) -> u64 {
        self.0.table.sums().misses
    }

    /// The number of cached denials, with those that have expired and were not looked up since.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.table.sums().len
    }

    /// Whether no denial is cached.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes that the cache takes, as requested from the allocator: an upper bound, as a policy is
    /// counted with each of its denials.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0.fixed_bytes + self.0.table.sums().bytes
    }

    /// The maximum of [`bytes`](Self::bytes).
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
