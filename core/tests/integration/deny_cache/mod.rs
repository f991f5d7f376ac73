//! Tests of the deny cache: the calls that it answers, the calls that it must not answer, and its
//! memory.

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
