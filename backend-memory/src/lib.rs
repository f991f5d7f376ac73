//! The in-memory backend of the Tidegate rate limiter enforces exact limits within one process.
//!
//! ```
//! use tidegate_memory::{Limiter, MemoryStore};
//!
//! # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
//! let limiter = Limiter::new(MemoryStore::new(), ["api: token-bucket 2/s".parse()?])?;
//!
//! assert!(limiter.acquire("alice").await?.is_allowed());
//! assert!(limiter.acquire("alice").await?.is_allowed());
//! assert!(limiter.acquire("alice").await?.is_denied());
//! assert!(limiter.acquire("bob").await?.is_allowed()); // each subject has its own budget
//! # Ok::<(), Box<dyn std::error::Error>>(()) })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The future of `acquire` is ready at its first poll. A call waits only for the lock of a part of
//! the store (a shard). This crate re-exports all items of `tidegate-core`, so an application
//! depends on this crate only.
//!
//! | task | see |
//! |---|---|
//! | decide on requests | [`Limiter`], [`Decision`] |
//! | limit users, plans or several subjects together | guide: [limits per user][users] |
//! | wait instead of being refused, change a limit at run time | guide: [beyond the limit][beyond] |
//! | set bounds, the behavior when full, and the clock | [`MemoryStoreBuilder`], [`WhenFull`] |
//! | decide without async | [`MemoryStore::decide_now`] |
//! | test with a clock that the test moves | [`ManualClock`], below |
//! | understand the implementation | [the design][design] |
//!
//! [users]: https://github.com/tidegate/tidegate/blob/main/docs/guide/limits-per-user.md
//! [beyond]: https://github.com/tidegate/tidegate/blob/main/docs/guide/beyond-the-limit.md
//! [design]: https://github.com/tidegate/tidegate/blob/main/docs/design.md
//!
//! # Tests without sleeping
//!
//! In the tests of an application, a memory store with a [`ManualClock`] can replace a store of any
//! other backend.
//!
//! ```
//! use std::time::Duration;
//! use tidegate_memory::{Limiter, ManualClock, MemoryStore, Timestamp};
//!
//! # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
//! let clock = ManualClock::new(Timestamp::from_micros(0));
//! let store = MemoryStore::builder().clock(clock.clone()).build();
//! let limiter = Limiter::new(store, ["login: fixed-window 1/1m".parse()?])?;
//!
//! assert!(limiter.acquire("alice").await?.is_allowed());
//! let decision = limiter.acquire("alice").await?;
//! assert_eq!(decision.retry_after(), Some(Duration::from_secs(60)));
//!
//! clock.advance(Duration::from_secs(60));
//! assert!(limiter.acquire("alice").await?.is_allowed());
//! # Ok::<(), Box<dyn std::error::Error>>(()) })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Memory
//!
//! A store uses at most [`MemoryStore::max_bytes`], and temporarily more while a table grows.
//!
//! *Expiry.* A state expires when it has recovered, because a recovered state cannot be
//! distinguished from no state. The calls on the store remove expired states: on average, each call
//! checks a few slots of the tables. So the store needs no background thread, and no call scans the
//! whole store.
//!
//! *Eviction.* If a new state does not fit, the store first removes expired states. If no state in
//! the same part of the store (shard) has expired, [`WhenFull`] decides. By default, the store
//! evicts the state that would expire first, and the subject of that state starts again with a full
//! budget. The state of a subject at its limit is among the last to expire, so evictions admit
//! little beyond the limits. The store never evicts [credits](tidegate_core::Quota::credits) and
//! grants without an end. If only such states are left, a call of a new subject fails with
//! [`ErrorKind::OutOfMemory`].
//!
//! # Crate features
//!
//! All features are off by default.
//!
//! | feature | adds |
//! |---|---|
//! | `tokio` | waiting (`Limiter::until_ready`, `Limiter::acquire_within`) and `.timeout()`, with Tokio's timers |
//! | `metrics` | `.observed()`, which reports counts and durations to the installed recorder |
//! | `tracing` | `.observed()`, which opens a span per call for the installed subscriber |
//! | `uuid` | `uuid::Uuid` as a subject |
//! | `serde` | serialization of policies and shares as text |
#![cfg_attr(docsrs, feature(doc_cfg))]

mod call_log;
mod expiry_bounds;
mod interner;
mod key;
mod lock;
mod memory_store;
mod shard;
mod shared;
mod slot;
mod table;

pub use memory_store::{MemoryStore, MemoryStoreBuilder};
pub use shared::WhenFull;
pub use tidegate_core as core;
// All items of the core are re-exported, so that all backends re-export the same items.
#[doc(no_inline)]
pub use tidegate_core::*;
