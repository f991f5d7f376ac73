//! Replays requests whose cost is known only when they end, in three ways: see [`Way`].
//!
//! Each record has a cost that is known when the request begins, as the tokens of a prompt, and a late one, as the tokens
//! of the answer. It ends when its late cost has come at the [`Pace`]. Decisions are those of a store in memory, in
//! virtual time: at one instant, requests end before others begin.
//!
//! | measure | what it is |
//! |---|---|
//! | used | the costs of all requests that were admitted, each counted from the moment of its admission, by the policy's own algorithm: see `meter` |
//! | overshoot | the maximum of what is used beyond the limit |
//! | overage | by how much the cost of a request exceeds what is held for it |
//! | falsely denied | a request that was denied although its cost, with what was used at the time, would have been within the limit; and not because its subject was blocked |
//! | idle | what is held for requests that run, and will not be used by them |

mod fill;
mod meter;
mod pace;
mod run;

pub use pace::Pace;

use self::run::Run;
use super::Error;
use crate::report::{SettlingReport, Way};
use crate::trace::{Record, Subjects};
use tidegate_core::{Policy, Share};

/// Settings of `--late-cost`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settling {
    /// The names of the fields with the late cost, for the report.
    pub late_cost_of: String,
    /// The fixed estimate of the late cost; by default, the maximum of all.
    pub estimate: Option<u64>,
    /// How fast the late cost comes.
    pub pace: Pace,
    /// The share of the requests that a learned estimate is to cover.
    pub cover: Share,
}

impl Settling {
    /// Replays the records, which are in order of time, against each policy in each way.
    pub(super) fn report(
        &self,
        policies: &[&Policy],
        records: &[Record],
        subjects: &Subjects,
    ) -> Result<SettlingReport, Error> {
        let late_costs = || records.iter().map(|record| u64::from(record.late_cost));
        let estimate = self.estimate.unwrap_or_else(|| late_costs().max().unwrap_or(0));
        let mut runs = Vec::new();
        for policy in policies {
            for way in [Way::Check, Way::Fixed, Way::Learned] {
                let mut run = Run::new(policy, way, self, estimate, records)?;
                for &record in records {
                    run.begin(record, subjects)?;
                }
                runs.push(run.finish(subjects)?);
            }
        }
        Ok(SettlingReport {
            late_cost_of: self.late_cost_of.clone(),
            late_cost: late_costs().fold(0, u64::saturating_add),
            pace: self.pace.to_string(),
            estimate,
            cover: self.cover.to_string(),
            runs,
        })
    }
}
