//! Configuration of the deny cache.

use std::sync::Arc;

use super::DenyCacheStore;
use super::cache::Cache;
use super::meter::CacheMeter;
use super::staleness::ClockGuard;
use super::table::Table;
use crate::layers::generations::Generations;
use crate::sync::hash::RandomState;
use crate::{Clock, Store, SystemClock};

/// Configures a cache of denials, for [`StoreExt::deny_cache`](super::super::StoreExt::deny_cache).
///
/// A refused caller learns when to retry. If it retries earlier, the cache refuses it, and the store is not
/// called: a flood of refused requests costs the store one call per
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
/// clock.advance(Duration::from_secs(3));
/// let decision = limiter.acquire("alice").await?;
/// assert_eq!(decision.retry_after(), Some(Duration::from_secs(7)));
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
/// A denial of an acquire or a peek, and only for acquires and peeks of exactly the same charges: policies,
/// tenants, subjects and costs. It is valid until the first of the policies that deny would decide
/// otherwise. Not cached are
///
/// * a decision that allows, that is [degraded](crate::Decision::degraded), or that denies for ever
///   (a cost above the limit);
/// * a denial after which the store has something to write: a peek's, under a policy with
///   [`block_for`](crate::Policy::block_for) that would block the subject. The acquire that blocks it is
///   cached until the block ends;
/// * a call with more than 4 KiB of tenants and subjects.
///
/// # Exactness
///
/// For callers of this cache alone, each call has the outcome that the store would give, with the same
/// `retry_after`, `reset_after`, `blocked_for` and limit, denied by the same charges. `remaining` is the
/// store's, except in two cases, in which it may have grown since and is a lower bound: of a charge that is
/// denied at a cost above 1, and of a charge that is not the one that denies. Once `reset_after` is zero it
/// is the limit. [`only_exact`](Self::only_exact) sends calls to the store in these cases.
///
/// Changes by other processes are seen when the denial ends, at the latest: a refund, a reset or a raised
/// limit elsewhere counts up to `retry_after` later here.
///
/// The time counts from before the call was sent, so that a denial ends here no later than in the store,
/// though the two clocks may differ by years. They must run at the same rate: at 200 ppm of drift a block of
/// an hour may last 0.7 s longer here. A [`Clock`] that steps back, as [`SystemClock`] never does,
/// clears the cache once it is seen behind a time at which a call was sent.
///
/// # Invalidation
///
/// By each acquire, reserve, refund, undo, reset and block through this cache that may change a state
/// on which a denial rests; also by one in a batch, one that fails, or one that is never answered. (What a
/// lost call does when it reaches the store later counts as a change by another process.) A denial that was
/// in flight meanwhile is not cached. A changed policy is another policy, and its calls go to the store.
///
/// # Memory
///
/// At most [`max_bytes`](Self::max_bytes), with all keys and tables, whatever subjects a caller chooses.
/// Expired entries are evicted first, then those not used lately, and of those the one that expires first. An
/// eviction costs a call to the store, and nothing else.
#[derive(Debug, Clone)]
#[must_use = "a configuration does nothing until a store has it"]
pub struct DenyCache<C = SystemClock> {
    clock: C,
    max_bytes: usize,
    only_exact: bool,
}

impl DenyCache {
    /// A cache of at most 16 MiB, with the system clock.
    pub fn new() -> Self {
        Self { clock: SystemClock::new(), max_bytes: 16 << 20, only_exact: false }
    }
}

impl Default for DenyCache {
    fn default() -> Self {
        Self::new()
    }
}

impl<C: Clock> DenyCache<C> {
    /// The minimum of [`max_bytes`](Self::max_bytes): 64 KiB.
    pub const MIN_BYTES: usize = 64 << 10;

    /// The maximum memory in bytes, at least [`MIN_BYTES`](Self::MIN_BYTES). Default: 16 MiB, about 40,000
    /// denials of one charge, at about 400 bytes each. A twelfth is allocated from the start.
    pub fn max_bytes(self, bytes: usize) -> Self {
        Self { max_bytes: bytes.max(Self::MIN_BYTES), ..self }
    }

    /// Calls the store wherever a field of the answer would be a bound only.
    pub fn only_exact(self) -> Self {
        Self { only_exact: true, ..self }
    }

    /// The clock by which denials expire. Default: [`SystemClock`].
    pub fn clock<D: Clock>(self, clock: D) -> DenyCache<D> {
        let Self { max_bytes, only_exact, .. } = self;
        DenyCache { clock, max_bytes, only_exact }
    }

    pub(in crate::layers) fn wrap<S: Store>(self, inner: S) -> DenyCacheStore<S, C> {
        let slots = self.max_bytes / ORDINARY_BYTES;
        let counts = slots * GENERATIONS_PER_SLOT;
        let fixed_bytes = 2 * size_of::<usize>()
            + size_of::<Cache>()
            + Table::bytes_of(slots)
            + Generations::bytes_of(counts);
        let cache = Cache {
            table: Table::new(slots, self.max_bytes.saturating_sub(fixed_bytes)),
            generations: Generations::new(counts),
            clock_guard: ClockGuard::default(),
            hasher: RandomState::default(),
            only_exact: self.only_exact,
            fixed_bytes,
            max_bytes: self.max_bytes,
            meter: CacheMeter::default(),
        };
        DenyCacheStore { inner, clock: self.clock, cache: Arc::new(cache) }
    }
}

/// The bytes of a denial of one charge, with its part of the tables.
const ORDINARY_BYTES: usize = 400;

/// The more there are, the less often keys of one group invalidate each other's denials, which costs a call to
/// the store.
const GENERATIONS_PER_SLOT: usize = 2;
