//! Sends each call to the node that serves the slot of its states. No call is executed twice.

pub(crate) mod batch;
mod commands;
pub(crate) mod cross_slot;
pub(crate) mod pipeline;
pub(crate) mod request;
pub(crate) mod single;
pub(crate) mod wait_replicas;
