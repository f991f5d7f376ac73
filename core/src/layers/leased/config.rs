//! Configuration of leases.

use std::time::Duration;

use super::key::why_not_leased;
use crate::{Charges, Clock, Policy, PolicyError, Share, SystemClock};

/// Configures leases, for [`StoreExt::leased`](super::super::StoreExt::leased).
///
/// A node charges a *chunk* of a limit in the store, by one call. Then the node admits requests
/// from the chunk in memory, until the chunk is used up or its time is over. So a hot subject costs
/// the store one call per chunk instead of one call per request.
///
/// The store charges the cost of a chunk before the node uses the chunk. So leases never admit more
/// than the limit, unlike counters that report their usage afterwards. The price is that other
/// nodes cannot use the unspent cost of a chunk.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// use tidegate_core::{Lease, Limiter, StoreExt};
/// use tidegate_memory::MemoryStore;
///
/// let store = MemoryStore::new().leased(Lease::new()); // useful for a store on a server
/// let stats = store.stats();
/// let limiter = Limiter::new(store.clone(), ["fixed-window 1000000/1d".parse()?])?;
/// for _ in 0..1_000 {
///     assert!(limiter.acquire("ingest").await?.is_allowed());
///     tokio::task::yield_now().await; // lets a task fetch the next chunk
/// }
/// assert!(stats.local() > 900);
/// assert_eq!(stats.local() + stats.passed(), 1_000);
///
/// store.close().await; // returns the unspent cost
/// let peek = limiter.subject("ingest").peek().await?;
/// assert_eq!(peek.verdicts()[0].remaining(), 999_000);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
///
/// # What is leased
///
/// An acquire is leased after [`hot_after`](Self::hot_after) acquires with the same policies,
/// tenants and subjects were admitted within a [span](Self::span). The costs of these acquires can
/// differ. Either all policies of a call are leased, or no policy is. The following calls are never
/// leased, so the store decides each of these calls:
///
/// * a call with a policy that is not [marked](Policy::leased), if the leases are
///   [only for marked policies](Self::only_marked);
/// * a call with a sliding log or counter, unless [`sliding`](Self::sliding) is set;
/// * a call with a policy that has [`block_for`](Policy::block_for) or
///   [`refund_lapsed`](Policy::refund_lapsed), or whose charges can use [any
///   shard](crate::Shards::any);
/// * a call with a shadow policy, if that policy denies the charge of the chunk;
/// * a call with an [id](crate::CallId), a [check-only](crate::Charge::check_only) charge, two
///   charges to one state, more than 8 charges, or more than 1 KiB of tenants and subjects;
/// * a call to more than one slot of a cluster, because a chunk is a
///   [hold](crate::Operation::Hold), and the store cannot hold charges in several slots.
///
/// The size of a chunk is the cost that the node has recently used in half a span. The maximum size
/// is a [share](Self::max_share) of the remaining amount, so that chunks shrink near the limit. If
/// a chunk would admit fewer than 4 calls, the node fetches no chunk, and the store decides each
/// call.
///
/// When half of a chunk is used, a task fetches the next chunk. A caller waits for this task only
/// if the store refuses the caller's call before the next chunk arrives. After the span, the node
/// returns the unspent cost of the chunk to the window in which the chunk was charged.
///
/// A call with a cost of 0 begins no lease and fetches no chunk. If the node already has a chunk
/// for the call, the chunk admits the call.
///
/// # What is admitted
///
/// In the table, `s` is the span, `L` is the limit of a window, and `W` is the length of the
/// window. `B` and `R` are the burst and the rate of a bucket. The table shows the maximum cost
/// that each kind of policy admits with leases:
///
/// | policy | maximum admitted cost |
/// |---|---|
/// | fixed window with any start | `L` in each window, as without leases |
/// | token bucket, GCRA | `B + R·(t + s)` in any time `t`, which is the maximum for the time `t + s` without leases |
/// | token bucket by intervals of `P` | `B + R·(⌊(t + s)/P⌋ + 1)` in any time `t` |
/// | sliding log, if [leased](Self::sliding) | `L` in any time of `W − s` |
/// | sliding counter, if leased | in any time `t`, the maximum for the time `t + s` without leases |
/// | bucket, sliding log or sliding counter, with the [exact policy](Self::exact) in its place | as without leases |
/// | several policies in one call | for each policy, the maximum in the row of that policy |
/// | a call with a cost of 0 | the call is admitted if the store would have admitted the call at a time within the last span |
///
/// The bounds in the table hold during network failures, if nodes are killed, and if the clocks of
/// nodes show wrong times. A node measures the time of a chunk by its own clock, starting before it
/// requests the chunk. This clock can be slower than the store's clock by up to 0.1 %. The clock
/// must not stop while the process runs. On a machine that is suspended, the clock possibly stops.
///
/// A call is possibly refused too early, because other nodes have unspent cost in chunks. For one
/// lease, each other node has at most two chunks, and is possibly returning more chunks to the
/// store.
///
/// Each refusal is a decision of the store. Before a node returns a refusal, it checks whether its
/// own chunks are the cause. The node waits for its chunks that are being fetched or returned, and
/// then admits the call from a chunk if a chunk suffices. If not, the node returns the chunks of
/// the refusing policies and sends the call again, at most three times.
///
/// # What other operations do
///
/// | operation | chunks of this node | chunks of other nodes |
/// |---|---|---|
/// | acquire that does not fit in the chunk, or is not leased | stay; if they are the cause of a refusal, they are used or returned | count as used |
/// | peek | stay; `remaining` includes their unspent cost, but not a chunk in flight | count as used |
/// | acquire up to, hold up to, reserve | stay if a peek shows that the store has enough without these chunks; otherwise they are returned before the call | count as used |
/// | charge, hold, settle, settle so far, extend | stay; the verdicts count the whole cost of these chunks as used | count as used |
/// | refund, undo | are returned before the call | count as used; a refund of more than the used cost also refunds these chunks, and the other nodes still use them |
/// | block, block at least | are returned before the call | are used for up to a span, so that a block is enforced on every node after a span |
/// | reset | are returned before the call | are used for up to a span, and then their unspent cost is returned; so the calls after the reset can use at most the cost of these chunks in addition |
///
/// If a node must return chunks before a call, the call waits for the settlements of these chunks,
/// and for chunks in flight. Until the call is answered, the node fetches no chunk of the states of
/// the call, even if the caller is cancelled.
///
/// After a call for which a node returned its chunks, the node can fetch chunks again. The size of
/// the next chunk follows the demand for the returned chunks. If chunks repeatedly admit fewer than
/// 4 calls before they are returned, they cost more than they save. Then the store decides each
/// call for a quarter of a span at a time.
///
/// Before an acquire up to or a hold up to, the node sends a peek. Between the peek and the call,
/// other callers possibly use the remaining amount. Then the call gets less than without leases.
/// The difference is at most the cost of the chunks of this node.
///
/// Before an acquire of a policy that blocks, the node returns its chunks of the same state, so
/// that no chunk causes a block.
///
/// A node sends calls to the store in the order in which callers make them, as without leases. But
/// if a call must wait for a peek or for the return of chunks, or if the node sends the call again,
/// the node possibly sends later calls first.
///
/// If a chunk admitted a request, an undo of the request possibly refunds less than without leases,
/// because the store charged the cost earlier, when it granted the chunk.
///
/// # The answer
///
/// A decision from a chunk has a verdict for each policy. `remaining` is the amount that remained
/// in the store when the store granted the chunk, plus the unspent cost of the chunk. `remaining`
/// reflects neither the later usage of other nodes nor the later refill. `reset_after` is the value
/// from the grant of the chunk, less the time since the grant.
///
/// # Failures
///
/// While the store is unreachable, a node uses a chunk until the chunk is used up, at most for a
/// span. After that, each call gets the error of the store, or the decision of a [failure
/// policy](crate::OnFailure) around this layer.
///
/// If the answer to the hold of a chunk is lost, the chunk is charged but not used. If a node
/// cannot return a chunk, or the node ends, the unspent cost stays charged until the state
/// recovers.
///
/// # Memory and tasks
///
/// The memory is bounded regardless of the subjects that callers choose. There are at most
/// [`max_leases`](Self::max_leases) leases of at most 3 KiB each, and each possible lease takes
/// another 88 bytes. A lease that was not used for a span is removed, and so are the leases of a
/// policy whose numbers have changed.
///
/// Each chunk has a task until the chunk is over, and each lease without a chunk has a task until
/// the lease is removed. The tasks need the timers of the Tokio runtime. Without a runtime, nothing
/// is leased.
#[derive(Debug, Clone)]
#[must_use = "a configuration does nothing until a store has it"]
pub struct Lease<C = SystemClock> {
    pub(super) clock: C,
    pub(super) settings: Settings,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Settings {
    pub(super) span: Duration,
    pub(super) max_share: Share,
    pub(super) hot_after: u32,
    pub(super) max_leases: usize,
    pub(super) leases_sliding: bool,
    pub(super) only_marked: bool,
}

impl Settings {
    /// Returns `true` if all policies of these charges are marked for leases, or if leases need no
    /// mark.
    pub(super) fn can_lease(&self, charges: Charges<'_>) -> bool {
        !self.only_marked || charges.iter().all(|charge| charge.policy.is_leased())
    }

