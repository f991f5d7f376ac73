//! Serves Envoy's rate-limit protocol. A request contains descriptors. The configuration contains
//! the limits for them.

pub mod debug;
pub mod decide;
mod event;
pub mod grpc;
pub mod health;
pub mod json;
pub mod request;
pub mod service;
pub mod stats;
