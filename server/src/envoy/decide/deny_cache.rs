//! A store of limits with an optional cache of denials.

use std::fmt;
use std::sync::Arc;

use tidegate_core::layers::DenyCacheStore;
use tidegate_core::{Call, Clock, Decision, DenyCache, PolicyLists, Store, StoreExt};

/// A store of limits, with a cache of denials around it if the cache is enabled.
#[derive(Debug, Clone)]
pub(super) struct LimitStore {
    /// The store that receives the calls. It returns cached denials only if `caches_all` is `true`.
    /// Otherwise, only [`cached_denial`](Self::cached_denial) returns them.
    pub(super) store: Arc<dyn Store>,
    cache: Option<Arc<dyn DenialSource>>,
    caches_all: bool,
}

/// A cache that returns a denial without a call to its store.
trait DenialSource: fmt::Debug + Send + Sync {
    fn cached_denial(&self, call: Call<'_>) -> Option<Decision>;
}

impl<S: Store, C: Clock> DenialSource for DenyCacheStore<S, C> {
    fn cached_denial(&self, call: Call<'_>) -> Option<Decision> {
        DenyCacheStore::cached_denial(self, call)
    }
}

impl LimitStore {
    /// Creates a store without a cache. It converts the verdicts on charges beyond a limit.
    pub(super) fn new(store: Arc<dyn Store>) -> Self {
        let store = Arc::new(store.listed(PolicyLists::new()));
        Self { store, cache: None, caches_all: false }
    }

    /// Adds a cache of denials around the store. If `caches_all` is `false`, only
    /// [`cached_denial`](Self::cached_denial) reads the cache.
    pub(super) fn cached<C>(self, cache: DenyCache<C>, caches_all: bool) -> Self
    where
        C: Clock + Clone + 'static,
    {
        let cached = Arc::new(self.store.deny_cache(cache));
        let store: Arc<dyn Store> = match caches_all {
            true => Arc::<DenyCacheStore<_, C>>::clone(&cached),
            false => Arc::new(cached.without_answers()),
        };
        Self { store, cache: Some(cached), caches_all }
    }

    /// Returns `true` if the cache also keeps denials of each `rate_limit:`, and of policies with
    /// refunds.
    pub(super) fn caches_all(&self) -> bool {
        self.caches_all
    }

    /// Returns the denial of a call if the cache contains it.
    pub(super) fn cached_denial(&self, call: Call<'_>) -> Option<Decision> {
        self.cache.as_ref()?.cached_denial(call)
    }
}
