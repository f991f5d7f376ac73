//! The protocol of Redis, for clients of redis-cell, of throttlecrab, and of Tidegate's own commands.
//!
//! | command | answers |
//! |---|---|
//! | `CL.THROTTLE key max_burst count period [quantity]` | as redis-cell |
//! | `THROTTLE key max_burst count period [quantity]` | as throttlecrab |
//! | `TG.ACQUIRE key policy [COST n]` and its siblings | whether it is admitted, when to retry, and a verdict per charge |
//! | `MULTI`, `EXEC`, `DISCARD`, `UNWATCH` | as Redis |
//! | what clients send first: `HELLO`, `AUTH`, `CLIENT SETINFO`, `INFO`, `COMMAND DOCS` … | as Redis |
//!
//! `docs/guide/resp.md` in the repository has all of them. Commands of a pipeline are answered in order, and decided in
//! one batch of the store.

mod arguments;
mod connection;
mod frame;
mod info;
mod own;
mod reply;
mod server;
mod session;
mod stats;
mod table;
mod throttle;
mod transaction;

pub use frame::{Bounds, FrameError, Frames, MAX_ARGUMENT_BYTES, MAX_ARGUMENTS, MAX_COMMAND_BYTES};
pub use server::{RespSettings, serve, serve_stream};
pub use transaction::{MAX_QUEUED_BYTES, MAX_QUEUED_COMMANDS};
