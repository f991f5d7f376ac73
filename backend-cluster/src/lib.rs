//! The Redis Cluster backend of Tidegate.

mod across;
mod batch;
mod builder;
mod carry;
mod cluster_store;
mod errand;
mod map;
mod node;
mod place;
mod replicas;
mod scout;
mod view;

pub use builder::ClusterStoreBuilder;
pub use cluster_store::ClusterStore;
pub use tidegate_core::*;
