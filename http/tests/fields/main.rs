//! Fields and problems: as they are written, as servers send them, and what holds of any.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, and so do its helpers")]

mod allocations;
mod any;
mod bounds;
mod read;
mod written;
