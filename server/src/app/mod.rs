//! The parts of the running program.

pub(crate) mod descriptors;
pub(crate) mod limits;
pub(crate) mod outages;
