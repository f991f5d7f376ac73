//! Tests of waiting callers, in virtual time. The store's clock and the timers advance together,
//! and no test sleeps in real time.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::cast_possible_truncation,
    reason = "a helper of a test that fails panics, as the test does"
)]

mod bounds;
mod buckets;
mod cancelled;
mod common;
mod dropped;
mod failing;
mod in_flight;
mod windows;
