//! Replays requests against policies on a store, in the time of the requests.
//!
//! A [`Replay`] is the [`Sink`] of a trace: each record is decided by every [`PolicyRun`], which is one
//! policy on a store of its own, whose clock shows the record's time. A [`Backend`] has the states.

mod backend;
mod decisions;
mod error;
mod leased;
mod policy_run;
mod settling;
mod stores;
mod tally;
mod timeline;
mod touched_subjects;

use std::time::Duration;

pub use backend::{Backend, without_login};
pub use decisions::Decisions;
pub use error::Error;
pub use leased::{LeaseSpan, Leasing};
pub use policy_run::PolicyRun;
pub use settling::{Pace, Settling};

use self::stores::Stores;
use self::touched_subjects::TouchedSubjects;
use crate::report::{LeasedReport, PolicyReport, SettlingReport, Suggestion};
use crate::suggest::{Meters, Share};
use crate::trace::{Progress, Record, Sink, Stop, Subjects, Summary};
use tidegate_core::ErrorKind::Unavailable;
use tidegate_core::{Algorithm, FixedWindow, Policy, SlidingCounter, SlidingLog, TokenBucket};

/// Settings of `--suggest`: the share of the subjects, as it was given, and the window.
#[derive(Debug, Clone, Copy)]
pub struct Suggest {
    /// Share of the subjects that are never denied.
    pub share: Share,
    /// The window of the policies to suggest, in microseconds.
    pub window: u64,
}

/// Policies that decide on every record of a trace.
#[derive(Debug)]
pub struct Replay<P> {
    runs: Vec<PolicyRun>,
    stores: Stores,
    /// Subjects whose states are to be deleted, if these outlive the replay.
    touched: Option<TouchedSubjects>,
    suggest: Option<(Suggest, Meters)>,
    /// With the records, which are replayed once more.
    settling: Option<(Settling, Vec<Record>)>,
    leasing: Option<Leasing>,
    cost: u64,
    /// Whether anything may have been written to a server.
    may_have_written: bool,
    stop: Stop,
    progress: P,
}

impl<P: FnMut(Progress)> Replay<P> {
    /// A replay against policies. `progress` is called with the progress.
    ///
    /// # Errors
    ///
    /// If a store cannot keep one of the policies, or the window to suggest for has no length.
    pub fn new(
        policies: &[Policy],
        backend: Backend,
        suggest: Option<Suggest>,
        keep_decisions: bool,
        progress: P,
    ) -> Result<Self, Error> {
        let stores = Stores::new(backend)?;
        let run = |policy| PolicyRun::new(policy, stores.clone(), keep_decisions);
        let runs = policies.iter().map(run);
        let suggest = match suggest {
            Some(suggest) => Some((suggest, Meters::new(suggest.window)?)),
            None => None,
        };
        let runs = runs.collect::<Result<_, _>>()?;
        let touched = stores.outlive_the_replay().then(TouchedSubjects::default);
        Ok(Self {
            runs,
            stores,
            touched,
            suggest,
            settling: None,
            leasing: None,
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

    /// The same replay, whose late costs are also settled when requests end. That is done in memory, with 24 bytes for a
    /// record.
    #[must_use]
    pub fn settling(self, settling: Option<Settling>) -> Self {
        Self { settling: settling.map(|it| (it, Vec::new())), ..self }
    }

    /// The same replay, in which each policy is also decided by several nodes with leases, in memory.
    #[must_use]
    pub fn leased(mut self, leasing: Option<Leasing>) -> Self {
        if let Some(leasing) = &leasing {
            self.runs.iter_mut().for_each(|run| run.lease(leasing.clone()));
        }
        Self { leasing, ..self }
    }

    /// Decides a record in all runs at once, on a server: one wait for all.
    fn decide_together(&mut self, record: Record, subject: &[u8]) -> Result<(), Error> {
        let charges: Vec<_> = self.runs.iter().map(|run| [run.charge(record, subject)]).collect();
        let runs = self.runs.iter().zip(&charges);
        let answers = runs.map(|(run, charge)| run.ask(record, charge)).collect();
        let decisions = self.stores.wait_for_all(answers);
        // An unreachable server has written nothing.
        self.may_have_written |= !matches!(&decisions, Err(error) if error.kind() == Unavailable);
        let decisions = decisions?;
        let mut runs = self.runs.iter_mut().zip(&decisions);
        runs.try_for_each(|(run, decision)| run.count(record, subject, decision))
    }

    /// The runs, in the order of the policies.
    pub fn runs_mut(&mut self) -> &mut [PolicyRun] {
        &mut self.runs
    }

    /// The costs of all records.
    #[must_use]
    pub fn cost(&self) -> u64 {
        self.cost
    }

    /// Deletes all that the replay has written to a store that outlives it; to be called at its end, also
    /// after an error. One reset for each subject, policy by policy; no other keys are read.
    ///
    /// # Errors
    ///
    /// The first that the store has; then no more is tried. What is left expires by itself.
    pub fn clean_up(&self) -> Result<(), Error> {
        let Some(touched) = self.touched.as_ref().filter(|_| self.may_have_written) else {
            return Ok(());
        };
        self.runs.iter().try_for_each(|run| run.clean_up(touched))
    }

    /// Prefix of all keys that the replay writes on a server.
    #[must_use]
    pub fn prefix(&self) -> &str {
        self.stores.prefix()
    }

    /// The report of each policy, in their order.
    #[must_use]
    pub fn policies(&self, summary: &Summary) -> Vec<PolicyReport> {
        self.runs.iter().map(|run| run.report(&summary.subjects)).collect()
    }

    /// What comes of costs that are known only when a request ends, if that was requested.
    ///
    /// # Errors
    ///
    /// If a policy cannot hold costs, or the use of it cannot be measured.
    pub fn settlings(&self, summary: &Summary) -> Result<Option<SettlingReport>, Error> {
        let Some((settling, records)) = &self.settling else { return Ok(None) };
        let policies: Vec<&Policy> = self.runs.iter().map(PolicyRun::policy).collect();
        settling.report(&policies, records, &summary.subjects).map(Some)
    }

    /// What leases would have done, if that was requested. Ends them.
    #[must_use]
    pub fn leases(&self) -> Option<LeasedReport> {
        let runs = || self.runs.iter().filter_map(PolicyRun::leased).collect();
        self.leasing.as_ref().map(|leasing| leasing.report(runs()))
    }

    /// The suggested limits, if they were requested and there is any subject.
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
        match &mut self.touched {
            None => self.runs.iter_mut().try_for_each(|run| run.decide(record, subject))?,
            Some(touched) => {
                if self.stop.is_asked() {
                    return Err(Error::Stopped);
                }
                touched.note(record, subject);
                self.decide_together(record, subject)?;
            }
        }
        if let Some((_, meters)) = &mut self.suggest {
            meters.record(record.time, record.subject, record.cost)?;
        }
        if let Some((_, records)) = &mut self.settling {
            records.push(record);
        }
        Ok(())
    }

    fn restart(&mut self) {
        self.cost = 0;
        self.runs.iter_mut().for_each(PolicyRun::restart);
        if let Some((_, meters)) = &mut self.suggest {
            meters.clear();
        }
        if let Some((_, records)) = &mut self.settling {
            records.clear();
        }
    }

    fn progress(&mut self, progress: Progress) {
        (self.progress)(progress);
    }
}
