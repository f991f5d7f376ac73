//! Stores around a store: what happens when it is slow or down, and what it need not be asked.
//!
//! Each is a [`Store`] itself, so they compose, by the methods of [`StoreExt`]. The last one named is
//! the first to be asked.

#[cfg_attr(not(test), expect(dead_code, reason = "told by the stores that are yet to come"))]
pub(crate) mod meters;
#[cfg(any(feature = "metrics", feature = "tracing"))]
pub mod observed;

use crate::Store;

/// Puts stores around a store.
pub trait StoreExt: Store + Sized {
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
    fn observed(self) -> observed::Observed<Self> {
        observed::Observed::new(self)
    }
}

impl<S: Store> StoreExt for S {}
