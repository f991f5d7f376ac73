//! The Redis Cluster backend of Tidegate: exact rate limits of many tenants, spread over the nodes of a
//! cluster, each tenant's decided together by the node that has its slot, in one round trip.
//!
//! ```no_run
//! use tidegate_cluster::{ClusterStore, Limiter};
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! // Some of the nodes; all others are learnt from them. Does not connect yet.
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
//! Everything of `tidegate-core` is here as well, so that an application names one dependency. The
//! scripts, keys and values are those of [`tidegate_redis`], and so are the decisions; its front page
//! says how they look. The servers may be Redis from 6.0 on.
//!
//! | to | look at |
//! |---|---|
//! | choose nodes, a user, timeouts, replicas to wait for | [`ClusterStoreBuilder`] |
//! | make a store of any kind from one URL of a configuration | [`connect_url`], [`StoreBuilder`] |
//! | check the nodes when a program starts | [`ClusterStore::ready`] |
//! | know what holds in which case | [below](#guarantees) |
//! | take of several tenants at once | [below](#calls-across-slots) |
//! | spread a tenant that is too hot for one node | [below](#hot-tenants) |
//! | decide on many calls at once | [below](#batches) |
//! | know what an error means | [below](#errors) |
//! | know what happens while slots move and nodes fail | [below](#when-the-cluster-changes) |
//!
//! # Guarantees
//!
//! A key's slot is that of its tag: the [tenant](Charge::tenant), or, without one, the subject. Both are
//! escaped, so that no subject can choose its slot. Whatever the case, **no more is admitted than a policy says**,
//! but for what Redis itself forgets in a failover.
//!
//! | the call | what holds |
//! |---|---|
//! | charges of one tenant, or of one subject without a tenant | one script call on one node: atomic, all or none; a refusal writes nothing. As on one Redis |
//! | charges of several tenants or subjects | all or none, but not at one instant: [see below](#calls-across-slots) |
//! | several calls in a batch | each as above; those that share a slot in the order asked |
//! | charges to a policy [in shards](Policy::sharded) | never more than the limit; a request may be refused although another shard had room: [see below](#hot-tenants) |
//! | while its slot moves | as above. A call is sent to where its keys are, and carried out once; one of several keys (a call with an [id](CallId) has one more) of which some have moved and some have not fails with `Busy` if they stay apart |
//! | after its node failed | what the replica that took over had not got yet is forgotten, and admitted again; [fewer](ClusterStoreBuilder::wait_for_replicas) if replicas are waited for |
//! | by whose clock | that of the node that has the slot. Different nodes' clocks differ, which changes nothing within a slot; after a failover it is that of the new node, which a state takes as any [step of its clock](Store) |
//!
//! # Calls across slots
//!
//! No script can touch two slots, so such a call takes two steps. First it looks: each slot reports, all at
//! once, whether it would admit its own charges. If one would refuse, that is the answer. Otherwise each slot
//! takes its charges, again all at once. The decision reads as on one Redis: which policies refuse, and what
//! remains of each.
//!
//! | the call | round trips | what is written |
//! |---|---|---|
//! | is admitted | 2 | its charges |
//! | is admitted by a policy that would admit fewer than 16 more like it | 3 | its charges, first where least remains |
//! | is refused | 1 | nothing |
//! | is refused by a policy that [blocks](Policy::block_for) | 2 | the block; the second goes to the slots of such policies alone |
//! | is refused after the look, as another call took the rest of a limit: | | |
//! | … of what was known to be nearly used up | 2 | nothing |
//! | … elsewhere | 3 or 4 | what was taken is [undone](Operation::Undo) |
//! | is a peek, a refund, a charge beyond the limit, a reset or a block | 1 | in each slot by itself |
//!
//! * **Never more than any limit** passes: a call is admitted only if each slot has taken its charges.
//! * **Calls that are refused take nothing**, however many there are, whatever the policies, and whether a
//!   limit is used up or a cost is above it. States that another setting of a policy has written stay as
//!   they are.
//! * Many calls at once may see the last of a limit, of which one gets it. So a call takes first where least
//!   remains, and in the other slots only if it has got that.
//! * Only a call that is refused between its steps, and not by the slot that comes first, takes and gives
//!   back. For a round trip, others may be refused for what is about to be given back. Undoing gives back what this call took and nothing
//!   else; if others took of the same meanwhile, or a window ended, it gives back less rather than more.
//! * **If the client dies** after it has taken and before it has undone, what its calls in flight had taken
//!   stays taken until it recovers by itself, as if they had been admitted: at most for the window (a
//!   sliding counter: two), or for the time in which a bucket refills that cost (by intervals: whole
//!   ones). A caller that only goes away, as at a [timeout](StoreExt::timeout), changes nothing: the
//!   call runs to its end in a task of its own.
//! * **If a slot fails in the look**, nothing was taken anywhere. If it fails later, what the other slots have
//!   taken is undone. If a node cannot be told to undo, the error says so, and what was taken there stays
//!   taken as above.
//! * The error of a call of which a part may be charged is never of a kind that is [surely not
//!   charged](ErrorKind::is_definitely_not_charged).
//! * A block begins a round trip after the look. If its policy would admit by then, as its window has just
//!   ended, no block is written, and the call is refused all the same.
//! * A shadow is charged only if the call is admitted.
//! * Reserving looks whether each slot's wait is short enough, then books in all, and waits for the last.
//! * A refund, a charge beyond the limit, a reset and a block go to each slot: if one fails, the others may have been
//!   done.
//! * An acquire [up to the costs](Operation::AcquireUpTo), and a call with an [id](CallId), such as a
//!   [hold](Operation::Hold), is [`Unsupported`](ErrorKind::Unsupported): no slot could answer for all.
//!
//! Limits that must be decided as one, in one round trip, share a tenant.
//!
//! # Hot tenants
//!
//! One slot is one node's, and so is a tenant. Who has more requests than that node can decide on splits
//! the limit: [`Policy::sharded`], or `shards 8` at the end of a policy's text, keeps it as so many
//! states whose limits add up to it, in slots that lie evenly apart. A request goes to one of them, and
//! before it is refused to a second; how rarely one is refused too early is measured in `docs/scale.md`.
//! A call that charges such a policy and others is one across slots, but for policies with as
//! many shards each, which share theirs.
//!
//! # Batches
//!
//! [`Store::decide_many`] sends all that goes to one node in one write, to all nodes at once, with one
//! script call for each slot. An error or a redirection concerns only the calls of its script call; only
//! those are sent on. A script call, and a write, has at most 1,024 charges, which take a node some 10 ms: in
//! a larger batch a node gets several, one after the other, and serves other clients between them. Each
//! is waited for as long as a single call. A call with an [id](CallId) is sent by itself, in its turn: of several in one
//! slot, each takes a round trip.
//!
//! [`StoreExt::coalesced`] makes batches of the calls of concurrent callers, for each node by itself: a node that is
//! slow delays no calls to others. Calls with an id, across slots, and to policies in shards go alone. While a slot moves,
//! calls to it may be carried out in another order than they were made in.
//!
//! # When the cluster changes
//!
//! Who serves which slot is asked of any node at the first call, and again, in the background, whenever a
//! node refers to another, cannot be reached, or says that the cluster is down; at most every 100 ms.
//! No call waits for that if its own node is known. Each node has connections of its own, so a node that
//! hangs delays no calls of other nodes. They are looked after as [those to one
//! server](tidegate_redis#connections).
//!
//! * `MOVED`: the call was not carried out, and goes to the node that was named; later calls go there at
//!   once.
//! * `ASK`: it goes there too, with ASKING in the same write, so that nothing can come between the two.
//! * `TRYAGAIN`: it rests for some milliseconds, and goes again. A script call for several of a batch goes
//!   again as one for each.
//! * `NOSCRIPT`: it goes to the same node again, with the script.
//! * After eight such redirects, within half a second, it fails with `Busy`.
//! * Everything else is an error. **What may have been carried out is never sent again.**
//!
//! When a primary dies, calls for its slots fail until a replica has taken over; they find it within about
//! 100 ms after the other nodes know.
//!
//! # Errors
//!
//! An error is never a denial.
//!
//! | [`ErrorKind`] | what happened | charged? |
//! |---|---|---|
//! | `Timeout` | no answer within [`response_timeout`](ClusterStoreBuilder::response_timeout) | not known |
//! | `Unavailable` | no connection to the node, or it was lost; no node serves the slot; CLUSTERDOWN | not known |
//! | `Misconfigured` | a wrong user or password, a permission that is missing, a certificate that is not trusted or is for another name | no; not known if a script lacks a permission |
//! | `Unavailable` | too few replicas have it, where they are [waited for](ClusterStoreBuilder::wait_for_replicas) | yes |
//! | `Unavailable`, `Timeout` | a call across slots was not admitted, and could not be undone everywhere | in part |
//! | `Busy` | the slot is on the move, and the nodes kept sending the call away; LOADING; BUSY | no |
//! | `ReadOnly` | READONLY, MISCONF, NOREPLICAS | no |
//! | `OutOfMemory` | OOM: `maxmemory` is reached and nothing may be evicted | no |
//! | `ForeignValue` | what lies under the key is not ours; it was left as it is | no |
//! | `UnsupportedServer` | no scripts, a server that is no cluster | no |
//! | `Protocol` | an answer that makes no sense | not known |
//!
//! A call across slots that fails in one of them takes nothing in the others, or gives it back.
//!
//! # Crate features
//!
//! None is on by default: `tls`, `metrics`, `tracing`, `serde`, `uuid` and `virtual-time`, as in
//! [`tidegate_redis`](https://docs.rs/tidegate-redis).
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
/// The metrics of this crate, beside those of [`core::telemetry::names`].
#[cfg(feature = "metrics")]
pub use tidegate_redis::names;
#[doc(no_inline)]
pub use tidegate_redis::{Credentials, ProvidedCredentials};
