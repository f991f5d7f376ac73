//! Locks, atomics, hashers, tasks and timers of the layers and of waiting.
//!
//! These are the types of the standard library, foldhash and Tokio. With `--cfg tidegate_schedules`, which is set by
//! `.ci/schedules` alone, they are those of [`shuttle`](https://docs.rs/shuttle) in their place: a scheduler then chooses
//! at each use of one of them which task goes on, so that tests can run many interleavings, and each of them again.
//!
//! Not replaced are
//!
//! * `Arc`, and counters that are only read as statistics: no step depends on them;
//! * Tokio's `oneshot` and `Notify`, which need no runtime: interleavings within them are not explored;
//! * what no schedule test runs: clocks, the estimator of holds, metrics, other layers.

#[cfg(tidegate_schedules)]
pub mod scheduled;

#[cfg(not(tidegate_schedules))]
pub(crate) use std::sync::{Mutex, MutexGuard, atomic};

#[cfg(tidegate_schedules)]
pub(crate) use shuttle::sync::{Mutex, MutexGuard, atomic};

/// Seeded at random, unless a schedule has to be run again.
pub(crate) mod hash {
    #[cfg(not(tidegate_schedules))]
    pub(crate) use foldhash::quality::RandomState;

    #[cfg(tidegate_schedules)]
    pub(crate) use foldhash::quality::FixedState as RandomState;

    /// Can also have a fixed seed, for a simulation.
    #[cfg(feature = "tokio")]
    pub(crate) use foldhash::quality::SeedableRandomState;

    #[cfg(all(feature = "tokio", not(tidegate_schedules)))]
    pub(crate) fn seeded(seed: Option<u64>) -> SeedableRandomState {
        let fixed = foldhash::SharedSeed::global_fixed();
        seed.map_or_else(SeedableRandomState::random, |it| {
            SeedableRandomState::with_seed(it, fixed)
        })
    }

    #[cfg(all(feature = "tokio", tidegate_schedules))]
    pub(crate) fn seeded(seed: Option<u64>) -> SeedableRandomState {
        SeedableRandomState::with_seed(seed.unwrap_or(0), foldhash::SharedSeed::global_fixed())
    }

    #[cfg(all(feature = "tokio", not(tidegate_schedules)))]
    pub(crate) use foldhash::fast::RandomState as FastRandomState;

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
