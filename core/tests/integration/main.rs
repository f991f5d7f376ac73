//! The tests of the core that need other crates. All these tests are one program, because each
//! further program would compile shared dependencies such as Tokio's runtime again.

mod adjusted;
#[cfg(feature = "tokio")]
mod allocations;
#[cfg(all(feature = "tokio", feature = "serde"))]
mod alternatives;
mod api;
#[cfg(feature = "tokio")]
mod attempts;
mod breaker;
mod calendar;
#[cfg(feature = "tokio")]
mod coalesced;
#[cfg(feature = "tokio")]
mod coalesced_conformance;
#[cfg(feature = "tokio")]
mod degraded_conformance;
mod deny_cache;
mod deny_cache_conformance;
mod estimator;
mod failure;
mod fair_pool;
#[cfg(all(feature = "tokio", feature = "serde"))]
mod fallback_slots;
mod fast_path;

#[cfg(feature = "tokio")]
mod faults;
#[cfg(all(feature = "tokio", feature = "serde"))]
mod holds;
#[cfg(all(feature = "metrics", feature = "tokio"))]
mod immediate;
#[cfg(feature = "tokio")]
mod in_turn;
mod layers;
#[cfg(feature = "tokio")]
mod leased;
#[cfg(feature = "tokio")]
mod leased_conformance;
mod listed;
#[cfg(feature = "metrics")]
mod metrics;
mod oracle;
mod partial_limits;
mod policy;
mod records;
#[cfg(feature = "tokio")]
mod renewal;
mod requests;
mod restore;
mod rules;
#[cfg(feature = "serde")]
mod serde;
mod sharded_conformance;
mod shares;
#[cfg(feature = "tokio")]
mod slots;
mod stubs;
#[cfg(feature = "tokio")]
mod timeout;
#[cfg(feature = "tracing")]
mod tracing;
#[cfg(feature = "tokio")]
mod until_turn;
mod verdicts;
#[cfg(feature = "tokio")]
mod waiting;
mod warnings;

use std::pin::Pin;

#[cfg(feature = "tokio")]
use proptest::prelude::RngExt;

/// Runs an asynchronous test to its end, in virtual time.
///
/// The type of the test's future is erased, so that the runtime is compiled once and not for each
/// test.
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
fn run<T>(test: impl Future<Output = T>) -> T {
    // The seed of the test run determines the random pauses of callers that wait.
    #[cfg(feature = "tokio")]
    fastrand::seed(tidegate_testkit::generate::seeded_rng(0).random());
    let test: Pin<Box<dyn Future<Output = T> + '_>> = Box::pin(test);
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().start_paused(true).build().unwrap().block_on(test)
}
