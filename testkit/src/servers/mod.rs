//! Real servers, started for a test and gone after it.
//!
//! | type | what it is |
//! |---|---|
//! | [`Redis`] | one server on a free port, which can be stopped, killed, paused and restarted |
//! | [`Sentinel`] | a primary, its replicas and the sentinels that watch them |
//! | [`Cluster`] | a Redis Cluster, whose nodes fail over, come and go, and hand each other slots |
//! | [`Program`] | any other server program |
//! | [`Proxy`] | a TCP proxy that delays, cuts, swallows and refuses |
//!
//! A test that needs a server fails where there is none: nothing here skips. The program is
//! `redis-server` from the `PATH`, or the one that the variable `TIDEGATE_REDIS_SERVER` names.
//!
//! However a test ends, its servers end too. Dropping one kills its process and removes its directory
//! before the drop returns; in a panic the directory stays, and the end of the server's log is printed.
//! If the process of the test dies without a chance to clean up, a small shell script that holds the other
//! end of a pipe notices and does it.
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
