//! In-memory backend of the Tidegate rate limiter: exact limits within one process.
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
//! assert!(limiter.acquire("bob").await?.is_allowed()); // each subject has a budget of its own
//! # Ok::<(), Box<dyn std::error::Error>>(()) })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The future of `acquire` is ready when it is first polled, as no call of this store waits for anything but the lock
//! of a shard. All items of `tidegate-core` are re-exported, so an application depends on this crate only.
//!
//! | to | see |
//! |---|---|
//! | decide on requests | [`Limiter`], [`Decision`] |
//! | set limits per user, per plan, on several subjects at once | guide: [limits per user][users] |
//! | wait instead of being refused, change a limit at run time | guide: [beyond the limit][beyond] |
//! | set bounds, the behaviour when full, and the clock | [`MemoryStoreBuilder`], [`WhenFull`] |
//! | decide without async | [`MemoryStore::decide_now`] |
//! | test with a clock that does not run | [`ManualClock`], below |
//! | understand how it works | [the design][design] |
//!
//! [users]: https://github.com/tidegate/tidegate/blob/main/docs/guide/limits-per-user.md
//! [beyond]: https://github.com/tidegate/tidegate/blob/main/docs/guide/beyond-the-limit.md
//! [design]: https://github.com/tidegate/tidegate/blob/main/docs/design.md
//!
//! # Tests without sleeping
//!
//! A store with a [`ManualClock`] replaces any other backend in an application's tests.
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
//! A store never uses more than [`MemoryStore::max_bytes`].
//!
//! *Expiry.* A state expires when it has recovered: from then on, it is indistinguishable from no state. Expired
//! states are removed by the calls themselves. Each call pays for a few slots, there is no background thread, and no
//! call scans the whole store.
//!
//! *Eviction.* When a new state does not fit, expired states are removed first: no eviction removes a state that is
//! still needed while its shard has an expired one. If none has expired, [`WhenFull`] decides. By default the store
//! evicts the state that would expire first, and its subject starts again with a full budget. This admits as
//! little as possible beyond the limits, as a subject at its limit is among the last to expire.
//!
//! # Crate features
//!
//! All are off by default.
//!
//! | feature | adds |
//! |---|---|
//! | `tokio` | waiting (`Limiter::until_ready`, `Limiter::acquire_within`) and `.timeout()`, by Tokio's timers |
//! | `metrics` | `.observed()` reports counts and durations to the recorder that the application has installed |
//! | `tracing` | `.observed()` opens a span per call, for the subscriber that the application has installed |
//! | `uuid` | `uuid::Uuid` as a subject |
//! | `serde` | policies and shares as their text |
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
// Everything is re-exported, so that the backends cannot differ in what they re-export.
#[doc(no_inline)]
pub use tidegate_core::*;
