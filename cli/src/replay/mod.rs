//! Replays requests against policies on a store, at the times of the requests.
//!
//! A [`Replay`] is a [`Sink`], which receives the records of a trace. It has a [`PolicyRun`] for
//! each policy, and each run decides every record. A run has its own store, whose clock shows the
//! time of the record. The [`Backend`] stores the states.

mod backend;
mod days;
mod decisions;
mod error;
mod grants;
mod leased;
mod policy_run;
#[cfg_attr(not(feature = "redis"), path = "no_server.rs")]
mod server;
mod settling;
mod shares;
mod slots;
mod stores;
mod tally;
mod timeline;
mod touched_subjects;

use std::time::Duration;

pub use backend::{Backend, without_login};
pub use decisions::Decisions;
pub use error::Error;
pub use grants::Grants;
pub use leased::{LeaseSpan, Leasing};
pub use policy_run::PolicyRun;
pub use settling::{Pace, Settling};
pub use slots::Slots;

use self::stores::Stores;
use self::touched_subjects::TouchedSubjects;
use crate::report::{LeasedReport, PolicyReport, SettlingReport, SlotsReport, Suggestion};
use crate::suggest::{Meters, Share};
use crate::trace::{Progress, Record, Sink, Stop, Subjects, Summary};
use tidegate_core::ErrorKind::Unavailable;
use tidegate_core::{
    Algorithm, FixedWindow, LimitSet, Lists, Policy, SlidingCounter, SlidingLog, TokenBucket,
};

/// The settings of `--suggest`.
#[derive(Debug, Clone, Copy)]
pub struct Suggest {
    /// The share of the subjects that a suggested limit must never deny.
    pub share: Share,
    /// The window of the suggested policies, in microseconds.
    pub window: u64,
}

/// A replay of a trace against policies. Each policy decides every record.
#[derive(Debug)]
pub struct Replay<P> {
    runs: Vec<PolicyRun>,
    stores: Stores,
    /// The subjects whose states the replay must delete, or `None` for a replay in memory, whose
    /// states need no deletion.
    touched: Option<TouchedSubjects>,
    grants: Option<Grants>,
    /// The number of grants that were made.
    granted: usize,
    suggest: Option<(Suggest, Meters)>,
    settling: Option<Settling>,
    slots: Option<Slots>,
    /// All records, if `settling` or `slots` is set. At the end, the records are replayed again.
    kept: Vec<Record>,
    leasing: Option<Leasing>,
    cost: u64,
    /// Whether the replay may have written to a server.
    may_have_written: bool,
    stop: Stop,
    progress: P,
}

