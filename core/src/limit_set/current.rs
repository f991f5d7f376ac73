//! The limit set that is in force.

use std::fmt;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use super::{LimitSet, LookUp};
use crate::clock::{Clock, SystemClock};
use crate::error::Error;
use crate::store::Answer;
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
    /// The time of `clock`, in microseconds since 1970, before which no override is loaded, because
    /// a source has failed. It is 0 after a success.
    load_again_at: AtomicU64,
}

/// The set that is in force, and the set before.
#[derive(Debug, Clone, Default)]
pub(crate) struct Versions {
    pub(crate) current: Arc<LimitSet>,
    pub(crate) previous: Arc<LimitSet>,
    /// The source of the overrides of `current` that are not in memory. It is `None` if all are.
    source: Option<Arc<dyn OverrideSource>>,
}

/// Keeps the overrides of one version of a [`LimitSet`] that is [partly in
/// memory](LimitSet#a-set-that-is-partly-in-memory). [`CurrentLimits::replace_partly`] puts the
/// version in force.
pub trait OverrideSource: fmt::Debug + Send + Sync {
    /// Returns the lines of the overrides with these keys, in any order: see [`LimitSet::lines`].
    fn read<'a>(&'a self, keys: &'a [String]) -> Answer<'a, Result<Vec<String>, Error>>;
}

/// The pause after a source has failed, until overrides are loaded again. So if the source is a
/// server that does not answer, only one call per second waits for it.
const PAUSE: Duration = Duration::from_secs(1);

/// The maximum number of versions for which a call loads overrides. If each of these versions is
/// replaced while the call waits, the call is decided by what is in memory.
const MAX_VERSIONS: usize = 3;

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
            load_again_at: AtomicU64::new(0),
        }))
    }

    /// Puts another set in force. A decision that is being made still uses the previous set.
    pub fn replace(&self, set: LimitSet) {
        self.put_in_force(set, None);
    }

    /// Puts another set in force that is [partly in
    /// memory](LimitSet#a-set-that-is-partly-in-memory). A call that needs one of the other
    /// overrides waits until `source` has returned it. The override stays in memory for the next
    /// calls.
    ///
    /// If the source fails, or an override of the source is not valid, the call is decided without
    /// the override: by the policy of the set, or else by the policy of the program.
    pub fn replace_partly(&self, set: LimitSet, source: Arc<dyn OverrideSource>) {
        self.put_in_force(set, Some(source));
    }

    fn put_in_force(&self, set: LimitSet, source: Option<Arc<dyn OverrideSource>>) {
        let source = source.filter(|_| set.is_partial());
        let mut versions = self.0.versions.write().unwrap_or_else(PoisonError::into_inner);
        let previous = Arc::clone(&versions.current);
        *versions = Arc::new(Versions { current: Arc::new(set), previous, source });
    }

    /// Returns `true` if an override of the set in force is [not in
    /// memory](LimitSet#a-set-that-is-partly-in-memory).
    #[must_use]
    pub fn is_partial(&self) -> bool {
        self.versions().is_partial()
    }

    /// Loads the overrides for the given names of policies, tenants and subjects that are [not in
    /// memory](LimitSet#a-set-that-is-partly-in-memory). The tenant is empty for a subject without
    /// a tenant. Returns the set in force, with all needed overrides: other calls can remove them
    /// from memory at any time. A store that is [adjusted](crate::StoreExt::adjusted) does this
    /// itself.
    pub async fn load(&self, needed: &[(&str, &[u8], &[u8])]) -> Arc<LimitSet> {
        Arc::clone(&self.loaded(needed).await.current)
    }

    /// Returns the versions in force after the needed overrides were loaded.
    pub(crate) async fn loaded(&self, needed: &[LookUp<'_>]) -> Arc<Versions> {
        for _ in 0..MAX_VERSIONS {
            let versions = self.versions();
            let keys = versions.absent(needed);
            let Some(source) = versions.source.as_ref().filter(|_| !keys.is_empty()) else {
                return versions;
            };
            if !self.may_load() {
                return versions;
            }
            let lines = source.read(&keys).await;
            let again_at = if lines.is_ok() { 0 } else { self.after_pause() };
            self.0.load_again_at.store(again_at, Ordering::Relaxed);
            let Ok(lines) = lines else { return versions };
            if let Some(loaded) = self.add(&versions, &lines) {
                return loaded;
            }
        }
        self.versions()
    }

    /// Returns `false` while calls must not wait for a source that has failed. After the pause, one
    /// call gets `true`, and tries the source again.
    fn may_load(&self) -> bool {
        let (load_again_at, order) = (&self.0.load_again_at, Ordering::Relaxed);
        let at = load_again_at.load(order);
        at == 0
            || at <= self.0.clock.now().as_micros()
                && load_again_at.compare_exchange(at, self.after_pause(), order, order).is_ok()
    }

    fn after_pause(&self) -> u64 {
        self.0.clock.now().saturating_add(PAUSE).as_micros()
    }

    /// Adds loaded overrides to the set in force, if it is still that of `versions`. Returns
    /// `versions` with these overrides. They decide the call, because the set in force can have
    /// lost other overrides of the call from memory.
    fn add(&self, versions: &Versions, lines: &[String]) -> Option<Arc<Versions>> {
        let loaded = versions.with_loaded(lines);
        let mut in_force = self.0.versions.write().unwrap_or_else(PoisonError::into_inner);
        let is_same = match (&versions.source, &in_force.source) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            _ => false,
        };
        if !is_same {
            return None;
        }
        let mut kept = Versions::clone(&in_force);
        Arc::make_mut(&mut kept.current).make_room(lines.len());
        *in_force = Arc::new(kept.with_loaded(lines));
        Some(Arc::new(loaded))
    }

    /// Adds the lines of overrides to the set in force that are not in its memory. Call this method
    /// before a new version replaces these overrides. So a settlement can find a hold that an
    /// override of the previous version has decided.
    pub fn add_loaded(&self, lines: &[String]) {
        let mut in_force = self.0.versions.write().unwrap_or_else(PoisonError::into_inner);
        if in_force.is_partial() {
            *in_force = Arc::new(in_force.with_loaded(lines));
        }
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

impl Versions {
    /// Returns `true` if an override is not in memory.
    pub(crate) fn is_partial(&self) -> bool {
        self.source.is_some()
    }

    /// Returns the keys of the needed overrides that are not in memory.
    pub(crate) fn absent(&self, needed: &[LookUp<'_>]) -> Vec<String> {
        let keys = needed.iter().flat_map(|needed| self.current.absent(*needed));
        let mut keys: Vec<_> = keys.collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    /// Returns a copy with loaded overrides. A line that is not valid changes nothing.
    fn with_loaded(&self, lines: &[String]) -> Self {
        let mut set = LimitSet::clone(&self.current);
        for line in lines {
            let _ = set.load_line(line);
        }
        Self { current: Arc::new(set), ..self.clone() }
    }
}
