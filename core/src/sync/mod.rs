//! Locks, atomics, hashers, tasks and timers for the layers and for waiting.
//!
//! Usually this module contains the types of the standard library, of foldhash and of Tokio. Only
//! `.ci/schedules` sets the flag `tidegate_schedules` (`--cfg`). With this flag, this module
//! contains the types of [`shuttle`](https://docs.rs/shuttle). Each use of a `shuttle` type lets a
//! scheduler choose the next task. So tests can run many interleavings, and can repeat each
//! interleaving.
//!
//! The feature `_simulation` makes the simulation of the testkit choose the seeds of the hashers.
//! Only that simulation sets the feature.
//!
//! The following types and code are not replaced:
//!
//! * `Arc`, and counters that are only read as statistics. No step of a test depends on them.
//! * Tokio's `oneshot` and `Notify`, which need no runtime. Interleavings within them are not
//!   explored.
//! * Code that no schedule test runs: clocks, the estimator of holds, metrics, other layers.

#[cfg(tidegate_schedules)]
pub mod scheduled;

#[cfg(not(tidegate_schedules))]
pub(crate) use std::sync::{Mutex, MutexGuard, atomic};

#[cfg(tidegate_schedules)]
pub(crate) use shuttle::sync::{Mutex, MutexGuard, atomic};

#[cfg(all(feature = "_simulation", not(tidegate_schedules)))]
pub(crate) mod seeded;

/// Hashers with random seeds. In schedule tests and simulations the seeds are fixed, so that a test
/// can be repeated.
pub(crate) mod hash {
    #[cfg(not(any(tidegate_schedules, feature = "_simulation")))]
    pub(crate) use foldhash::quality::RandomState;

    #[cfg(all(feature = "_simulation", not(tidegate_schedules)))]
    pub(crate) use super::seeded::RandomState;

    #[cfg(tidegate_schedules)]
    pub(crate) use foldhash::quality::FixedState as RandomState;

    #[cfg(all(feature = "tokio", not(any(tidegate_schedules, feature = "_simulation"))))]
    pub(crate) use foldhash::fast::RandomState as FastRandomState;

    #[cfg(all(feature = "_simulation", not(tidegate_schedules)))]
    pub(crate) use super::seeded::FastRandomState;

    #[cfg(all(feature = "tokio", tidegate_schedules))]
    pub(crate) use foldhash::fast::FixedState as FastRandomState;
}

#[cfg(feature = "tokio")]
pub(crate) mod task {
    #[cfg(not(tidegate_schedules))]
    pub(crate) use tokio::{runtime::Handle, task::yield_now};

    #[cfg(tidegate_schedules)]
    pub(crate) use {super::scheduled::Handle, shuttle::future::yield_now};
}

#[cfg(feature = "tokio")]
pub(crate) mod time {
    #[cfg(not(tidegate_schedules))]
    pub(crate) use tokio::time::{Instant, sleep, timeout};

    #[cfg(tidegate_schedules)]
    pub(crate) use super::scheduled::{Instant, sleep, timeout};
}
