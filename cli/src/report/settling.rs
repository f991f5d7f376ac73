//! What was found of costs that are known only when a request ends.

use serde::Serialize;

/// A replay of requests whose cost is known only when they end.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct SettlingReport {
    /// The fields that add up to the late cost.
    pub late_cost_of: String,
    /// The sum of the late costs, a part of the cost.
    pub late_cost: u64,
    /// How fast the late cost comes, such as `50/1s`.
    pub pace: String,
    /// The fixed estimate of the late cost of a request.
    pub estimate: u64,
    /// The share of the requests that the learned estimate is to cover, such as `9/10`.
    pub cover: String,
    /// Each policy in each way.
    pub runs: Vec<SettlingRun>,
}

/// When the cost of a request is charged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Way {
    /// A request is admitted while anything is left, and charged when it ends.
    #[default]
    Check,
    /// An estimate is held, the same for each request, and settled when the request ends.
    Fixed,
    /// The same with an estimate that is learned from the requests that have ended.
    Learned,
}

impl Way {
    /// Its word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Check => "check",
            Self::Fixed => "fixed",
            Self::Learned => "learned",
        }
    }
}

/// One policy in one way.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct SettlingRun {
    /// The policy as text.
    pub policy: String,
    /// Its limit.
    pub limit: u64,
    /// The way.
    pub way: Way,
    /// Requests admitted.
    pub admitted: u64,
    /// Requests denied.
    pub denied: u64,
    /// The cost of the requests admitted.
    pub cost_admitted: u64,
    /// The cost of the requests denied.
    pub cost_denied: u64,
    /// The maximum of what was used of the limit, beyond it. A request uses its cost from its admission.
    pub overshoot: u64,
    /// The part of the overshoot that is due to estimates that were too low.
    pub overshoot_of_overage: u64,
    /// By how much the costs of requests exceeded their estimates, in total.
    pub overage: u64,
    /// Requests denied although their cost, with what was used, was within the limit.
    pub falsely_denied: u64,
    /// What was held and not used, times seconds.
    #[serde(rename = "idle_cost_s")]
    pub idle_cost_seconds: u64,
    /// What was held and not used, on average over time.
    pub idle_cost: u64,
    /// What was used and idle over time.
    pub fill: Fill,
}

/// Use of a limit over time, in equal steps: in each, the moment at which most was used and idle, for one subject, after
/// a request was decided on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Fill {
    /// Start of the first step, microseconds since 1970.
    #[serde(rename = "start_us")]
    pub start: u64,
    /// Length of a step, microseconds.
    #[serde(rename = "step_us")]
    pub step: u64,
    /// What was used.
    pub used: Vec<u64>,
    /// What was held and not used.
    pub idle: Vec<u64>,
}
