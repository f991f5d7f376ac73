//! Leases: the admitted costs over many nodes, clocks and failures, and the life of chunks.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, and so do its helpers")]

mod bounds;
mod chunks;
mod exactness;
mod failures;
mod operations;
mod refusals;
mod table;
mod world;
