//! Envoy's rate-limit service: requests with descriptors, which limits of the configuration decide.

pub mod debug;
pub mod decide;
mod event;
pub mod grpc;
pub mod health;
pub mod json;
pub mod request;
pub mod service;
pub mod stats;
