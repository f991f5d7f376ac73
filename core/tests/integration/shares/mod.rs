//! A budget in parts: what all of them together admit is what the whole would.

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
