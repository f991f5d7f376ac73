//! Stores around a store: what happens when it is slow or down, and what it need not be asked.
//!
//! Each is a [`Store`] itself, so they compose, by the methods of [`StoreExt`]. The last one named is
//! the first to be asked.

mod deny_cache;

pub use deny_cache::{DenyCache, DenyCacheStats, DenyCached};

use crate::{Clock, Store};

/// Puts stores around a store.
pub trait StoreExt: Store + Sized {
    /// Answers refusals from memory until they end: see [`DenyCache`].
    fn deny_cache<C: Clock>(self, cache: DenyCache<C>) -> DenyCached<Self, C> {
        cache.around(self)
    }
}

impl<S: Store> StoreExt for S {}
