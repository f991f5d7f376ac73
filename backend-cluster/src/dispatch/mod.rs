//! Calls on their way to the slots that hold their states, each sent at most once.

pub(crate) mod batch;
pub(crate) mod cross_slot;
pub(crate) mod pipeline;
pub(crate) mod request;
pub(crate) mod single;
pub(crate) mod wait_replicas;