impl<P: FnMut(Progress)> Replay<P> {
    /// Creates a replay against policies. The replay reports its progress to `progress`.
    ///
    /// # Errors
    ///
    /// Returns an error if a store does not support one of the policies, or if the window of
    /// suggestions is zero.
    pub fn new(
        policies: &[Policy],
        backend: Backend,
        suggest: Option<Suggest>,
        keep_decisions: bool,
        progress: P,
    ) -> Result<Self, Error> {
        let stores = Stores::new(backend);
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
            grants: None,
            granted: 0,
            suggest,
            settling: None,
            slots: None,
            kept: Vec::new(),
            leasing: None,
            cost: 0,
            may_have_written: false,
            stop: Stop::default(),
            progress,
        })
    }

    /// Returns this replay, which ends with [`Error::Stopped`] when `stop` requests it.
    #[must_use]
    pub fn until(self, stop: &Stop) -> Self {
        Self { stop: stop.clone(), ..self }
    }

    /// Returns this replay with lists that allow and deny subjects, if there are any. They apply to
    /// each policy.
    #[must_use]
    pub fn listed(self, lists: Option<&Lists>) -> Self {
        let names = self.runs.iter().map(|run| run.policy().name().to_owned());
        let lists = names.filter_map(|name| Some((name, lists?.clone())));
        self.stores.lists().replace(lists);
        self
    }

    /// Returns this replay with a limit set, if there is one. Its limits replace the policies with
    /// the same names.
    ///
    /// # Errors
    ///
    /// Returns an error if a store does not support one of the policies of the set.
    pub fn adjusted(self, set: Option<&LimitSet>) -> Result<Self, Error> {
        if let Some(set) = set {
            self.runs.iter().try_for_each(|run| run.adjust(set))?;
        }
        Ok(self)
    }

    /// Returns this replay in which each policy is compared with the policy of the earlier set
    /// `before`, if there is one.
    ///
    /// # Errors
    ///
    /// Returns an error if a store does not support one of the policies of the set.
    pub fn compared_with(mut self, before: Option<&LimitSet>) -> Result<Self, Error> {
        if let Some(before) = before {
            self.runs.iter_mut().try_for_each(|run| run.compare_with(before))?;
        }
        Ok(self)
    }

    /// Returns this replay with a pool, if there is one. A request that a policy refuses is charged
    /// to the pool, which all subjects share. Each policy has its own pool.
    ///
    /// # Errors
    ///
    /// Returns an error if a store does not support the pool, or if a policy and the pool cannot be
    /// alternatives.
    pub fn spilling_to(mut self, pool: Option<&Policy>) -> Result<Self, Error> {
        if let Some(pool) = pool {
            self.runs.iter_mut().try_for_each(|run| run.spill_to(pool))?;
        }
        Ok(self)
    }

    /// Returns this replay with grants, if there are any. Each grant tops up the quotas and credits
    /// of its subject, before the first request that has the time of the grant or a later time.
    #[must_use]
    pub fn granting(self, grants: Option<Grants>) -> Self {
        Self { grants, ..self }
    }

    /// Returns this replay with the settings of late costs, if there are any. The late costs are
    /// settled when requests end. This part of the replay is always in memory, and takes 24 bytes
    /// per record.
    #[must_use]
    pub fn settling(self, settling: Option<Settling>) -> Self {
        Self { settling, ..self }
    }

    /// Returns this replay with policies of slots, if there are any. The late cost of a record is
    /// then the duration of its request in milliseconds. This part of the replay is always in
    /// memory, and takes 24 bytes per record.
    #[must_use]
    pub fn slots(self, slots: Option<Slots>) -> Self {
        Self { slots, ..self }
    }

    /// Returns this replay with leases. For each policy, the replay also simulates, in memory,
    /// several nodes that decide on the same records with leases.
    #[must_use]
    pub fn leased(mut self, leasing: Option<Leasing>) -> Self {
        if let Some(leasing) = &leasing {
            self.runs.iter_mut().for_each(|run| run.lease(leasing.clone()));
        }
        Self { leasing, ..self }
    }

    /// Makes the grants up to the time of a record.
    fn make_grants(&mut self, time: u64) -> Result<(), Error> {
        let Some(grants) = &self.grants else { return Ok(()) };
        while let Some(grant) = grants.get(self.granted).filter(|grant| grant.time <= time) {
            if self.stop.is_asked() {
                return Err(Error::Stopped);
            }
            self.granted += 1;
            self.may_have_written = true;
            self.runs.iter_mut().try_for_each(|run| run.grant(grant))?;
        }
        Ok(())
    }

    /// Decides a record in all runs concurrently, so that the replay waits for the server only once
    /// per record.
    fn decide_together(&mut self, record: Record, subject: &[u8]) -> Result<(), Error> {
        let charges: Vec<_> =
            self.runs.iter().map(|run| run.charges(record.cost, subject)).collect();
        let runs = self.runs.iter().zip(&charges);
        let answers = runs.map(|(run, charge)| run.ask(record, charge)).collect();
        let decisions = self.stores.wait_for_all(answers);
        // If the error is `Unavailable`, no call has reached a server, so the server has written
        // nothing.
        self.may_have_written |= !matches!(&decisions, Err(error) if error.kind() == Unavailable);
        let decisions = decisions?;
        drop(charges);
        let mut runs = self.runs.iter_mut().zip(&decisions);
        runs.try_for_each(|(run, decision)| run.count(record, subject, decision))
    }

    /// Returns the runs, in the order of the policies.
    pub fn runs_mut(&mut self) -> &mut [PolicyRun] {
        &mut self.runs
    }

    /// Returns the sum of the costs of all records.
    #[must_use]
    pub fn cost(&self) -> u64 {
        self.cost
    }

    /// Deletes all states that the replay has written to a server. The caller must call this
    /// function at the end, also after an error. The function sends one reset per subject and
    /// policy, or one refund if the policy is a fair pool. It reads no other keys.
    ///
    /// # Errors
    ///
    /// Returns the first error of the store. After an error, the function deletes no more states,
    /// and the remaining keys expire.
    pub fn clean_up(&self) -> Result<(), Error> {
        let Some(touched) = self.touched.as_ref().filter(|_| self.may_have_written) else {
            return Ok(());
        };
        let granted = self.grants.iter().flat_map(Grants::subjects);
        let subjects: Vec<&[u8]> = touched.subjects().chain(granted).collect();
        self.runs.iter().try_for_each(|run| run.clean_up(&subjects))
    }

    /// Returns the prefix of all keys that the replay writes on a server.
    #[must_use]
    pub fn prefix(&self) -> &str {
        self.stores.prefix()
    }

    /// Returns the report of each policy, in the order of the policies.
    #[must_use]
    pub fn policies(&self, summary: &Summary) -> Vec<PolicyReport> {
        self.runs.iter().map(|run| run.report(&summary.subjects)).collect()
    }

    /// Returns the report about late costs, or `None` if this replay has no late costs.
    ///
    /// # Errors
    ///
    /// Returns an error if a policy cannot hold costs, or if its usage cannot be measured.
    pub fn settlings(&self, summary: &Summary) -> Result<Option<SettlingReport>, Error> {
        let Some(settling) = &self.settling else { return Ok(None) };
        let policies: Vec<&Policy> = self.runs.iter().map(PolicyRun::policy).collect();
        settling.report(&policies, &self.kept, &summary.subjects).map(Some)
    }

    /// Returns the report about slots, or `None` if this replay has no policies of slots.
    ///
    /// # Errors
    ///
    /// Returns an error if the store fails.
    pub fn slots_report(&self, summary: &Summary) -> Result<Option<SlotsReport>, Error> {
        let Some(slots) = &self.slots else { return Ok(None) };
        slots.report(&self.kept, &summary.subjects).map(Some)
    }

    /// Ends the leases and returns their report, or `None` if this replay has no leases.
    #[must_use]
    pub fn leases(&self) -> Option<LeasedReport> {
        let runs = || self.runs.iter().filter_map(PolicyRun::leased).collect();
        self.leasing.as_ref().map(|leasing| leasing.report(runs()))
    }

    /// Returns the suggested limits, if they were requested and there is at least one subject. An
    /// algorithm that cannot have its smallest limit is omitted.
    #[must_use]
    pub fn suggestions(&self) -> Vec<Suggestion> {
        let Some((Suggest { share, window }, meters)) = &self.suggest else { return Vec::new() };
        if meters.subjects() == 0 {
            return Vec::new();
        }
        let limits = meters.smallest(*share);
        let content = meters.content(&limits);
        let window = Duration::from_micros(*window);
        let rows: [(NewAlgorithm, u64, u64); 4] = [
            (
                |limit, window| FixedWindow::new(limit, window).into(),
                limits.fixed_window,
                content.fixed_window,
            ),
            (
                |limit, window| SlidingLog::new(limit, window).into(),
                limits.sliding_log,
                content.sliding_log,
            ),
            (
                |limit, window| SlidingCounter::new(limit, window).into(),
                limits.sliding_counter,
                content.sliding_counter,
            ),
            (
                |limit, window| TokenBucket::new(limit, window).into(),
                limits.token_bucket,
                content.token_bucket,
            ),
        ];
        let suggestion = |(build, smallest, content): (NewAlgorithm, _, _)| {
            let (algorithm, limit) = admitting(|limit| build(limit, window), smallest, window)?;
            Some(Suggestion {
                algorithm: algorithm.keyword().to_owned(),
                policy: algorithm.to_string(),
                limit,
                asked: share.to_string(),
                subjects_content: content,
                subjects: meters.subjects() as u64,
            })
        };
        rows.into_iter().filter_map(suggestion).collect()
    }
}

