//! Tests of limits that are split into parts. All parts together must admit as much as the whole
//! limit admits.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking, and so do its helpers"
)]

mod bounds;
mod choosing;
mod nodes;
mod sharded;
mod splitting;
