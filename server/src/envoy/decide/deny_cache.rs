//! The cache of denials of a server.

use std::fmt;
use std::sync::Arc;

use tidegate_core::layers::DenyCacheStore;
use tidegate_core::{Call, Clock, Decision, DenyCache, Store, StoreExt};

/// A store of limits, with a cache of denials around it if the cache is enabled.
#[derive(Debug, Clone)]
pub(super) struct LimitStore {
    /// The cache, or the store itself.
    pub(super) store: Arc<dyn Store>,
    cache: Option<Arc<dyn DenialSource>>,
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
    pub(super) fn new(store: Arc<dyn Store>) -> Self {
        Self { store, cache: None }
    }

    /// Adds a cache of denials around the store.
    pub(super) fn cached<C: Clock + 'static>(self, cache: DenyCache<C>) -> Self {
        let cached = Arc::new(self.store.deny_cache(cache));
        Self { store: Arc::<DenyCacheStore<_, C>>::clone(&cached), cache: Some(cached) }
    }

    pub(super) fn has_cache(&self) -> bool {
        self.cache.is_some()
    }

    /// Returns the denial of a call if the cache knows it.
    pub(super) fn cached_denial(&self, call: Call<'_>) -> Option<Decision> {
        self.cache.as_ref()?.cached_denial(call)
    }
}
