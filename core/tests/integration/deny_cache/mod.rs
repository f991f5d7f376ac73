//! The deny cache: when it answers by itself, when it must not, and what memory it takes.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod answers;
mod batches;
mod clearing;
mod common;
mod memory;
mod properties;
mod races;
