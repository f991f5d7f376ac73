//! Replays requests against policies on a store, in the time of the requests.
//!
//! A [`Replay`] is the [`Sink`] of a trace: each record is decided by every [`Lane`], which is one
//! policy on a store of its own, whose clock shows the record's time. Where the states are kept is a
//! [`Place`].

mod decisions;
mod error;
mod lane;
mod place;
mod stores;
mod tally;
mod timeline;
mod written;

use std::time::Duration;

pub use decisions::Decisions;
pub use error::Error;
pub use lane::Lane;
pub use place::{Place, without_login};

use self::stores::Stores;
use self::written::Written;
use crate::report::{PolicyReport, Suggestion};
use crate::suggest::{Meters, Share};
use crate::trace::{Progress, Record, Sink, Stop, Subjects, Summary};
use tidegate_core::ErrorKind::Unavailable;
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
    stores: Stores,
    /// Whose states to take away, where they would outlive the replay.
    written: Option<Written>,
    suggest: Option<(Suggest, Meters)>,
    cost: u64,
    /// Whether anything may have been written to a server.
    may_have_written: bool,
    stop: Stop,
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
        let lanes = lanes.collect::<Result<_, _>>()?;
        let written = stores.outlive_the_replay().then(Written::default);
        Ok(Self {
            lanes,
            stores,
            written,
            suggest,
            cost: 0,
            may_have_written: false,
            stop: Stop::default(),
            progress,
        })
    }

    /// The same replay, which ends with [`Error::Stopped`] when `stop` asks for it.
    #[must_use]
    pub fn until(self, stop: &Stop) -> Self {
        Self { stop: stop.clone(), ..self }
    }

    /// Has all lanes decide on a record, each of them on a server: together they wait but once.
    fn decide_together(&mut self, record: Record, subject: &[u8]) -> Result<(), Error> {
        let charges: Vec<_> =
            self.lanes.iter().map(|lane| [lane.charge(record, subject)]).collect();
        let lanes = self.lanes.iter().zip(&charges);
        let answers = lanes.map(|(lane, charge)| lane.ask(record, charge)).collect();
        let decisions = self.stores.wait_for_all(answers);
        // A server that cannot be reached has written nothing.
        self.may_have_written |= !matches!(&decisions, Err(error) if error.kind() == Unavailable);
        let decisions = decisions?;
        let mut lanes = self.lanes.iter_mut().zip(&decisions);
        lanes.try_for_each(|(lane, decision)| lane.count(record, decision))
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

    /// Takes away what the replay wrote so far to a store that outlives it: to be called at its end,
    /// and when it has failed. One reset for each subject, policy by policy, and nobody else's keys are
    /// looked at.
    ///
    /// # Errors
    ///
    /// The first that the store has; then no more is tried. What is left expires by itself.
    pub fn clean_up(&self) -> Result<(), Error> {
        let Some(written) = self.written.as_ref().filter(|_| self.may_have_written) else {
            return Ok(());
        };
        self.lanes.iter().try_for_each(|lane| lane.clean_up(written))
    }

    /// What all keys begin with that the replay writes, where its states are on a server.
    #[must_use]
    pub fn prefix(&self) -> &str {
        self.stores.prefix()
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
        match &mut self.written {
            None => self.lanes.iter_mut().try_for_each(|lane| lane.decide(record, subject))?,
            Some(written) => {
                if self.stop.is_asked() {
                    return Err(Error::Stopped);
                }
                written.note(record, subject);
                self.decide_together(record, subject)?;
            }
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
