//! The tests against real servers which do not measure how fast service is back: those are programs of their
//! own, so that nothing runs beside them.

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
mod foreign;
mod holds;
mod ids;
mod large_batches;
mod leased;
#[path = "../ledger/mod.rs"]
mod ledger;
mod lives;
mod long_log;
mod metrics;
mod ready;
mod script_free;
mod tls;
mod usual_batches;
mod waiting;
