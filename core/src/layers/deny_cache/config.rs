//! Configuration of the deny cache.

use std::time::Duration;

use crate::time::micros_of;
use crate::{Clock, SystemClock};

/// Configures a cache of denials, for [`StoreExt::deny_cache`](crate::StoreExt::deny_cache).
///
/// A refusal contains the time after which to retry. If the caller retries earlier, the cache
/// refuses the call without the store. So a flood of refused requests costs the store one call per
/// [`retry_after`](crate::Decision::retry_after).
///
/// ```
/// # tokio_test(async {
/// use std::time::Duration;
/// use tidegate_core::{DenyCache, Limiter, ManualClock, StoreExt};
/// use tidegate_memory::MemoryStore;
///
/// let clock = ManualClock::default();
/// let store = MemoryStore::builder().clock(clock.clone()).build(); // or a remote store
/// let store = store.deny_cache(DenyCache::new().clock(clock.clone()));
/// let stats = store.stats();
/// let limiter = Limiter::new(store, ["fixed-window 1/10s".parse()?])?;
///
/// assert!(limiter.acquire("alice").await?.is_allowed());
/// assert!(limiter.acquire("alice").await?.is_denied()); // by the store
/// clock.advance(Duration::from_secs(1));
/// let decision = limiter.acquire("alice").await?;
/// assert_eq!(decision.retry_after(), Some(Duration::from_secs(9)));
/// assert_eq!((stats.hits(), stats.misses()), (1, 2));
///
/// limiter.subject("alice").refund().await?;
/// assert!(limiter.acquire("alice").await?.is_allowed()); // no stale refusal
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # });
/// # fn tokio_test(f: impl std::future::Future<Output = Result<(), Box<dyn std::error::Error>>>) {
/// #     tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(f).unwrap();
/// # }
/// ```
///
/// # What is cached
///
/// The cache keeps denials of acquires and peeks. A denial answers only acquires and peeks with
/// exactly the same charges: policies, tenants, subjects and costs. A denial is valid as long as
/// each denying policy would still deny the call. The cache does not keep the following answers:
///
/// * a decision that allows the call, a [degraded](crate::Decision::degraded) decision, or a denial
///   that never ends because the cost is above the limit;
/// * the denial of a peek by a policy with [`block_for`](crate::Policy::block_for). If the cache
///   answered the next acquire, the store would not write the block. After the store has written
///   the block, the cache keeps the denial until the block ends;
/// * a refusal by a policy whose block [restarts](crate::Block::restarting), because the store must
///   restart the block;
/// * the denial of a subject that is not blocked but has [offenses](crate::Block::growing), because
///   the store possibly forgets them before the denial ends;
/// * the denial of a call with a policy that [counts failures](crate::Policy::count_failures). Such
///   a denial is possibly not an offense, while the next denial is an offense;
/// * the denial of a call with more than 4 KiB of tenants and subjects.
///
/// # Exactness
///
/// If all calls for a subject pass through this cache, each call gets the same outcome as from the
/// store. A cached denial also has the same denied charges, limit, `retry_after`, `reset_after`,
/// `blocked_for` and `block_level`. Only `remaining` can be lower than in the store, for two kinds
/// of charges: a charge that is denied at a cost above 1, and a charge that is not denied. When the
/// `reset_after` of such a charge is over, its `remaining` is the limit. With
/// [`only_exact`](Self::only_exact), the store answers calls with such charges.
///
/// The cache does not notice changes that other processes make in the store, until the cached
/// denial ends. So a refund or a reset in another process takes effect in this process up to
/// `retry_after` later, and at most the [maximum age](Self::max_age) later.
///
/// The cache measures the time of a denial from a moment before it sent the call. So a denial does
/// not end later in the cache than in the store, even if the clocks of the cache and the store
/// differ by years. But these clocks must run at the same rate. At a drift of 200 ppm, a block of
/// an hour can last 0.7 s longer in the cache.
///
/// If the [`Clock`] of the cache steps back to a time before a call was sent, the cache is cleared.
/// [`SystemClock`] never steps back.
///
/// # Invalidation
///
/// A cached denial becomes invalid when a call through this cache can change one of its states.
/// Such a call is an acquire, a reservation, a charge, a refund, an undo, a reset, a block, a hold
/// or a settlement. The denial becomes invalid even if that call is in a batch, fails, or gets no
/// answer. If the call fails and the store executes it later, the change counts like a change by
/// another process.
///
/// If a call that can change a state is made while a denial for this state is in flight from the
/// store, the denial is not cached. If the numbers of a policy change, the cache has no denials for
/// the changed policy, so the store decides the next call.
///
/// # Memory
///
/// The cache uses at most [`max_bytes`](Self::max_bytes) for all keys and tables, regardless of the
/// subjects that callers choose. A full cache evicts expired denials first, and then denials that
/// were not used recently. Among the denials that were not used recently, the cache evicts the
/// denial that ends first. An eviction costs one call to the store.
#[derive(Debug, Clone)]
#[must_use = "a configuration does nothing until a store has it"]
pub struct DenyCache<C = SystemClock> {
    pub(super) clock: C,
    pub(super) max_bytes: usize,
    pub(super) only_exact: bool,
    pub(super) max_age: u64,
}

