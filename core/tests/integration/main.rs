//! The tests of the core that need other crates. All these tests are one program, because each
//! further program would compile shared dependencies such as Tokio's runtime again.

mod adjusted;
mod allocations;
mod alternatives;
mod api;
mod attempts;
mod breaker;
mod calendar;
mod coalesced;
mod coalesced_conformance;
mod degraded_conformance;
mod deny_cache;
mod deny_cache_conformance;
mod estimator;
mod failure;
mod fair_pool;
mod fallback_slots;
mod fast_path;

mod faults;
mod holds;
mod immediate;
mod in_turn;
mod layers;
mod leased;
mod leased_conformance;
mod listed;
mod metrics;
mod oracle;
mod partial_limits;
mod policy;
mod records;
mod renewal;
mod requests;
mod restore;
mod rules;
mod serde;
mod sharded_conformance;
mod shares;
mod slots;
mod stubs;
mod timeout;
mod tracing;
mod until_turn;
mod verdicts;
mod waiting;
mod warnings;

use std::pin::Pin;

use proptest::prelude::RngExt;

/// Runs an asynchronous test to its end, in virtual time.
///
/// The type of the test's future is erased, so that the runtime is compiled once and not for each
/// test.
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
fn run<T>(test: impl Future<Output = T>) -> T {
    // The seed of the test run determines the random pauses of callers that wait.
    fastrand::seed(tidegate_testkit::generate::seeded_rng(0).random());
    let test: Pin<Box<dyn Future<Output = T> + '_>> = Box::pin(test);
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().start_paused(true).build().unwrap().block_on(test)
}
