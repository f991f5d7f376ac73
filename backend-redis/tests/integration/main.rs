//! Tests on real servers that do not measure recovery times. The tests that measure recovery times
//! are separate programs, so that no other test runs at the same time.

mod adjusted;
mod boundaries;
#[path = "../certificates/mod.rs"]
mod certificates;
mod coalesced;
mod common;
mod concurrent;
mod conformance;
mod credentials;
mod degraded;
mod differential;
mod errors;
mod expiry;
mod failures;
mod fair_pools;
mod foreign;
mod holds;
mod ids;
mod large_batches;
mod leased;
#[path = "../ledger/mod.rs"]
mod ledger;
mod limit_book;
mod listed;
mod lives;
mod long_log;
mod metrics;
mod quotas;
mod ready;
mod script_free;
mod slots;
mod tls;
mod usual_batches;
mod waiting;
mod wake_ups;
mod warnings;
