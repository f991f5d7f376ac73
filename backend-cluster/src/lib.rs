//! The Redis Cluster backend of Tidegate: exact rate limits of many tenants, which are distributed
//! over the nodes of a cluster. The node that serves the slot of a tenant decides all limits of the
//! tenant together, in one round trip.
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
//! crate. The scripts, keys, values and decisions are the same as in [`tidegate_redis`], whose
//! front page describes them. The servers are Redis 6.0 or later.
//!
//! | to | look at |
//! |---|---|
//! | choose nodes, a user, timeouts, replicas to wait for | [`ClusterStoreBuilder`] |
//! | create a store of any kind from one URL in a configuration | [`connect_url`], [`StoreBuilder`] |
//! | check the nodes when a program starts | [`ClusterStore::ready`] |
//! | see the guarantees | [below](#guarantees) |
//! | charge several tenants in one call | [below](#calls-across-slots) |
//! | distribute a tenant that is too hot for one node | [below](#hot-tenants) |
//! | decide many calls together | [below](#batches) |
//! | find the meaning of an error | [below](#errors) |
//! | see the effect of moving slots and failing nodes | [below](#when-the-cluster-changes) |
//!
//! # Guarantees
//!
//! The slot of a key is the slot of its tag: the [tenant](Charge::tenant), or the subject if there
//! is no tenant. Both are escaped, so that no subject can choose its slot. In every case, **a
//! policy never admits more than its limit**, except for writes that Redis itself loses in a
//! failover.
//!
//! | case | guarantee |
//! |---|---|
//! | charges of one tenant, or of one subject without a tenant | one script call on one node, as on a single Redis: it is atomic, makes all charges or none, and writes nothing if it is refused |
//! | charges of several tenants or subjects | all charges or none, but not at one instant: [see below](#calls-across-slots) |
//! | several calls in a batch | each as above; the calls of one slot are executed in order |
//! | charges to a policy [in shards](Policy::sharded) | the limit is never exceeded; a request may be refused although another shard has room: [see below](#hot-tenants) |
//! | the slot is moving | as above. A call is sent to the node that has its keys, and executed once. If a call has several keys (a call with an [id](CallId) has one more) and only some of them have moved, it fails with `Busy` unless the others follow in time |
//! | the node has failed | writes that the promoted replica had not received are lost, and may be admitted again; [waiting for replicas](ClusterStoreBuilder::wait_for_replicas) makes this rarer |
//! | the clock | the clock of the node that serves the slot decides. Differences between the clocks of nodes have no effect within a slot. After a failover, the clock of the new node decides, and a state handles the difference like any [step of its clock](Store) |
//!
//! # Calls across slots
//!
//! A script cannot access two slots, so a call across slots takes two steps. In the first step, the
//! peek, each slot reports whether it would admit its own charges. If one of them would refuse, the
//! call is refused. Otherwise, each slot makes its charges in the second step. In each step, all
//! slots work concurrently. The decision has the same content as on one Redis: the policies that
//! refuse, and the remaining amount of each policy.
//!
//! | the call | round trips | writes |
//! |---|---|---|
//! | is admitted | 2 | its charges |
//! | is admitted by a policy that would admit fewer than 16 further calls like it | 3 | its charges, first in the slot with the least remaining |
//! | is refused | 1 | nothing |
//! | is refused by a policy that [blocks](Policy::block_for) | 2 | the block; the second round trip is only to the slots of such policies |
//! | is refused after the peek, because another call used the rest of a limit: | | |
//! | … of a limit that was nearly used up in the peek | 2 | nothing |
//! | … of another limit | 3 or 4 | its charges, which are [undone](Operation::Undo) |
//! | is a peek, a refund, a charge beyond the limit, a reset or a block | 1 | separately in each slot |
//!
//! * **No limit is exceeded**, because a call is admitted only if each slot has made its charges.
//! * **Refused calls charge nothing**, regardless of their number and their policies, and also if a
//!   cost is above the limit. States that another setting of a policy has written are not changed.
//! * Many concurrent calls may see the last unit of a limit in their peeks, and only one of them
//!   gets it. So a call first charges the slot with the least remaining, and the other slots only
//!   if that succeeds.
//! * A call charges and undoes only if it is refused between its steps by a slot that it did not
//!   charge first. For one round trip, other calls may be refused because of a charge that is about
//!   to be undone. An undo refunds only the charge of this call. If other calls charged the same
//!   state in between, or a window ended, it refunds less rather than more.
//! * **If the client dies** between a charge and its undo, the charges of its calls in flight
//!   remain as if the calls had been admitted. They last at most for the window (two windows of a
//!   sliding counter), or for the time in which a bucket refills the cost (in whole intervals for a
//!   bucket by intervals). A cancelled caller, for example after a [timeout](StoreExt::timeout),
//!   has no such effect, because a task completes the call.
//! * **If a slot fails in the peek**, nothing was charged in any slot. If it fails later, the
//!   charges in the other slots are undone. If an undo fails, the error says so, and that charge
//!   remains as described above.
//! * If a part of a failed call may be charged, the kind of its error is never one that is
//!   [definitely not charged](ErrorKind::is_definitely_not_charged).
//! * A block begins one round trip after the peek. If its policy would admit again by then, because
//!   its window has ended, no block is written, and the call is still refused.
//! * A shadow is charged only if the call is admitted.
//! * A reservation peeks whether the wait in each slot is short enough, then reserves in all slots,
//!   and has the longest wait.
//! * A refund, a charge beyond the limit, a reset and a block are sent to each slot. If one slot
//!   fails, the other slots may have executed their parts.
//! * An acquire [up to the costs](Operation::AcquireUpTo), and a call with an [id](CallId) such as
//!   a [hold](Operation::Hold), fails with [`Unsupported`](ErrorKind::Unsupported), because no slot
//!   can decide for all slots.
//!
//! Limits that must be decided together in one round trip must have one tenant.
//!
//! # Hot tenants
//!
//! One node serves a slot, and so a tenant. If a tenant has more requests than one node can decide,
//! its limit can be split with [`Policy::sharded`], or with `shards 8` at the end of a policy's
//! text. The policy then has 8 states, whose limits add up to the limit, in evenly distributed
//! slots. A request is sent to one of them, and to a second one before it is refused.
//! `docs/scale.md` has measurements of how rarely a request is refused too early. A call that
//! charges such a policy and others is a call across slots, unless all its policies have the same
//! number of shards and so the same slots.
//!
//! # Batches
//!
//! [`Store::decide_many`] makes one script call for the calls of each slot, sends all script calls
//! for one node in one write, and writes to all nodes concurrently. An error or a redirect affects
//! only the calls of its script call, and only these are sent again after a redirect. A script call
//! and a write have at most 1,024 charges, which take a node up to 10 ms. A node receives a larger
//! batch in several parts, one after the other, and serves other clients in between. The response
//! timeout applies to each part. A call with an [id](CallId) is sent alone and in order, so that
//! several of them in one slot take a round trip each.
//!
//! The calls of one slot cost a node least if they form a *usual batch*: see
//! [`tidegate_redis`](tidegate_redis#batches).
//!
//! [`StoreExt::coalesced`] combines the calls of concurrent callers in batches for each node, so
//! that a slow node delays no calls to other nodes. Calls with an id, across slots, and to policies
//! in shards are sent alone. While a slot moves, its calls may be executed in another order.
//!
//! # When the cluster changes
//!
//! The first call queries any node for the assignment of slots to nodes. A background task queries
//! it again when a node redirects a call, cannot be reached, or reports that the cluster is down,
//! at most every 100 ms. No call waits for such a query if its own node is known. Each node has its
//! own connections, so a hanging node delays no calls to other nodes. The store makes and replaces
//! them like [those to one server](tidegate_redis#connections).
//!
//! * `MOVED`: the node did not execute the call. The store sends it to the node in the redirect,
//!   and later calls too.
//! * `ASK`: the store sends the call to the node in the redirect, with ASKING in the same write, so
//!   that no other command is between the two.
//! * `TRYAGAIN`: the store sends the call again after some milliseconds. It splits a script call
//!   for several calls into one script call for each.
//! * `NOSCRIPT`: the store sends the call to the same node again, with the script.
//! * After eight redirects, within half a second, the call fails with `Busy`.
//! * Everything else is an error. **A call that may have been executed is never sent again.**
//!
//! After the death of a primary, calls to its slots fail until a replica is promoted. They find it
//! within about 100 ms after the other nodes know of it.
//!
//! # Errors
//!
//! An error is never a denial.
//!
//! | [`ErrorKind`] | cause | charged? |
//! |---|---|---|
//! | `Timeout` | no reply within [`response_timeout`](ClusterStoreBuilder::response_timeout) | not known |
//! | `Unavailable` | no connection to the node, a lost connection, a slot that no node serves, or CLUSTERDOWN | not known |
//! | `Misconfigured` | a wrong user or password, a missing permission, a certificate that is not trusted or is for another name | no; not known if a script lacks a permission |
//! | `Unavailable` | fewer replicas have the write than [required](ClusterStoreBuilder::wait_for_replicas) | yes |
//! | `Unavailable`, `Timeout` | a call across slots was not admitted, and could not be undone in every slot | in part |
//! | `Busy` | the slot is moving and the nodes redirected the call too often; LOADING; BUSY | no |
//! | `ReadOnly` | READONLY, MISCONF, NOREPLICAS | no |
//! | `OutOfMemory` | OOM: `maxmemory` is reached and nothing may be evicted | no |
//! | `ForeignValue` | the key has a value that Tidegate cannot have written; it was not changed | no |
//! | `UnsupportedServer` | a server without scripts, or a server that is not a cluster | no |
//! | `Protocol` | a reply that is not valid | not known |
//!
//! If a call across slots fails in one slot, its charges in the other slots are not made, or are
//! undone.
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
// Everything is re-exported, so that the backends cannot differ in what they re-export.
#[doc(no_inline)]
pub use tidegate_core::*;
/// The metrics of this crate. [`core::telemetry::names`] has those of all stores.
#[cfg(feature = "metrics")]
pub use tidegate_redis::names;
#[doc(no_inline)]
pub use tidegate_redis::{Credentials, ProvidedCredentials};
