//! Serves the protocol of Redis (RESP): the commands of redis-cell and throttlecrab, and Tidegate's
//! own commands.
//!
//! | command | reply |
//! |---|---|
//! | `CL.THROTTLE key max_burst count period [quantity]` | as in redis-cell |
//! | `THROTTLE key max_burst count period [quantity]` | as in throttlecrab |
//! | `TG.ACQUIRE key policy [COST n]` and the other verbs | whether the call is admitted, the time until a retry, and a verdict per charge |
//! | `MULTI`, `EXEC`, `DISCARD`, `UNWATCH` | as in Redis |
//! | commands that clients send first, such as `HELLO`, `AUTH`, `CLIENT SETINFO`, `INFO`, `COMMAND DOCS` | as in Redis |
//!
//! `docs/guide/resp.md` in the repository describes all commands. The server decides the commands
//! of a pipeline in batches of the store, and answers the commands in order.

mod arguments;
mod bound;
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
