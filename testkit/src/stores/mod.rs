//! Stores and wrappers of stores for tests.

pub mod faults;
mod model;
mod with_context;

pub use model::ModelStore;
pub use with_context::{Context, StoreWithContext, decide_one_by_one};
