//! The core of Tidegate: rate-limit policies, exact decisions, and the trait of the stores that
//! keep states.
//!
//! Each item has one path. The root module has the items that applications use. The module
//! [`layers`] has the stores that wrap other stores. The modules [`engine`] and [`algorithm`] are
//! for authors of stores. The names of the metrics are in [`telemetry`].
//!
//! Applications depend on a backend crate, which re-exports this crate. `tidegate-memory` is for a
//! single process and for tests. `tidegate-redis` and `tidegate-cluster` are for several processes.
//! This crate itself uses no sockets and no Redis.
//!
//! This program limits each address to 100 requests in any minute. It also limits each user to 5
//! requests in any 15 minutes:
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
//! All numbers are integers, and times are exact to the microsecond. No input causes a panic.
//!
//! # Contents
//!
//! | task | see |
//! |---|---|
//! | define a limit | [`Policy`], [`FixedWindow`], [`SlidingLog`], [`SlidingCounter`], [`TokenBucket`] (also GCRA), [`Concurrent`] |
//! | decide on requests | [`Limiter`]: [`acquire`](Limiter::acquire) for one subject, [`by`](Limiter::by) for several; or a [`Call`] of [`Charge`]s on a [`Store`] |
//! | react to the answer | [`Decision`], [`Verdict`], [`Error`] |
//! | hold an estimate of a cost until the actual cost is known | [`Hold`], and [`Estimator`] to compute the estimate |
//! | wait instead of being refused | `Limiter::until_ready` and `Admission` (feature `tokio`) |
//! | distribute one tenant over several nodes | [`Policy::sharded`], [`layers::ShardedStore`] |
//! | check the store when a program starts | [`Store::ready`] |
//! | decide while the store is slow or down | [`layers`] |
//! | send fewer, larger requests to a remote store | `StoreExt::coalesced` (feature `tokio`) |
//! | keep policies in configuration files | [`Policy`], which is serialized as text (feature `serde`) |
//! | send a call later or from a task | [`OwnedCall`] |
//! | write a store | [`Store`], [`engine`] |
//! | read the mathematics | [`algorithm`] |
//! | control time | [`Clock`]: [`SystemClock`] is the default, [`CoarseClock`] is cheaper and late by up to its grain, [`ManualClock`] is for tests |
//!
//! # Crate features
//!
//! No feature is on by default. Each backend crate has the same features as this crate.
//!
//! | feature | adds |
//! |---|---|
//! | `tokio` | waiting (`Limiter::until_ready`, `Request::acquire_within`), `HoldGuard`, `Attempt`, `StoreExt::timeout`, `StoreExt::coalesced`, `StoreExt::leased`, `TokioClock` |
//! | `metrics` | `StoreExt::observed` for the recorder of the [`metrics`](https://docs.rs/metrics) crate |
//! | `tracing` | `StoreExt::observed` with a span per call |
//! | `uuid` | [`Subject`] from `uuid::Uuid` |
//! | `serde` | serialization of [`Policy`] and [`Share`] as text, and of [`Ticket`] |
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod algorithm;
/// Dates, times of day and days of the week, from the crate `jiff`.
pub mod civil {
    pub use jiff::civil::{Date, DateTime, Time, Weekday, date, datetime, time};
}
mod call;
mod clock;
mod decision;
pub mod engine;
mod error;
mod hash;
pub mod layers;
mod limit_set;
mod limiter;
mod lists;
mod policy;
mod split_mix;
mod store;
mod subject;
mod sync;
pub mod telemetry;
mod time;

#[cfg(tidegate_schedules)]
pub use sync::scheduled;

/// Items that only the crates of this repository use. These items change without a new major
/// version, so those crates depend on the exact version of this crate.
#[doc(hidden)]
pub mod no_semver {
    pub use crate::algorithm::traits::{Algorithm, Level, PackedAlgorithm, Take};
    pub use crate::algorithm::unit::Unit;
    pub use crate::engine::change::too_many_grants;
    pub use crate::engine::fast::{Evaluation, FastOutcome, PackedState};
    pub use crate::engine::hold::{lapsed_hold, too_many_holds, unknown_hold};
    pub use crate::engine::state_holds::{MAX_COUNTED_LAPSES, OpenHolds};
    pub use crate::engine::verdict::VerdictInput;
    pub use crate::layers::sharded::shard_pick::{ShardPick, ShardWeights};
    pub use crate::limiter::ban::check_ban;
    #[cfg(feature = "tokio")]
    pub use crate::limiter::hold::settle_in_drop;
    pub use crate::split_mix::{nth_split_mix, split_mix};
    pub use crate::store::{keeps_lapsed, send_all};
    #[cfg(all(feature = "_simulation", not(tidegate_schedules)))]
    pub use crate::sync::seeded::seed_hashes;
    pub use crate::time::Wait;
}

pub use call::{Call, CallId, Charge, ChargeBuf, Charges, Operation, OwnedCall};
pub use call::{MAX_CHARGES, MAX_ID, MAX_SUBJECT};
#[cfg(feature = "tokio")]
pub use clock::TokioClock;
pub use clock::{Clock, CoarseClock, ManualClock, SystemClock};
pub use decision::{
    AlreadySettled, Decision, Degraded, DegradedAnswer, EarliestLapse, Outcome, Place,
    PolicyVerdict, Receipt, Verdict,
};
pub use error::{Error, ErrorKind};
pub use layers::StoreExt;
pub use layers::breaker::Breaker;
pub use layers::deny_cache::DenyCache;
pub use layers::fallback::OnFailure;
#[cfg(feature = "tokio")]
pub use layers::leased::Lease;
pub use layers::warned::{Warning, Warnings};
pub use limit_set::{CurrentLimits, LimitSet, LimitSetError, OverrideFor, OverrideSource};
#[cfg(feature = "tokio")]
pub use limiter::attempt::Attempt;
pub use limiter::ban::MAX_BAN_REASON;
pub use limiter::estimator::Estimator;
pub use limiter::grant::MEMORY_OF_GRANTS;
#[cfg(feature = "tokio")]
pub use limiter::hold::{CountedGuard, HoldGuard, OnDrop};
pub use limiter::hold::{Hold, Settlement, Ticket};
#[cfg(feature = "tokio")]
pub use limiter::waiting::Admission;
pub use limiter::{Limiter, MultiRequest, PolicyRef, Request};
pub use lists::{ListAction, ListError, Lists, PolicyLists};
pub use policy::{
    Algorithm, Block, Concurrent, FairPool, FixedWindow, Policy, PolicyError, Quota, Shard, Shards,
    Share, SlidingCounter, SlidingLog, TokenBucket,
};
pub use policy::{DEFAULT_MAX_OPEN_HOLDS, MAX_NAME, MAX_OPEN_HOLDS, MAX_SHARDS};
pub use policy::{format_duration, parse_duration};
pub use store::{Answer, Store};
pub use subject::Subject;
pub use time::{MAX_EXACT, MAX_SPAN, Timestamp};
