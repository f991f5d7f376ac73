//! Locks, atomics, hashers, tasks and timers for the layers and for waiting.
//!
//! Usually this module contains the types of the standard library, of foldhash and of Tokio. The
//! script `.ci/schedules` sets the flag `tidegate_schedules` (`--cfg`). With this flag, this module
//! contains the types of [`shuttle`](https://docs.rs/shuttle).
//!
//! Each use of a `shuttle` type lets a scheduler choose the task that runs next. So a schedule test
//! can run many interleavings of its tasks, and can repeat each interleaving.
//!
//! With the feature `_simulation`, the simulation of the testkit chooses the seeds of the hashers.
//! Only that simulation enables the feature.
//!
//! `shuttle` does not control the following types and code, because they do not use this module:
//!
//! * `Arc`, and counters that are only read as statistics. No schedule test depends on their
//!   values.
//! * Tokio's `oneshot` and `Notify`, which need no runtime. The schedule tests do not explore the
//!   interleavings within these types.
//! * Code that no schedule test runs: clocks, the estimator of holds, metrics, and some layers.

#[cfg(tidegate_schedules)]
pub mod scheduled;

#[cfg(not(tidegate_schedules))]
pub(crate) use std::sync::{Mutex, MutexGuard, atomic};

#[cfg(tidegate_schedules)]
pub(crate) use shuttle::sync::{Mutex, MutexGuard, atomic};

#[cfg(all(feature = "_simulation", not(tidegate_schedules)))]
pub(crate) mod seeded;

/// Hashers with random seeds. In schedule tests and simulations, the seeds are not random, so that
/// a test can be repeated.
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