impl DenyCache {
    /// The default of [`max_age`](Self::max_age): 2 seconds.
    pub const DEFAULT_MAX_AGE: Duration = Duration::from_secs(2);

    /// Creates a configuration for a cache of at most 16 MiB, with the system clock.
    pub fn new() -> Self {
        Self {
            clock: SystemClock::new(),
            max_bytes: 16 << 20,
            only_exact: false,
            max_age: micros_of(Self::DEFAULT_MAX_AGE),
        }
    }
}

impl Default for DenyCache {
    fn default() -> Self {
        Self::new()
    }
}

impl<C: Clock> DenyCache<C> {
    /// The minimum value of [`max_bytes`](Self::max_bytes): 64 KiB.
    pub const MIN_BYTES: usize = 64 << 10;

    /// Sets the maximum memory in bytes, at least [`MIN_BYTES`](Self::MIN_BYTES).
    ///
    /// The default maximum is 16 MiB. This memory is enough for about 40,000 denials of calls with
    /// one charge, because each of them needs about 400 bytes. A twelfth of the memory is allocated
    /// when the cache is created.
    pub fn max_bytes(self, bytes: usize) -> Self {
        Self { max_bytes: bytes.max(Self::MIN_BYTES), ..self }
    }

    /// Sends a call to the store if `remaining` in the cached answer would only be a lower bound.
    pub fn only_exact(self) -> Self {
        Self { only_exact: true, ..self }
    }

    /// Sets the maximum time for which a cached denial answers calls. After that time, the next
    /// call is sent to the store. The default is [`DEFAULT_MAX_AGE`](Self::DEFAULT_MAX_AGE).
    ///
    /// A refund, a reset or an unban in another process takes effect in this process within the
    /// maximum age. With an age of a second, a flood on one subject still costs the store only one
    /// call per second. With [`Duration::MAX`], a denial answers calls until it ends.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// use std::time::Duration;
    /// use tidegate_core::{DenyCache, Limiter, ManualClock, StoreExt};
    /// use tidegate_memory::MemoryStore;
    ///
    /// let clock = ManualClock::default();
    /// let shared = std::sync::Arc::new(MemoryStore::builder().clock(clock.clone()).build());
    /// let cache = DenyCache::new().clock(clock.clone()).max_age(Duration::from_secs(1));
    /// let policy = || "day: fixed-window 1/1d".parse();
    /// let limiter = Limiter::new(shared.clone().deny_cache(cache), [policy()?])?;
    /// assert!(limiter.acquire("alice").await?.is_allowed());
    /// assert!(limiter.acquire("alice").await?.is_denied());
    ///
    /// Limiter::new(shared, [policy()?])?.subject("alice").reset().await?; // in another process
    /// assert!(limiter.acquire("alice").await?.is_denied());
    /// clock.advance(Duration::from_secs(1));
    /// assert!(limiter.acquire("alice").await?.is_allowed());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn max_age(self, age: Duration) -> Self {
        Self { max_age: micros_of(age), ..self }
    }

    /// Sets the clock that determines when a cached denial ends. The default is [`SystemClock`].
    pub fn clock<D: Clock>(self, clock: D) -> DenyCache<D> {
        let Self { max_bytes, only_exact, max_age, .. } = self;
        DenyCache { clock, max_bytes, only_exact, max_age }
    }
}