    pub(super) fn span_micros(&self) -> u64 {
        crate::time::micros_of(self.span)
    }
}

impl Lease {
    /// The minimum of [`span`](Self::span).
    pub const MIN_SPAN: Duration = Duration::from_millis(1);

    /// The maximum of [`span`](Self::span).
    pub const MAX_SPAN: Duration = Duration::from_secs(3600);

    /// Creates a configuration with the default values: a span of one second, chunks of at most
    /// 1/200 of the remaining amount, leases after 32 calls, and at most 4,096 leases.
    pub fn new() -> Self {
        let settings = Settings {
            span: Duration::from_secs(1),
            max_share: Share::one_of(200),
            hot_after: 32,
            max_leases: 4_096,
            leases_sliding: false,
            only_marked: false,
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
    /// Sets the span: the maximum time between the charge of a chunk and its last use. The default
    /// is one second. The value is rounded up to a microsecond. It is at least one millisecond and
    /// at most one hour.
    ///
    /// With a shorter span, the unspent cost of a chunk is returned sooner, and a block by another
    /// node is enforced sooner. With a longer span, a moderately hot subject costs fewer calls to
    /// the store.
    pub fn span(mut self, span: Duration) -> Self {
        let micros = crate::time::micros_of_ceil(span.clamp(Lease::MIN_SPAN, Lease::MAX_SPAN));
        self.settings.span = Duration::from_micros(micros);
        self
    }

    /// Sets the maximum size of a chunk, as a share of the amount that remains in the store. The
    /// default is 1/200.
    ///
    /// A node has at most two chunks per lease at a time. With a smaller share, fewer calls are
    /// refused too early, and if a node ends, less unspent cost stays charged. With a larger share,
    /// the node calls the store less often, and still uses leases closer to the limit.
    ///
    /// With more than 20 nodes, use a share of 1 divided by ten times the number of nodes, for
    /// example 1/500 for 50 nodes. With a larger share, the chunks of all nodes together are too
    /// large near a limit.
    pub fn max_share(mut self, share: Share) -> Self {
        self.settings.max_share = share;
        self
    }

    /// Sets the number of admitted calls within one [span](Self::span) after which further calls
    /// are leased. Only calls with equal policies, tenants and subjects are counted together. The
    /// default is 32, and the minimum is 1.
    pub fn hot_after(mut self, calls: u32) -> Self {
        self.settings.hot_after = calls;
        self
    }

    /// Sets the maximum number of leases. The default is 4,096, and the minimum is 1.
    ///
    /// While the maximum number of leases exists, no new lease begins. A lease is removed if it was
    /// not used for a span.
    pub fn max_leases(mut self, leases: usize) -> Self {
        self.settings.max_leases = leases;
        self
    }

    /// Also leases calls with sliding logs and sliding counters. By default, such calls are not
    /// leased.
    ///
    /// Without leases, a policy with a window `W` admits its limit in any time of length `W`. With
    /// leases, the policy admits the same limit in any time of length `W − span`. To keep the
    /// original bound, enforce the [exact policy](Self::exact) instead. When a node returns a
    /// chunk, a sliding log refunds only the part of the unspent cost that is in the log's newest
    /// [`MAX_UNDO`](crate::algorithm::sliding_log::MAX_UNDO) records.
    pub fn sliding(mut self) -> Self {
        self.settings.leases_sliding = true;
        self
    }

    /// Checks that a policy can be leased.
    ///
    /// ```
    /// use tidegate_core::Lease;
    ///
    /// assert!(Lease::new().check(&"fixed-window 9000/1d".parse()?).is_ok());
    /// let error = Lease::new().check(&"fixed-window 9/1m block 1h".parse()?).unwrap_err();
    /// assert!(error.to_string().contains("`block` and a lease exclude each other"));
    /// # Ok::<(), tidegate_core::PolicyError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error with the reason if the store decides each call with this policy: see [what
    /// is leased](Self#what-is-leased).
    pub fn check(&self, policy: &Policy) -> Result<(), PolicyError> {
        match why_not_leased(policy, self.settings.leases_sliding) {
            Some(reason) => Err(PolicyError::new(reason)),
            None => Ok(()),
        }
    }

    /// Leases only policies that are marked by [`Policy::leased`], which is the word `leased` in
    /// the text of a policy. By default, all policies are leased.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// use tidegate_core::{Lease, Limiter, StoreExt};
    /// use tidegate_memory::MemoryStore;
    ///
    /// let store = MemoryStore::new().leased(Lease::new().only_marked());
    /// for (policy, has_lease) in [("fixed-window 9000/1d", false), ("gcra 9000/1d leased", true)] {
    ///     let limiter = Limiter::new(store.clone(), [policy.parse()?])?;
    ///     for _ in 0..1_000 {
    ///         assert!(limiter.acquire("ingest").await?.is_allowed());
    ///     }
    ///     assert_eq!(!store.stats().is_empty(), has_lease);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// ```
    pub fn only_marked(mut self) -> Self {
        self.settings.only_marked = true;
        self
    }

    /// Sets the clock that determines when a chunk ends. The default is [`SystemClock`], which
    /// ignores changes of the wall clock.
    ///
    /// The clock must not step back. It can be faster than the store's clock, or slower by at most
    /// 0.1 %. The tasks that return chunks use Tokio's timers instead of this clock.
    pub fn clock<D: Clock>(self, clock: D) -> Lease<D> {
        Lease { clock, settings: self.settings }
    }

    /// Returns a stricter policy to enforce on all nodes instead of `policy`. With the leases of
    /// this configuration, the stricter policy never admits more than `policy` admits without
    /// leases. This bound is exact to the token and the microsecond.
    ///
    /// | policy | policy to enforce | price of exactness |
    /// |---|---|---|
    /// | fixed window | the same policy | none |
    /// | token bucket, GCRA | a burst of `B − R·span` | a smaller burst at the same rate |
    /// | token bucket by intervals of `P` | a burst of `B − R·⌈span/P⌉` | a smaller burst at the same rate |
    /// | sliding log, sliding counter | a window of `W + span` | the same limit over a longer window |
    ///
    /// All nodes must have the same [`span`](Self::span), because the stricter policy depends on
    /// it. With different spans, the nodes would enforce different bursts of a bucket, and a
    /// sliding policy would [have another state](Policy) for each span.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate_core::Lease;
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
    /// Returns an error if the capacity of the bucket is not larger than the amount that is
    /// refilled within the span. Also returns an error if a number exceeds the bounds within which
    /// every decision is exact.
    pub fn exact(&self, policy: &Policy) -> Result<Policy, PolicyError> {
        policy.delayed_by(self.settings.span)
    }
}
