//! Tests of the fields and problems that are written, of the fields that servers send, and of
//! arbitrary fields.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, and so do its helpers")]

mod allocations;
mod any;
mod bounds;
mod read;
mod written;
