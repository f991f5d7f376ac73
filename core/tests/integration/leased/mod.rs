//! Tests of leases. They check the costs that many nodes admit with any clocks and failures, and
//! the fetch, use and return of chunks.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, and so do its helpers")]

mod bounds;
mod chunks;
mod exactness;
mod failures;
mod operations;
mod refusals;
mod table;
mod world;
