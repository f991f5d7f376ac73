//! Loads the limits of Envoy's service from files or from a management server, and lists of
//! subjects and limit sets from files. Changes the limit set in the store.

pub mod admin;
pub mod config;
pub mod lists;
mod load;
pub mod reload;
pub mod set;
mod stat_key;
pub mod xds;

pub use load::LoadError;
pub use stat_key::StatKey;
