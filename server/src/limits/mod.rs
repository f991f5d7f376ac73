//! The limits of Envoy's service: from files or from a management server.

pub mod config;
pub mod reload;
pub(crate) mod stat_key;
pub mod xds;
