//! The in-memory backend of Tidegate: exact rate limits for one process, and for the tests of
//! applications that use another backend in production.
//!
//! ```
//! use std::time::Duration;
//! use tidegate_memory::{Charge, Call, ManualClock, MemoryStore, Policy, Timestamp};
//!
//! let clock = ManualClock::new(Timestamp::from_micros(0));
//! let store = MemoryStore::builder().clock(clock.clone()).build();
//! let policy: Policy = "api: token-bucket 2/s".parse()?;
//! let charge = [Charge::new(&policy, "alice")];
//!
//! assert!(store.decide_now(&Call::acquire(&charge))?.is_allowed());
//! assert!(store.decide_now(&Call::acquire(&charge))?.is_allowed());
//! let decision = store.decide_now(&Call::acquire(&charge))?;
//! assert_eq!(decision.retry_after(), Some(Duration::from_millis(500)));
//!
//! clock.advance(Duration::from_millis(500)); // no test needs to sleep
//! assert!(store.decide_now(&Call::acquire(&charge))?.is_allowed());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Everything of `tidegate-core` is here as well, so that an application names one dependency. With
//! a [`Limiter`], `limiter.acquire("alice").await` answers at once: no call of this store waits.
//!
//! # Memory
//!
//! A store never takes more than [`MemoryStore::max_bytes`]. States go away by themselves once they
//! are indistinguishable from none: each call looks at a few more places, there is no background
//! thread, and no call ever looks at all of them.
//!
//! When there is no room for a new state, what has recovered goes first: an eviction never takes a
//! state that still matters while one in the same shard does not. If all still matter,
//! [`WhenFull`] decides: by default the one that would have recovered soonest goes, and its subject
//! starts with a fresh budget; that is the least of all possible harms, as a subject at its limit is
//! among the last to recover.

mod expiry_bounds;
mod heap_budget;
mod interner;
mod key;
mod locked_call;
mod memory;
mod shard;
mod slot;
mod table;

pub use memory::{MemoryStore, MemoryStoreBuilder, WhenFull};
pub use tidegate_core::*;
