//! The Redis Cluster backend of Tidegate enforces exact rate limits for many tenants. The tenants
//! are distributed over the nodes of a cluster. The node that serves the slot of a tenant decides
//! all limits of the tenant together, in one round trip.
//!
//! ```no_run
//! use tidegate_cluster::{ClusterStore, Limiter};
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! // Some of the nodes, which report all others. The store does not connect yet.
//! let store = ClusterStore::new(["redis://10.0.0.1:7000", "redis://10.0.0.2:7000"])?;
//! let limiter = Limiter::new(
//!     store,
//!     ["burst: token-bucket 10/1s burst 20".parse()?, "day: sliding-counter 10000/1d".parse()?],
//! )?;
//! let decision = limiter.subject("alice").tenant("acme").acquire().await?; // one script call
//! if decision.is_denied() {
//!     println!("429, Retry-After: {:?}", decision.retry_after_secs()); // none if no wait helps
//! }
//! # Ok(())
//! # }
//! ```
//!
//! This crate re-exports all items of `tidegate-core`, so an application depends only on this
//! crate. The scripts, keys, values and decisions are the same as in [`tidegate_redis`], and the
//! front page of that crate describes them. The servers must be Redis 6.0 or later.
//!
//! | task | see |
//! |---|---|
//! | set the nodes, the user, timeouts, and the number of replicas to wait for | [`ClusterStoreBuilder`] |
//! | create a store of any kind from one URL in a configuration | [`connect_url`], [`StoreBuilder`] |
//! | check the nodes when a program starts | [`ClusterStore::ready`] |
//! | read the guarantees | [below](#guarantees) |
//! | charge several tenants in one call | [below](#calls-across-slots) |
//! | distribute a tenant with more requests than one node can decide | [below](#hot-tenants) |
//! | decide many calls together | [below](#batches) |
//! | find the meaning of an error | [below](#errors) |
//! | learn the effects of moving slots and of failed nodes | [below](#when-the-cluster-changes) |
//!
//! # Guarantees
//!
//! The slot of a key depends only on the hash tag in the key. The hash tag is the
//! [tenant](Charge::tenant), or the subject of a charge without a tenant. Tenant and subject are
//! escaped, so that no subject can choose its slot. **A policy never admits more than its limit.**
//! The only exception is a failover in which Redis itself loses writes.
//!
//! | case | guarantee |
//! |---|---|
//! | charges of one tenant, or of one subject without a tenant | The store makes one script call on one node, as on a single Redis. The call is atomic, makes all charges or none, and writes nothing if it is refused. |
//! | charges of several tenants or subjects | The store makes all charges or none, but not at one instant: [see below](#calls-across-slots). |
//! | several calls in a batch | Each call has the guarantee of a single call. The calls of one slot are executed in order. |
//! | charges to a policy [in shards](Policy::sharded) | The limit is never exceeded. A request is possibly refused although another shard has room: [see below](#hot-tenants). |
//! | the slot is moving | The guarantees are the same. The store sends a call to the node that has the keys of the call, and the call is executed once. If only some keys of a call have moved, the call fails with `Busy`, unless the other keys move in time. A call has one key per charge, and another key if it has an [id](CallId). A refund, a reset and an operation of a hold also have the keys of [epochs](tidegate_redis#holds), except on slots. A key that does not exist counts as a key that has moved. |
//! | the node has failed | The cluster loses the writes that the promoted replica had not received, so these amounts can be admitted again. [Waiting for replicas](ClusterStoreBuilder::wait_for_replicas) makes this loss rarer. |
//! | the clock | The store uses the clock of the node that serves the slot. Differences between the clocks of nodes have no effect within a slot. After a failover, the store uses the clock of the new node. A state handles the difference of the clocks like any [step of its clock](Store). Redis 6 replicates the lives of keys as spans: if the clock of the new node is earlier, its keys expire early by the difference. |
//!
//! # Calls across slots
//!
//! A script cannot access two slots, so a call across slots takes two steps. In the first step, the
//! peek, each slot reports whether it would admit its own charges. If one slot would refuse its
//! charges, the call is refused. Otherwise, each slot makes its charges in the second step. In each
//! step, all slots work concurrently. The decision has the same content as on one Redis: the
//! policies that refuse, and the remaining amount of each policy.
//!
//! | the call | round trips | writes |
//! |---|---|---|
//! | is admitted | 2 | the charges of the call |
//! | is admitted, and one of its policies would admit fewer than 16 further calls with the same cost | 3 | the charges of the call, first in the slot with the least remaining |
//! | is refused | 1 | nothing |
//! | is refused by a policy that [blocks](Policy::block_for) | 2 | the block; only the slots of policies that block need the second round trip |
//! | is refused after the peek by a limit that the peek reported as nearly used up | 2 | nothing |
//! | is refused after the peek by another limit, because another call used its rest | 3 or 4 | charges, which are then [undone](Operation::Undo) |
//! | is a peek, a refund, a charge beyond the limit, a reset or a block | 1 | each slot writes its own part of the call |
//!
//! * **No limit is exceeded**, because a call is admitted only if each slot has made its charges.
//! * **Refused calls charge nothing**, regardless of their number and their policies, and even if
//!   their cost is above the limit. If the settings of a policy have changed, refused calls also do
//!   not change the states that were written under the older settings.
//! * The peeks of many concurrent calls can report the same last unit of a limit, but only one of
//!   these calls gets that unit. So if a limit is nearly used up, a call first charges the slot of
//!   this limit. It charges the other slots only if the first slot has admitted its charges.
//! * Sometimes, another call uses up a limit after the peek, in a slot that is not charged first.
//!   Only in this case, a refused call makes charges, which the store undoes one round trip later.
//!   Until the undo, other calls are possibly refused because of these charges. An undo never
//!   refunds more than the charge of its own call. It can refund less if other calls have charged
//!   the same state since, or if a window has ended.
//! * **If the client process dies** between a charge and its undo, the charge remains as if the
//!   call had been admitted. The charge lasts at most for the window (for a sliding counter, two
//!   windows). In a bucket, it lasts until the bucket has refilled the cost. A bucket by intervals
//!   refills only at the end of an interval. If only the caller is cancelled, for example after a
//!   [timeout](StoreExt::timeout), no charge remains, because a task completes the call.
//! * **If a slot fails in the peek**, nothing was charged in any slot. If a slot fails in the
//!   second step, the store undoes the charges in the other slots. If an undo fails, the error
//!   reports the failed undo. The charge remains, as after the death of a client.
//! * If a part of a failed call was possibly charged, the kind of its error is never [definitely
//!   not charged](ErrorKind::is_definitely_not_charged).
//! * The store writes a block one round trip after the peek. If the window of the policy has ended
//!   since the peek, the policy would admit the charge, and the store writes no block. The call is
//!   still refused.
//! * A shadow policy is charged only if the call is admitted.
//! * A reservation first peeks in each slot, to check that the wait is short enough. Then the store
//!   reserves in all slots. The wait in the decision is the longest wait of all slots.
//! * A refund, a charge beyond the limit, a reset and a block are sent to each slot. If one slot
//!   fails, the other slots have possibly executed their parts of the call.
//! * An acquire [up to the costs](Operation::AcquireUpTo) fails with
//!   [`Unsupported`](ErrorKind::Unsupported), because no slot can decide for all slots. A call with
//!   an [id](CallId), such as a [hold](Operation::Hold), fails for the same reason.
//!
//! If limits must be decided together in one round trip, their charges must have the same tenant.
//!
//! # Hot tenants
//!
//! One node serves all states of a tenant, because these states are in one slot. If a tenant has
//! more requests than one node can decide, its limit can be split. Split it with
//! [`Policy::sharded`], or with `shards 8` at the end of the text of a policy. The policy then has
//! 8 states in evenly distributed slots, and the limits of these states add up to the limit of the
//! policy. The store sends a request to one of these states. If this state refuses the request, the
//! store tries a second state. `docs/scale.md` reports how rarely a request is refused although
//! another state would admit it.
//!
//! A call that charges a policy in shards and another policy is a call across slots. The exception
//! is a call with policies that all have the same number of shards, because their states are in the
//! same slots.
//!
//! # Batches
//!
//! [`Store::decide_many`] makes one script call for all calls of a slot. It sends all script calls
//! for a node in one write, and writes to all nodes concurrently. An error or a redirect of a
//! script call affects only the calls in this script call. After a redirect, the store sends only
//! these calls again.
//!
//! A script call and a write have at most 1,024 charges. A node needs up to 10 ms for this many
//! charges. The store sends a larger batch in several parts, one after the other, and the node
//! serves other clients between two parts. The response timeout applies to each part. A call with
//! an [id](CallId) is sent alone and in order, so several such calls in one slot take one round
//! trip each.
//!
//! A node needs the least time for the calls of one slot if they form a *usual batch*.
//! [`tidegate_redis`](tidegate_redis#batches) defines usual batches.
//!
//! [`StoreExt::coalesced`] combines the calls of concurrent callers. It makes separate batches for
//! each node, so that a slow node delays no calls to other nodes. It sends a call alone if the call
//! has an id, is a call across slots, or charges a policy in shards. While a slot moves, the calls
//! of the slot are possibly executed in another order.
//!
//! # When the cluster changes
//!
//! At the first call, the store queries any node for the assignment of slots to nodes. A background
//! task repeats the query when a node redirects a call, cannot be reached, or reports that the
//! cluster is down. The task makes a query at most every 100 ms. A call does not wait for a query
//! if the store knows the node of the call's slot. Each node has its own connections, so a hanging
//! node delays no calls to other nodes. The store makes and replaces connections like the
//! [connections to a single server](tidegate_redis#connections).
//!
//! * `MOVED`: the node did not execute the call. The store sends the call to the node that the
//!   redirect names. It also sends later calls of the slot to that node.
//! * `ASK`: the store sends ASKING and the call to the node that the redirect names. Both commands
//!   are in the same write, so that the node executes no other command between them.
//! * `TRYAGAIN`: the store sends the call again after some milliseconds. If the script call was for
//!   several calls, the store splits it into one script call per call.
//! * `NOSCRIPT`: the node does not know the script. The store sends the call to the same node
//!   again, together with the script.
//! * If the nodes redirect a call more than eight times, the call fails with `Busy`. The pauses
//!   between the attempts take less than half a second.
//! * After any other error reply, the call fails. **The store never sends a call again if a node
//!   has possibly executed it.**
//!
//! After the death of a primary, calls to the slots of that primary fail until a replica is
//! promoted. The store finds the promoted replica within about 100 ms after the other nodes report
//! it.
//!
//! # Errors
//!
//! If a call fails, the store returns an error, and never a denial.
//!
//! | [`ErrorKind`] | cause | charged? |
//! |---|---|---|
//! | `Timeout` | no reply within [`response_timeout`](ClusterStoreBuilder::response_timeout) | not known |
//! | `Unavailable` | no connection to the node, a lost connection, a slot without a node that serves it, or CLUSTERDOWN | not known |
//! | `Misconfigured` | a wrong user or password, a missing permission, a certificate that is not trusted or has another name | no; not known if a script has no permission for a command |
//! | `Unavailable` | fewer replicas than [required](ClusterStoreBuilder::wait_for_replicas) have received the write | yes |
//! | `Unavailable`, `Timeout` | a call across slots was not admitted, and its charge in one of the slots could not be undone | in part |
//! | `Busy` | the slot is moving and the nodes redirected the call too often; LOADING; BUSY | no |
//! | `ReadOnly` | READONLY, MISCONF, NOREPLICAS | no |
//! | `OutOfMemory` | OOM: `maxmemory` is reached, and the server is not allowed to evict keys | no |
//! | `ForeignValue` | the key has a value that Tidegate cannot have written; the value was not changed | no |
//! | `UnsupportedServer` | a server without scripts, or a server that is not a cluster | no |
//! | `Protocol` | a reply that is not valid | not known |
//!
//! If an acquire across slots fails in one slot, the store makes no charges in the other slots, or
//! undoes the charges there.
//!
//! # Crate features
//!
//! The features `tls`, `metrics`, `tracing`, `serde`, `uuid` and `virtual-time` are the same as in
//! [`tidegate_redis`](https://docs.rs/tidegate-redis). No feature is enabled by default.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod builder;
mod cluster_store;
mod dispatch;
mod inner;
mod ready;
mod routing;
mod store_url;

pub use builder::ClusterStoreBuilder;
pub use cluster_store::ClusterStore;
pub use store_url::{StoreBuilder, connect_url};
pub use tidegate_core as core;
// All items of the core are re-exported, so that all backends re-export the same items.
#[doc(no_inline)]
pub use tidegate_core::*;
/// The metrics of this crate. [`core::telemetry::names`] contains the metrics of all stores.
#[cfg(feature = "metrics")]
pub use tidegate_redis::names;
#[doc(no_inline)]
pub use tidegate_redis::{Credentials, ProvidedCredentials};
pub use tidegate_redis::{KeptLimits, LimitBook, LimitBookError, LimitChange, LimitsEvent};
