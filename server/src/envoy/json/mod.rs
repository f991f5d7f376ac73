//! Envoy's rate-limit protocol as proto3 JSON over HTTP.

mod read;
mod server;
mod show;

pub use read::{JsonError, read_request};
pub use server::routes;
pub use show::{ShownResponse, ShownStruct};
