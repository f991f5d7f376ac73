//! Replays requests against policies on a store, in the time of the requests.
//!
//! A [`Replay`] is the [`Sink`] of a trace: each record is decided by every [`Lane`], which is one
//! policy on a store of its own, whose clock shows the record's time. Where the states are kept is a
//! [`Place`].

mod decisions;
mod error;
mod lane;
mod stores;
mod tally;
mod timeline;

use std::time::Duration;

pub use decisions::Decisions;
pub use error::Error;
pub use lane::Lane;
pub use stores::Place;

use self::stores::Stores;
use crate::report::{PolicyReport, Suggestion};
use crate::suggest::{Meters, Share};
use crate::trace::{Progress, Record, Sink, Subjects, Summary};
use tidegate_core::{Algorithm, FixedWindow, Policy, SlidingCounter, SlidingLog, TokenBucket};

/// What a `--suggest` asks for: the share of the subjects, as it was written, and the window.
#[derive(Debug, Clone, Copy)]
pub struct Suggest {
    /// The share of the subjects that shall never be refused.
    pub share: Share,
    /// The window of the policies to suggest, in microseconds.
    pub window: u64,
}

/// Policies that decide on every record of a trace.
#[derive(Debug)]
pub struct Replay<P> {
    lanes: Vec<Lane>,
    suggest: Option<(Suggest, Meters)>,
    cost: u64,
    progress: P,
}

impl<P: FnMut(Progress)> Replay<P> {
    /// A replay against policies. `progress` hears how far it has come.
    ///
    /// # Errors
    ///
    /// If a store cannot keep one of the policies, or the window to suggest for has no length.
    pub fn new(
        policies: &[Policy],
        place: Place,
        suggest: Option<Suggest>,
        keep_decisions: bool,
        progress: P,
    ) -> Result<Self, Error> {
        let stores = Stores::new(place)?;
        let lane = |policy| Lane::new(policy, stores.clone(), keep_decisions);
        let lanes = policies.iter().map(lane);
        let suggest = match suggest {
            Some(suggest) => Some((suggest, Meters::new(suggest.window)?)),
            None => None,
        };
        Ok(Self { lanes: lanes.collect::<Result<_, _>>()?, suggest, cost: 0, progress })
    }

    /// The lanes, in the order of the policies.
    pub fn lanes_mut(&mut self) -> &mut [Lane] {
        &mut self.lanes
    }

    /// The costs of all records.
    #[must_use]
    pub fn cost(&self) -> u64 {
        self.cost
    }

    /// Takes away what the replay wrote to a store that outlives it.
    ///
    /// # Errors
    ///
    /// If the store cannot be reached. What is left then expires by itself.
    pub fn clean_up(&self, summary: &Summary) -> Result<(), Error> {
        self.lanes.iter().try_for_each(|lane| lane.clean_up(&summary.subjects))
    }

    /// What each policy would have done, in their order.
    #[must_use]
    pub fn policies(&self, summary: &Summary) -> Vec<PolicyReport> {
        self.lanes.iter().map(|lane| lane.report(&summary.subjects)).collect()
    }

    /// The smallest limits, if they were asked for and there is any subject.
    #[must_use]
    pub fn suggestions(&self) -> Vec<Suggestion> {
        let Some((Suggest { share, window }, meters)) = &self.suggest else { return Vec::new() };
        if meters.subjects() == 0 {
            return Vec::new();
        }
        let limits = meters.smallest(*share);
        let content = meters.content(&limits);
        let window = Duration::from_micros(*window);
        let rows: [(Algorithm, u64, u64); 4] = [
            (
                FixedWindow::new(limits.fixed_window, window).into(),
                limits.fixed_window,
                content.fixed_window,
            ),
            (
                SlidingLog::new(limits.sliding_log, window).into(),
                limits.sliding_log,
                content.sliding_log,
            ),
            (
                SlidingCounter::new(limits.sliding_counter, window).into(),
                limits.sliding_counter,
                content.sliding_counter,
            ),
            (
                TokenBucket::new(limits.token_bucket, window).into(),
                limits.token_bucket,
                content.token_bucket,
            ),
        ];
        let suggestion = |(algorithm, limit, content): (Algorithm, u64, u64)| Suggestion {
            algorithm: algorithm.keyword().to_owned(),
            policy: algorithm.to_string(),
            limit,
            asked: share.to_string(),
            subjects_content: content,
            subjects: meters.subjects() as u64,
        };
        rows.into_iter().map(suggestion).collect()
    }
}

impl<P: FnMut(Progress)> Sink for Replay<P> {
    type Error = Error;

    #[inline]
    fn record(&mut self, record: Record, subjects: &Subjects) -> Result<(), Error> {
        let subject = subjects.get(record.subject).unwrap_or_default();
        self.cost = self.cost.saturating_add(record.cost);
        for lane in &mut self.lanes {
            lane.decide(record, subject)?;
        }
        if let Some((_, meters)) = &mut self.suggest {
            meters.record(record.time, record.subject, record.cost)?;
        }
        Ok(())
    }

    fn restart(&mut self) {
        self.cost = 0;
        self.lanes.iter_mut().for_each(Lane::restart);
        if let Some((_, meters)) = &mut self.suggest {
            meters.clear();
        }
    }

    fn progress(&mut self, progress: Progress) {
        (self.progress)(progress);
    }
}
