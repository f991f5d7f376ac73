//! Envoy's rate-limit protocol as proto3 JSON over HTTP.

mod operate;
mod read;
mod server;
mod show;

pub use operate::operator_routes;
pub use read::{JsonError, read_request};
pub use server::routes;
pub use show::{ShownResponse, ShownStruct};
