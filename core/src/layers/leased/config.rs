//! Configuration of leases.

use std::sync::Arc;
use std::time::Duration;

use super::{LeasedStore, Shared};
use crate::{Clock, Policy, PolicyError, Share, Store, SystemClock};

/// Configures leases, for [`StoreExt::leased`](super::super::StoreExt::leased).
///
/// A node takes a *chunk* of a subject's budget from the store in one call, and admits requests from it in memory until
/// it is used up or over. So a hot subject costs the store a call per chunk and not one per request. What is in a chunk
/// is charged before it is used: unlike counters that report afterwards, leases never admit more than the limit. Their
/// price is that what a node holds and has not used yet is missing elsewhere.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// use tidegate_core::layers::Lease;
/// use tidegate_core::{Limiter, StoreExt};
/// use tidegate_memory::MemoryStore;
///
/// let store = MemoryStore::new().leased(Lease::new()); // of use for a store on a server
/// let stats = store.stats();
/// let limiter = Limiter::new(store.clone(), ["fixed-window 1000000/1d".parse()?])?;
/// for _ in 0..1_000 {
///     assert!(limiter.acquire("ingest").await?.is_allowed());
///     tokio::task::yield_now().await; // a memory store does not wait, and the next chunk is fetched by a task
/// }
/// assert!(stats.local() > 900);
/// assert_eq!(stats.local() + stats.passed(), 1_000);
///
/// store.close().await; // gives back what was not used
/// let peek = limiter.subject("ingest").peek().await?;
/// assert_eq!(peek.verdicts()[0].remaining(), 999_000);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
///
/// # What is leased
///
/// Acquires of which more than [`hot_after`](Self::hot_after) were admitted within a [span](Self::span). Calls with the
/// same policies, tenants and subjects share a lease, at any costs. Policies of one call are leased together, or not at
/// all. Not leased, and so decided by the store one by one, are calls with
///
/// * a sliding log or counter, unless [`sliding`](Self::sliding) says so;
/// * a policy with [`block_for`](Policy::block_for), with [`refund_lapsed`](Policy::refund_lapsed), or whose requests may
///   go to [any shard](crate::Shards::any);
/// * a shadow that does not admit the chunk;
/// * an [id](crate::CallId), a [check-only](crate::Charge::check_only) charge, two charges to one state, more than 8
///   charges, or more than 1 KiB of tenants and subjects;
/// * more than one slot of a cluster, as the store must be able to [hold](crate::Operation::Hold) them.
///
/// A chunk is what the node used lately in half a span, and at most a [share](Self::max_share) of what remains. So chunks
/// shrink as a limit comes near; where one would be of fewer than 4 calls, the store decides on each call. The next chunk
/// is fetched while half of the last one is left, by a task: no caller waits for it unless the store refuses meanwhile. A chunk that is not used up within
/// the span goes back, in the window in which it was taken.
///
/// A call with a cost of 0 begins no lease and fetches no chunk, but is admitted from a chunk if there is one.
///
/// # What is admitted
///
/// With `N` nodes, a span `s` and the limit of the policy `L`, or its burst `B` and rate `R`:
///
/// | policy | admitted at most |
/// |---|---|
/// | fixed window, of any start | `L` in each window: as without leases |
/// | token bucket, GCRA | `B + R·(t + s)` in any time `t`: the curve, shifted by the span |
/// | token bucket by intervals of `P` | `B + R·(⌊(t + s)/P⌋ + 1)` |
/// | sliding log, if [leased](Self::sliding) | `L` in any time of `W − s` |
/// | sliding counter, if leased | in any time `t`, what it admits in `t + s` without leases |
/// | any of the last four, under the [exact policy](Self::exact) | as without leases |
/// | several policies in one call | each as in its row |
/// | a cost of 0, which takes nothing | what the store would have admitted at some time of the last span |
///
/// That holds whatever the network does, however many nodes are killed, and whatever times the clocks of nodes
/// show: times are counted from before a call is sent, by the clock of the node. A clock that runs slow by up to a
/// thousandth is allowed for. It must not stop while its process goes on, as in a machine that is suspended.
///
/// Refused too early is at most what other nodes hold unused, two chunks of each at most, and what is on its way from them
/// back to the store. A refusal is always the store's. Before a node passes one on, it waits for its chunk that is on its
/// way from the store or back to it, if there is one, admits from it, or gives back what it holds of the policies that
/// refuse; and asks again, if that may be enough, three times at most.
///
/// # What other operations do
///
/// | operation | what becomes of the chunks of this node | what it sees of those of other nodes |
/// |---|---|---|
/// | acquire that does not fit in the chunk, or is not leased | they stay; if it is refused, see above | counted as taken |
/// | peek | they stay; what is left of them is added to `remaining`, which may be off by a chunk that is on its way | counted as taken |
/// | acquire up to, hold up to, reserve | they stay if a peek shows that the store has enough without them; otherwise they are returned before | counted as taken |
/// | charge, hold, settle, settle so far, extend | they stay: what they admit counts as admitted before; the verdicts count it as taken | counted as taken |
/// | refund, undo | go back before | counted as taken: a refund of more than was used gives back what they hold, and they still use it |
/// | block, block at least | go back before | they are used for up to a span: a block is in force everywhere a span later |
/// | reset | are returned before | they are used for up to a span, and the unspent cost is returned: up to as much more may be admitted |
///
/// A call before which chunks are returned waits for their settlements, and for chunks in flight.
/// The node fetches no chunk of its states until it is answered. The next chunk follows the same
/// demand, so that a small share of such calls does not switch leases off. If chunks admit fewer
/// than 4 calls between two of them, again and again, the store decides on each call for a quarter
/// of a span at a time, because chunks would cost more than they save.
///
/// If other callers take the budget between the peek and the call, an acquire up to or a hold up to
/// may get less than without leases: by at most the cost in the chunks of this node. Before an
/// acquire of a policy that blocks, chunks of the same state are returned, so that none of them
/// causes a block.
/// Calls to the store for other operations are in the order in which callers make them, as without leases. An undo of a
/// request that was admitted from a chunk may give back less, as its time is not that of the take.
///
/// # The answer
///
/// A local admission has a verdict for each policy: `remaining` is what remained in the store when the chunk was granted,
/// and what is left of the chunk; what other nodes have taken since is not known, and neither is what came back.
/// `reset_after` is that of the grant, less the time since.
///
/// # Failures
///
/// While the store is away, what is leased is used until it is used up or over, within a span; after that each call is
/// answered as the store answers it, by an error or a [failure policy](super::super::FallbackStore) around this layer. A chunk
/// whose answer was lost is charged and not used. One that could not be given back, or whose node has ended, stays
/// charged until it recovers by itself.
///
/// # Memory and tasks
///
/// The memory is bounded regardless of the subjects that callers choose. There are at most
/// [`max_leases`](Self::max_leases) leases of at most 3 KiB each, with another 88 bytes for each
/// possible lease. A lease that was not used for a span is removed. After the numbers of a policy
/// have changed, so are the leases of its earlier numbers. Each chunk has a task until it is over,
/// and each lease without a chunk has a task until it is removed. Tasks need the timers of the
/// Tokio runtime.
/// Without a runtime nothing is leased.
#[derive(Debug, Clone)]
#[must_use = "a configuration does nothing until a store has it"]
pub struct Lease<C = SystemClock> {
    clock: C,
    pub(super) settings: Settings,
}

