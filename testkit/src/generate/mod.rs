//! Proptest strategies: policies, subjects, clocks, and traces of calls.

pub mod holds;
pub mod policies;
pub mod subjects;
pub mod traces;

pub use holds::{HoldCall, HoldDoes, HoldScenario, HoldStep, hold_scenario};
pub use policies::{Kind, policy, related_policies};
pub use subjects::{confusable_pair, hostile_subject};
pub use traces::{ClockKind, Scenario, Step, Trace, scenario};
