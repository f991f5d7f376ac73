//! Tests on clusters that do not measure recovery times. The tests that measure recovery times are
//! separate programs, so that no other test runs at the same time.

mod access;
mod across;
#[path = "../../../backend-redis/tests/certificates/mod.rs"]
mod certificates;
mod coalesced;
mod common;
mod conformance;
mod crash;
mod differential;
mod errors;
mod failover;
mod fake_nodes;
mod faults;
mod holds;
mod ids;
mod large_batches;
mod limit_book;
mod migration;
mod scene;
mod shards;
mod store_url;
mod tenants;
mod usual_batches;
mod wake_ups;
