//! Loads the limits of Envoy's service from files or from a management server.

pub mod config;
mod load;
pub mod reload;
mod stat_key;
pub mod xds;

pub use load::LoadError;
pub use stat_key::StatKey;
