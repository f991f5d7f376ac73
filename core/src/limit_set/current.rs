//! The limit set that is in force.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use super::LimitSet;
use crate::clock::{Clock, SystemClock};
use crate::time::Timestamp;

/// The [`LimitSet`] that is in force. Clones share the set, so that a program can keep a clone and
/// replace the set while a store uses it. A decision uses one version of the set.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// use tidegate_core::{CurrentLimits, LimitSet, Limiter, StoreExt};
/// use tidegate_memory::MemoryStore;
///
/// let limits = CurrentLimits::new(LimitSet::new());
/// let store = MemoryStore::new().adjusted(limits.clone());
/// let limiter = Limiter::new(store, ["plan: fixed-window 1/1h".parse()?])?; // the default
/// assert!(limiter.acquire("alice").await?.is_allowed());
/// assert!(limiter.acquire("alice").await?.is_denied());
///
/// limits.replace("plan: fixed-window 3/1h for subject alice".parse()?);
/// let decision = limiter.acquire("alice").await?;
/// assert_eq!(decision.verdicts()[0].limit(), 3);
/// assert_eq!(decision.verdicts()[0].remaining(), 1); // the usage so far counts
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct CurrentLimits(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    versions: RwLock<Arc<Versions>>,
    clock: Box<dyn Clock>,
    /// The time of the store minus the time of `clock`, in microseconds.
    offset: AtomicI64,
}

/// The set that is in force, and the set before.
#[derive(Debug, Default)]
pub(crate) struct Versions {
    pub(crate) current: Arc<LimitSet>,
    pub(crate) previous: Arc<LimitSet>,
}

impl Default for CurrentLimits {
    fn default() -> Self {
        Self::new(LimitSet::new())
    }
}

impl CurrentLimits {
    /// Creates a value with a set that is in force immediately. Overrides end by the clock of the
    /// system.
    #[must_use]
    pub fn new(set: LimitSet) -> Self {
        Self::with_clock(set, SystemClock::new())
    }

    /// Creates a value whose overrides end by `clock`.
    #[must_use]
    pub fn with_clock(set: LimitSet, clock: impl Clock + 'static) -> Self {
        let versions = Versions { current: Arc::new(set), ..Versions::default() };
        Self(Arc::new(Shared {
            versions: RwLock::new(Arc::new(versions)),
            clock: Box::new(clock),
            offset: AtomicI64::new(0),
        }))
    }

    /// Puts another set in force. A decision that is being made still uses the previous set.
    pub fn replace(&self, set: LimitSet) {
        let mut versions = self.0.versions.write().unwrap_or_else(PoisonError::into_inner);
        let previous = Arc::clone(&versions.current);
        *versions = Arc::new(Versions { current: Arc::new(set), previous });
    }

    /// Returns the set that is in force.
    #[must_use]
    pub fn set(&self) -> Arc<LimitSet> {
        Arc::clone(&self.versions().current)
    }

    /// Tells the time of the store. From now on, overrides end by the clock of the store.
    pub fn synchronize(&self, store_time: Timestamp) {
        let micros = |time: Timestamp| time.as_micros().cast_signed();
        let offset = micros(store_time) - micros(self.0.clock.now());
        self.0.offset.store(offset, Ordering::Relaxed);
    }

    /// Returns the time by which overrides end.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        let offset = self.0.offset.load(Ordering::Relaxed);
        let now = self.0.clock.now().as_micros().checked_add_signed(offset);
        Timestamp::from_micros(now.unwrap_or(0))
    }

    pub(crate) fn versions(&self) -> Arc<Versions> {
        Arc::clone(&self.0.versions.read().unwrap_or_else(PoisonError::into_inner))
    }
}
