//! Sentinel groups: a primary, its replicas, and three sentinels that watch these servers.

mod builder;
mod group;
mod settings;

pub use builder::SentinelBuilder;
pub use group::Sentinel;
