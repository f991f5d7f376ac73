//! The compositions of layers around a store.

use std::sync::Arc;
use std::time::Duration;

use tidegate_cluster::{Breaker, DenyCache};
use tidegate_cluster::{Share, Store, StoreExt};
use tidegate_memory::MemoryStore;

/// A composition of layers, as in the README of the project. Each variant adds layers to the
/// previous variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layers {
    None,
    Timeout,
    Breaker,
    DenyCache,
    Whole,
}

/// The time for which the circuit of the breaker stays open before the breaker probes the store.
const OPEN_FOR: Duration = Duration::from_millis(200);

impl Layers {
    pub(crate) const ALL: [Self; 5] =
        [Self::None, Self::Timeout, Self::Breaker, Self::DenyCache, Self::Whole];

    pub(crate) fn around(self, store: Box<dyn Store>) -> Arc<dyn Store> {
        let timely = |store: Box<dyn Store>| store.timeout(Duration::from_millis(50));
        let broken = |store| timely(store).breaker(Breaker::new().open_for(OPEN_FOR));
        let cached = |store| broken(store).deny_cache(DenyCache::new());
        match self {
            Self::None => Arc::from(store),
            Self::Timeout => Arc::new(timely(store)),
            Self::Breaker => Arc::new(broken(store)),
            Self::DenyCache => Arc::new(cached(store)),
            Self::Whole => {
                let share = Share::new(1, 3).unwrap();
                Arc::new(cached(store).or_fall_back_to(MemoryStore::new(), share).observed())
            }
        }
    }

    /// Returns the maximum additional time until the layers use a recovered store again.
    pub(crate) fn delay(self) -> Duration {
        match self {
            Self::None | Self::Timeout => Duration::ZERO,
            // If the breaker probes the store at the end of the fault, the probe possibly fails.
            // Then the circuit opens once more.
            _ => OPEN_FOR * 2,
        }
    }
}
