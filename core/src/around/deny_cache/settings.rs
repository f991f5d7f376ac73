//! How a deny cache shall be.

use std::sync::Arc;

use foldhash::quality::RandomState;

use super::generations::Generations;
use super::moment::Moments;
use super::table::Table;
use super::{Cache, DenyCacheStore};
use crate::around::meters::CacheMeter;
use crate::{Clock, Store, SystemClock};

/// Answers refusals from memory until they end, for
/// [`StoreExt::deny_cache`](super::super::StoreExt::deny_cache).
///
/// Who is refused is told when it is worth coming back. Who comes earlier is refused by the cache, at
/// once, and the store is not asked: a flood of refused requests costs it one call per
/// [`retry_after`](crate::Decision::retry_after).
///
/// ```
/// # tokio_test(async {
/// use std::time::Duration;
/// use tidegate_core::around::DenyCache;
/// use tidegate_core::{Limiter, ManualClock, StoreExt};
/// use tidegate_memory::MemoryStore;
///
/// let clock = ManualClock::default();
/// let store = MemoryStore::builder().clock(clock.clone()).build(); // or a store far away
/// let store = store.deny_cache(DenyCache::new().clock(clock.clone()));
/// let stats = store.stats();
/// let limiter = Limiter::new(store, ["fixed-window 1/10s".parse()?])?;
///
/// assert!(limiter.acquire("alice").await?.is_allowed());
/// assert!(limiter.acquire("alice").await?.is_denied()); // the store says so, and for how long
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
/// # What is remembered
///
/// A refusal of an acquire or a peek, and only for acquires and peeks of the very same charges:
/// policies, tenants, subjects and costs. It is told again until the first of the policies that refuse
/// would decide otherwise, but not
///
/// * a decision that allows, that is [degraded](crate::Decision::degraded), or that refuses for ever
///   (a cost above the limit);
/// * a refusal after which the store has something to write: a peek's, under a policy with
///   [`block_for`](crate::Policy::block_for) that would shut the subject out. The acquire that does
///   shut it out is remembered until the block ends, and then the store is asked again;
/// * a call of more than 4 KiB of tenants and subjects.
///
/// # How exact it is
///
/// For callers of this cache alone, each call has the outcome that the store would give, with the same
/// `retry_after`, `reset_after`, `blocked_for` and limit, and the same charges refuse. `remaining` is
/// the store's in all but two cases, in which it may have grown since, and what is told is the least
/// that it can be: of a charge that is refused at a cost above 1, and of a charge that is not what
/// refuses the call. Once `reset_after` is zero it is the limit. [`only_exact`](Self::only_exact) asks the store in these cases.
///
/// What others do to the same subjects is seen when the refusal ends, at the latest: a refund, a
/// reset or a raised limit by another process counts up to `retry_after` later here.
///
/// The time counts from before the store was asked, so that a refusal ends here no later than there,
/// though the two clocks may differ by years. They must go equally fast: at 200 ppm of drift a block of
/// an hour may last 0.7 s longer here. A [`Clock`] that steps back, as [`SystemClock`] never does,
/// makes the cache forget everything once it is seen behind a time at which the store was asked.
///
/// # When it is cleared
///
/// By each acquire, reserve, refund, undo, reset and block through this cache that may change a state
/// which a refusal rests on; also one in a batch, one that fails or is never answered. (What a lost one does
/// later, when it reaches the store after all, counts as done by others.) A refusal that was on its
/// way meanwhile is not remembered. A changed policy is another policy, and the store is asked.
///
/// # Memory
///
/// At most [`most_bytes`](Self::most_bytes), with all keys and tables, whoever chooses the subjects.
/// What does not fit pushes out what is over, then what nobody has asked for lately, and of that what
/// ends soonest: that costs a call to the store, and nothing else.
#[derive(Debug, Clone)]
#[must_use = "settings do nothing until they are given to a store"]
pub struct DenyCache<C = SystemClock> {
    clock: C,
    most_bytes: usize,
    only_exact: bool,
}

impl DenyCache {
    /// A cache of at most 16 MiB with the machine's clock.
    pub fn new() -> Self {
        Self { clock: SystemClock::new(), most_bytes: 16 << 20, only_exact: false }
    }
}

impl Default for DenyCache {
    fn default() -> Self {
        Self::new()
    }
}

impl<C: Clock> DenyCache<C> {
    /// The least that [`most_bytes`](Self::most_bytes) can be: 64 KiB.
    pub const LEAST_BYTES: usize = 64 << 10;

    /// The most memory to take, in bytes; at least [`LEAST_BYTES`](Self::LEAST_BYTES). A refusal of
    /// one charge takes about 400, so that the 16 MiB it is by default are some 40,000 of them; a
    /// twelfth of it is taken from the start.
    pub fn most_bytes(self, bytes: usize) -> Self {
        Self { most_bytes: bytes.max(Self::LEAST_BYTES), ..self }
    }

    /// Asks the store wherever the answer could not be told to the last field.
    pub fn only_exact(self) -> Self {
        Self { only_exact: true, ..self }
    }

    /// The clock that says how much of a refusal is over. Default: [`SystemClock`].
    pub fn clock<D: Clock>(self, clock: D) -> DenyCache<D> {
        let Self { most_bytes, only_exact, .. } = self;
        DenyCache { clock, most_bytes, only_exact }
    }

    pub(in crate::around) fn around<S: Store>(self, inner: S) -> DenyCacheStore<S, C> {
        let places = self.most_bytes / ORDINARY_BYTES;
        let counts = places * COUNTS_PER_PLACE;
        let fixed_bytes = 2 * size_of::<usize>()
            + size_of::<Cache>()
            + Table::bytes_of(places)
            + Generations::bytes_of(counts);
        let cache = Cache {
            table: Table::new(places, self.most_bytes.saturating_sub(fixed_bytes)),
            generations: Generations::new(counts),
            moments: Moments::default(),
            hasher: RandomState::default(),
            only_exact: self.only_exact,
            fixed_bytes,
            most_bytes: self.most_bytes,
            meter: CacheMeter::default(),
        };
        DenyCacheStore { inner, clock: self.clock, cache: Arc::new(cache) }
    }
}

/// What a refusal of one charge takes, with its part of the tables.
const ORDINARY_BYTES: usize = 400;

/// The more there are, the less often keys that share a count clear each other's refusals, which costs
/// a call to the store.
const COUNTS_PER_PLACE: usize = 2;
