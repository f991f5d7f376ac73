//! Replays requests whose cost is known only when they end. [`Way`] lists the three ways of
//! charging such a cost.
//!
//! The cost of a record consists of a part that is known when the request begins, such as the
//! tokens of a prompt, and a late cost, such as the tokens of the answer. A request uses its late
//! cost at the [`Pace`], and then it ends. A store in memory decides in virtual time. If one
//! request ends at the time at which another request begins, it ends first.
//!
//! | measure | meaning |
//! |---|---|
//! | used | the costs of all admitted requests, counted by the algorithm of the policy from the admission of each request (see `meter`) |
//! | overshoot | the maximum amount that is used beyond the limit |
//! | overage | the amount by which the cost of a request exceeds its hold |
//! | falsely denied | a request that was denied although its cost, in addition to the used amount, was within the limit, and although its subject was not blocked |
//! | idle | the amount that is held for running requests and that they will not use |

mod fill;
mod meter;
mod pace;
mod run;

pub use pace::Pace;

pub(super) use self::run::ready;

use self::run::Run;
use super::Error;
use crate::report::{SettlingReport, Way};
use crate::trace::{Record, Subjects};
use tidegate_core::{Policy, Share};

/// The settings of `--late-cost`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settling {
    /// The names of the fields with the late cost, for the report.
    pub late_cost_of: String,
    /// The fixed estimate of the late cost. By default, it is the maximum late cost of all
    /// requests.
    pub estimate: Option<u64>,
    /// The speed at which a request uses its late cost.
    pub pace: Pace,
    /// The share of the requests whose late cost must not exceed the learned estimate.
    pub cover: Share,
}

impl Settling {
    /// Replays the records against each policy, in each [`Way`]. The records must be sorted by
    /// time.
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
