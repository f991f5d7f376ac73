//! A primary, its replicas, and three sentinels that watch them.

mod builder;
mod group;
mod settings;

pub use builder::SentinelBuilder;
pub use group::Sentinel;
