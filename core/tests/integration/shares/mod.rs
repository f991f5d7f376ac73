//! Parts of a limit: all parts together must admit what the whole would admit.

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
