//! Real servers, which are started for a test and removed after it.
//!
//! | type | what it is |
//! |---|---|
//! | [`Redis`] | one server on a free port, which can be stopped, killed, paused and restarted |
//! | [`Sentinel`] | a primary, its replicas and three sentinels that watch them |
//! | [`Cluster`] | a Redis Cluster, which can fail over, add and remove nodes, and move slots |
//! | [`Program`] | any other server program |
//! | [`Proxy`] | a TCP proxy that can delay and drop bytes, cut connections and refuse new ones |
//!
//! A test that needs a server fails if the server program is missing; no test is skipped. The
//! program is `redis-server` from the `PATH`, or the one that the environment variable
//! `TIDEGATE_REDIS_SERVER` names.
//!
//! However a test ends, its servers end too. Dropping a server kills its process and removes its
//! directory before the drop returns. If the test panics, the directory is kept and the end of the
//! server's log is printed. If the test process dies without running destructors, a small shell
//! script cleans up: it reads from a pipe of the test process and notices that the pipe was closed.
//!
//! This module is outside semantic versioning: a patch release may change it.

mod binary;
mod cluster;
mod error;
mod port;
mod program;
mod proxy;
mod redis;
mod resp;
mod sentinel;
mod wait;
mod watchdog;

pub use binary::Version;
pub use cluster::{Cluster, ClusterBuilder};
pub use error::Error;
pub use port::free_port;
pub use program::Program;
pub use proxy::{Counts, End, Mode, Proxy};
pub use redis::{Data, Redis, RedisBuilder};
pub use resp::{Client, Reply};
pub use sentinel::{Sentinel, SentinelBuilder};
pub use wait::eventually;
