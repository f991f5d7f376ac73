//! Runs that compare a store with a second implementation. The second implementation is the oracle
//! or the core.

pub(crate) mod against_oracle;
pub mod differential;