/// The numbers of a configuration.
#[derive(Debug, Clone, Copy)]
pub(super) struct Settings {
    pub(super) span: Duration,
    pub(super) max_share: Share,
    pub(super) hot_after: u32,
    pub(super) max_leases: usize,
    pub(super) leases_sliding: bool,
}

impl Settings {
    pub(super) fn span_micros(&self) -> u64 {
        crate::time::micros_of(self.span)
    }
}

impl Lease {
    /// The minimum of [`span`](Self::span).
    pub const MIN_SPAN: Duration = Duration::from_millis(1);

    /// The maximum of [`span`](Self::span).
    pub const MAX_SPAN: Duration = Duration::from_secs(3600);

    /// Chunks of up to a second and a 200th of what remains, for up to 4,096 calls of which more than 32 are admitted in a
    /// second.
    pub fn new() -> Self {
        let settings = Settings {
            span: Duration::from_secs(1),
            max_share: Share::one_of(200),
            hot_after: 32,
            max_leases: 4_096,
            leases_sliding: false,
        };
        Self { clock: SystemClock::new(), settings }
    }
}

impl Default for Lease {
    fn default() -> Self {
        Self::new()
    }
}

impl<C: Clock> Lease<C> {
    /// The maximum time between the charge of a chunk and its use. Default: a second. Rounded up to microseconds, and to
    /// 1 ms to an hour.
    ///
    /// The shorter it is, the sooner unused budget is back, and a block on another node is in force; the longer, the fewer
    /// calls a subject costs that is not very hot.
    pub fn span(mut self, span: Duration) -> Self {
        let micros = crate::time::micros_of_ceil(span.clamp(Lease::MIN_SPAN, Lease::MAX_SPAN));
        self.settings.span = Duration::from_micros(micros);
        self
    }

