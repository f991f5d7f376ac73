//! The report about costs that are known only when a request ends.

use serde::Serialize;

/// A replay of requests whose cost is known only when they end.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct SettlingReport {
    /// The fields that add up to the late cost.
    pub late_cost_of: String,
    /// The sum of the late costs of all requests. It is a part of the sum of their costs.
    pub late_cost: u64,
    /// The speed at which a request uses its late cost, such as `50/1s`.
    pub pace: String,
    /// The fixed estimate of the late cost of a request.
    pub estimate: u64,
    /// The share of the requests whose late cost must not exceed the learned estimate, such as
    /// `9/10`.
    pub cover: String,
    /// Each policy in each way.
    pub runs: Vec<SettlingRun>,
}

/// A way of charging a cost that is known only when the request ends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Way {
    /// A request is admitted while the limit has any amount left, and its cost is charged when it
    /// ends.
    #[default]
    Check,
    /// The same estimate is held for each request, and the hold is settled when the request ends.
    Fixed,
    /// The held estimate is learned from requests that have ended. The hold is settled when the
    /// request ends.
    Learned,
}

impl Way {
    /// Returns the name of the way.
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
    /// The limit of the policy.
    pub limit: u64,
    /// The way.
    pub way: Way,
    /// The number of admitted requests.
    pub admitted: u64,
    /// The number of denied requests.
    pub denied: u64,
    /// The cost of the admitted requests.
    pub cost_admitted: u64,
    /// The cost of the denied requests.
    pub cost_denied: u64,
    /// The maximum amount that was used beyond the limit. The whole cost of a request counts as
    /// used from the time of its admission.
    pub overshoot: u64,
    /// The part of the overshoot that was caused by low estimates.
    pub overshoot_of_overage: u64,
    /// The total amount by which the costs of requests exceeded their estimates.
    pub overage: u64,
    /// The number of requests that were denied although the used amount plus their cost was within
    /// the limit, and although no block was in effect.
    pub falsely_denied: u64,
    /// The amount that was held and not used, multiplied by the seconds for which it was held.
    #[serde(rename = "idle_cost_s")]
    pub idle_cost_seconds: u64,
    /// The amount that was held and not used, as an average over time.
    pub idle_cost: u64,
    /// The used and idle amounts over time.
    pub fill: Fill,
}

/// The usage of a limit over time, in equal steps of time. Each step contains the used and the idle
/// amount of one subject after one decision: the pair with the largest sum.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Fill {
    /// The start of the first step, in microseconds since 1970.
    #[serde(rename = "start_us")]
    pub start: u64,
    /// The length of a step, in microseconds.
    #[serde(rename = "step_us")]
    pub step: u64,
    /// The used amount of each step.
    pub used: Vec<u64>,
    /// The amount of each step that was held and not used.
    pub idle: Vec<u64>,
}