/// Creates an algorithm with a limit and a window.
type NewAlgorithm = fn(u64, Duration) -> Algorithm;

/// Returns the algorithm and its limit, for a limit that was calculated in microseconds. If the
/// limit is so large that the policy counts time in longer ticks, the limit is raised by the costs
/// of a tick, because the policy rounds against the caller. Returns `None` if no policy can have
/// the limit, such as a log of more records than a log can have.
fn admitting(
    build: impl Fn(u64) -> Algorithm,
    smallest: u64,
    window: Duration,
) -> Option<(Algorithm, u64)> {
    let window = window.as_micros();
    let mut limit = smallest;
    loop {
        let policy = Policy::unnamed(build(limit)).ok()?;
        let tick = u128::from(policy.rule().tick());
        let rounding = if tick > 1 { (u128::from(smallest) * tick).div_ceil(window) } else { 0 };
        let needed = smallest.saturating_add(u64::try_from(rounding).unwrap_or(u64::MAX));
        if needed <= limit {
            return Some((build(limit), limit));
        }
        limit = needed;
    }
}

impl<P: FnMut(Progress)> Sink for Replay<P> {
    type Error = Error;

    #[inline]
    fn record(&mut self, record: Record, subjects: &Subjects) -> Result<(), Error> {
        let subject = subjects.get(record.subject).unwrap_or_default();
        self.cost = self.cost.saturating_add(record.cost);
        self.make_grants(record.time)?;
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
        if self.settling.is_some() || self.slots.is_some() {
            self.kept.push(record);
        }
        Ok(())
    }

    fn restart(&mut self) {
        self.cost = 0;
        self.granted = 0;
        self.runs.iter_mut().for_each(PolicyRun::restart);
        if let Some((_, meters)) = &mut self.suggest {
            meters.clear();
        }
        self.kept.clear();
    }

    fn progress(&mut self, progress: Progress) {
        (self.progress)(progress);
    }
}
