//! One Redis server of a test.

mod access;
mod builder;
mod launch;
mod server;

pub use builder::RedisBuilder;
pub(super) use launch::Refusal;
pub use server::{Data, Redis};
