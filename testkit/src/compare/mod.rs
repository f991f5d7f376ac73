//! Runs that compare a store with a second implementation: with the oracle, or with the core.

pub(crate) mod against_oracle;
pub mod differential;
