//! Real servers for tests. Each test starts its own servers. After the test, the processes and
//! files of these servers are removed.
//!
//! | type | contents |
//! |---|---|
//! | [`Redis`] | one Redis server on a free port; a test can stop, kill, pause and restart it |
//! | [`Sentinel`] | a primary, its replicas, and three sentinels that watch these servers |
//! | [`Cluster`] | a Redis Cluster; a test can fail over, add and remove nodes, and move slots |
//! | [`Program`] | any other server program |
//! | [`Proxy`] | a TCP proxy that can delay and drop bytes, cut connections, and refuse new connections |
//!
//! The server program is `redis-server` from the `PATH`. To use another program, set the
//! environment variable `TIDEGATE_REDIS_SERVER` to its path. If the program is missing, each test
//! that needs a server fails, and is not skipped.
//!
//! When a test ends, its servers end too, even if the test fails. When the drop of a server
//! returns, its process has ended and its directory is removed. If the test panics, the directory
//! is kept, and the end of the server's log is printed. If the test process dies without running
//! destructors, a small shell script cleans up. The script reads from a pipe of the test process,
//! and notices when the pipe is closed.
//!
//! This crate works on Unix only. It is outside semantic versioning: a patch release can change it
//! incompatibly.
#![cfg(unix)]

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
