//! Tests that compare a store with a second implementation: the oracle or the core.

pub(crate) mod against_oracle;
pub mod differential;
