//! A Redis Cluster of a test.

mod builder;
mod failover;
mod form;
mod launch;
mod membership;
mod moving;
mod nodes;
mod slot;
mod view;

pub use builder::ClusterBuilder;
pub use nodes::Cluster;
