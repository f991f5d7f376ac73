//! Tests of leases: the costs that many nodes admit with any clocks and failures, and the life of
//! chunks.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, and so do its helpers")]

mod bounds;
mod chunks;
mod exactness;
mod failures;
mod operations;
mod refusals;
mod table;
mod world;
