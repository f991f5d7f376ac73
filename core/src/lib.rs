//! The core of Tidegate: rate-limit policies, exact decisions, and the trait of the stores that
//! keep states.
//!
//! Applications depend on a backend crate, which re-exports this crate: `tidegate-memory` for one
//! process and for tests, `tidegate-redis` or `tidegate-cluster` for several processes. The core
//! itself uses no sockets and no Redis.
//!
//! This program limits each address to 100 requests in any minute, and each user to 5 in any 15
//! minutes:
//!
//! ```
//! use std::time::Duration;
//! use tidegate_core::{Limiter, Policy};
//! use tidegate_memory::MemoryStore;
//!
//! # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
//! let policies: [Policy; 2] =
//!     ["requests: sliding-log 100/1m".parse()?, "logins: sliding-log 5/15m".parse()?];
//! let limiter = Limiter::new(MemoryStore::new(), policies)?;
//!
//! let request = limiter.by("requests", "203.0.113.9").by("logins", "alice");
//! for _ in 0..5 {
//!     assert!(request.acquire().await?.is_allowed());
//! }
//! let decision = request.acquire().await?;
//! assert!(decision.is_denied());
//! let [requests, logins] = decision.verdicts() else { unreachable!() };
//! assert_eq!((requests.remaining(), logins.remaining()), (95, 0));
//! assert!(decision.retry_after() <= Some(Duration::from_secs(15 * 60)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! All numbers are integers, exact to the microsecond. No input causes a panic.
//!
//! # Contents
//!
//! | task | see |
//! |---|---|
//! | define a limit | [`Policy`], [`FixedWindow`], [`SlidingLog`], [`SlidingCounter`], [`TokenBucket`] (also GCRA) |
//! | decide on requests | [`Limiter`]: [`acquire`](Limiter::acquire) for one subject, [`by`](Limiter::by) for several; or a [`Call`] of [`Charge`]s on a [`Store`] |
//! | react to the answer | [`Decision`], [`Verdict`], [`Error`] |
//! | hold an estimate of a cost that is known later | [`hold`], and [`hold::Estimator`] to compute the estimate |
//! | wait instead of being refused | `Limiter::until_ready` and the module `limiter::waiting` (feature `tokio`) |
//! | distribute one tenant over several nodes | [`Policy::sharded`], [`shards`] |
//! | check the store when a program starts | [`Store::ready`] |
//! | decide while the store is slow or down | [`layers`] |
//! | send fewer, larger requests to a remote store | `StoreExt::coalesced` (feature `tokio`) |
//! | keep policies in configuration files | [`Policy`], which is serialized as text (feature `serde`) |
//! | write a store | [`Store`], [`engine`] |
//! | read the mathematics | [`algorithm`] |
//! | control time | [`clock`] |
//!
//! # Crate features
//!
//! No feature is on by default. Each backend has the same features.
//!
//! | feature | adds |
//! |---|---|
//! | `tokio` | waiting (`Limiter::until_ready`, `Request::acquire_within`), `HoldGuard`, `StoreExt::timeout`, `StoreExt::coalesced`, `StoreExt::leased`, `TokioClock` |
//! | `metrics` | `StoreExt::observed` for the recorder of the [`metrics`](https://docs.rs/metrics) crate |
//! | `tracing` | `StoreExt::observed` with a span per call |
//! | `uuid` | [`Subject`] from `uuid::Uuid` |
//! | `serde` | serialization of [`Policy`] and [`Share`] as text, and of [`Ticket`] |
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod algorithm;
pub mod call;
pub mod clock;
pub mod decision;
pub mod engine;
mod error;
mod hash;
pub mod hold;
pub mod layers;
pub mod limiter;
mod owned_call;
mod owned_charge;
pub mod policy;
pub mod shards;
mod split_mix;
pub mod store;
mod subject;
mod sync;
pub mod telemetry;
mod time;

#[cfg(tidegate_schedules)]
pub use sync::scheduled;

/// The items that the crates of this repository share. They are outside of semantic versioning, and
/// no other crate should use them.
#[doc(hidden)]
pub mod no_semver {
    pub use crate::algorithm::traits::{Algorithm, Level, PackedAlgorithm, Take};
    pub use crate::algorithm::unit::Unit;
    pub use crate::engine::fast::{Evaluation, FastOutcome, PackedState};
    pub use crate::engine::hold::{lapsed_hold, too_many_holds, unknown_hold};
    pub use crate::engine::state_holds::{MAX_COUNTED_LAPSES, OpenHolds};
    pub use crate::engine::verdict::VerdictInput;
    pub use crate::hold::support::keeps_lapsed;
    pub use crate::owned_call::OwnedCall;
    pub use crate::owned_charge::OwnedCharge;
    pub use crate::shards::shard_pick::{ShardPick, ShardWeights};
    pub use crate::split_mix::{nth_split_mix, split_mix};
    #[cfg(all(feature = "_simulation", not(tidegate_schedules)))]
    pub use crate::sync::seeded::seed_hashes;
    pub use crate::time::Wait;
}

pub use call::{Call, CallId, Charge, Charges, Operation};
#[cfg(feature = "tokio")]
pub use clock::TokioClock;
pub use clock::{Clock, CoarseClock, ManualClock, SystemClock};
pub use decision::{Decision, Degraded, DegradedAnswer, Outcome, PolicyVerdict, Receipt, Verdict};
pub use error::{Error, ErrorKind};
pub use hold::{AlreadySettled, Hold, Settlement, Ticket};
#[cfg(feature = "tokio")]
pub use hold::{HoldGuard, OnDrop};
pub use layers::{Breaker, DenyCache, OnFailure, StoreExt};
pub use limiter::Limiter;
#[cfg(feature = "tokio")]
pub use limiter::waiting::Admission;
pub use policy::{
    Algorithm, FixedWindow, Policy, PolicyError, Shards, Share, SlidingCounter, SlidingLog,
    TokenBucket,
};
pub use store::{Answer, Store};
pub use subject::Subject;
pub use time::{MAX_EXACT, MAX_SPAN, Timestamp};
