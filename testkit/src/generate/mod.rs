//! Proptest strategies: policies, subjects, clocks, and traces of calls.

mod bytes;
pub mod holds;
pub mod policies;
mod seed;
pub mod subjects;
pub mod traces;

pub use bytes::Bytes;
pub use holds::{HoldCall, HoldDoes, HoldScenario, HoldStep, hold_scenario};
pub use policies::{Kind, policy, related_policies};
pub use seed::seeded_rng;
pub use subjects::{confusable_pair, hostile_subject};
pub use traces::{ClockKind, Scenario, Step, Trace, scenario};
