//! Holds: an estimate that is taken at once, and settled when the actual cost is known.
//!
//! A request of a [`Limiter`](crate::Limiter) makes one with [`hold`](crate::limiter::MultiRequest::hold) and gets a
//! [`Ticket`], by which any process can [settle](crate::Limiter::settle) it. The store's part is documented at
//! [`Operation::Hold`](crate::Operation::Hold). An [`Estimator`] learns how much to hold.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
//! use std::time::Duration;
//! use tidegate_core::Limiter;
//! use tidegate_memory::MemoryStore;
//!
//! let limiter = Limiter::new(
//!     MemoryStore::new(),
//!     ["requests: fixed-window 60/1m".parse()?, "tokens: token-bucket 10000/1m".parse()?],
//! )?;
//! // The answer may have up to 4,000 tokens, within a minute.
//! let request = limiter.by("requests", "alice").by("tokens", "alice").cost(4_000);
//! let hold = request.hold("completion 4711", Duration::from_secs(60)).await?;
//! let Ok(ticket) = hold.into_ticket() else { return Ok(()) }; // refused: 429
//!
//! // It had 350.
//! let settlement = limiter.settle(&ticket, [("tokens", 350)]).await?;
//! assert_eq!(settlement.given_back("tokens"), 3_650);
//! // To settle it again, as after a timeout, changes nothing.
//! assert_eq!(limiter.settle(&ticket, [("tokens", 350)]).await?, settlement);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod estimator;
#[cfg(feature = "tokio")]
mod guard;
#[cfg(feature = "tokio")]
pub(crate) mod guard_count;
mod histogram;
mod limiter;
mod settlement;
pub(crate) mod support;
mod ticket;

pub use estimator::Estimator;
#[cfg(feature = "tokio")]
pub use guard::{HoldGuard, OnDrop};
pub use settlement::Settlement;
pub use ticket::{Hold, Ticket};

pub use crate::decision::AlreadySettled;
