//! Proptest strategies for policies, subjects, clocks, and traces of calls.

mod bytes;
mod holds;
mod policies;
mod seed;
mod subjects;
mod traces;

pub use bytes::Bytes;
pub use holds::{HoldCall, HoldScenario, Places, hold_scenario, slots_scenario};
pub use policies::{
    Kind, any_policy, few_slots, policy, related_policies, several_policies, slots_policy,
};
pub use seed::seeded_rng;
pub use subjects::{confusable_pair, hostile_subject};
pub use traces::{ClockKind, Cost, Does, Passes, Scenario, Step, Trace, scenario};