    /// The maximum share of what remains in one chunk. Default: 1/200.
    ///
    /// A node has at most two chunks of a lease at a time. With a smaller share less is refused too early and less is lost
    /// with a node that ends; with a larger one the store is called less often, and until closer to the limit. With more than
    /// 20 nodes, take 1 by ten times their number: else they hold too much together when a limit comes near.
    pub fn max_share(mut self, share: Share) -> Self {
        self.settings.max_share = share;
        self
    }

    /// How many calls have to be admitted within a [span](Self::span) before they are leased, at least 1. Default: 32.
    pub fn hot_after(mut self, calls: u32) -> Self {
        self.settings.hot_after = calls;
        self
    }

    /// The maximum number of leases, at least 1. Default: 4,096.
    ///
    /// At the maximum, further calls are not leased until a lease was not used for a span.
    pub fn max_leases(mut self, leases: usize) -> Self {
        self.settings.max_leases = leases;
        self
    }

    /// Leases sliding logs and counters too. They then admit as much in a window of `W − span` as without leases in one of
    /// `W`: put [the exact policy](Self::exact) in force, or accept that. Default: they are not leased.
    ///
    /// What is given back of a log is what is among its newest
    /// [`MAX_UNDO`](crate::algorithm::sliding_log::MAX_UNDO) records.
    pub fn sliding(mut self) -> Self {
        self.settings.leases_sliding = true;
        self
    }

    /// The clock by which chunks end. It must not step back, and must run at the rate of the store's clock, or faster; up
    /// to a thousandth slower is allowed for. Default: [`SystemClock`], which does not follow changes of the wall clock.
    ///
    /// The tasks that give chunks back are woken by Tokio's timers.
    pub fn clock<D: Clock>(self, clock: D) -> Lease<D> {
        Lease { clock, settings: self.settings }
    }

    /// The policy to put in force on all nodes, so that what is admitted with these leases is never more than `policy`
    /// admits without: to the token and the microsecond.
    ///
    /// | policy | in force | price |
    /// |---|---|---|
    /// | fixed window | the same | none |
    /// | token bucket, GCRA | a burst of `B − R·span` | the burst; the rate stays |
    /// | by intervals of `P` | a burst of `B − R·⌈span/P⌉` | the burst |
    /// | sliding log, counter | a window of `W + span` | the rate is `W/(W + span)` of the limit |
    ///
    /// A bucket with a name keeps its states. Another window [is another state](Policy), so all nodes must have the same
    /// [`span`](Self::span).
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate_core::layers::Lease;
    ///
    /// let lease = Lease::new().span(Duration::from_millis(500));
    /// let api = lease.exact(&"api: token-bucket 100/1s burst 1000".parse()?)?;
    /// assert_eq!(api.to_string(), "api: token-bucket 100/1s burst 950");
    /// let log = lease.exact(&"log: sliding-log 100/1m".parse()?)?;
    /// assert_eq!(log.to_string(), "log: sliding-log 100/60500ms");
    /// # Ok::<(), tidegate_core::PolicyError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If the bucket holds no more than what comes back within the span, or a number is outside of the bounds within which
    /// every decision is exact.
    pub fn exact(&self, policy: &Policy) -> Result<Policy, PolicyError> {
        policy.delayed_by(self.settings.span)
    }

    pub(in crate::layers) fn wrap<S>(self, inner: S) -> LeasedStore<S, C>
    where
        S: Store + 'static,
        C: 'static,
    {
        LeasedStore::new(Arc::new(Shared::new(inner, self.clock, self.settings)))
    }
}
