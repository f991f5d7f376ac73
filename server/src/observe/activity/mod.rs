//! The present state of a server: the rates of each limit, the subjects that were refused most, the
//! slowest calls, the stores and the configuration. The page and `tidegate-server top` show this
//! state.
//!
//! The memory for this state is bounded:
//!
//! | | bound |
//! |---|---|
//! | limits with their own rates | [`MAX_LIMITS`] limits of the files and [`MAX_LIMITS`] policies of calls; a limit without a decision in the last [`SECONDS`] seconds is removed |
//! | history | [`SECONDS`] samples per limit |
//! | refused subjects, subjects near their limits | each 512 per minute, two minutes |
//! | slow calls | 10 per minute, two minutes |
//! | bans | the last 20 |
//! | warnings | the last 20 |
//! | a subject, a text | 160 bytes; the middle of a longer text is left out |
//!
//! A decision increments one counter of its limit. A refusal is also counted in a [`Sketch`]. Once
//! a second, [`Activity::run`] computes the rates from the differences of the counters.

mod bans;
mod counts;
mod errors;
mod event;
mod limits;
mod loads;
mod minutes;
mod query;
mod shown;
mod sketch;
mod slow;
mod snapshot;
mod stores;
mod warnings;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use tidegate_core::{Policy, Verdict};
use tokio::time::MissedTickBehavior;

use crate::limits::config::Config;
use crate::limits::{LoadError, StatKey};
use crate::store::OnStoreError;
use bans::{Ban, Bans};
use counts::{Counts, History, Widths};
use errors::Errors;
use event::NEAR_PERCENT;
pub(crate) use event::{Event, Kind, LimitEvent, LimitName, LimitRef, SlowCall, Subject, Usage};
use limits::Limits;
pub use loads::FollowedSet;
use loads::Loads;
use minutes::{Blocked, Frequent, Near, Refused};
pub use query::{LimitColumn, LimitsQuery};
use shown::{Cut, cut_text, shown};
pub use sketch::{Estimate, Sketch};
use slow::SlowCalls;
pub use stores::{WatchedStore, without_secrets};
pub use warnings::LastWarnings;

/// The maximum number of limits in the files that have their own rates. All further limits share
/// one entry. The same maximum applies to the policies of calls.
pub const MAX_LIMITS: usize = 1_000;

/// The number of seconds for which rates are remembered.
pub const SECONDS: usize = 60;

/// The protocol of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// Envoy's rate-limit service, over gRPC and `POST /json`.
    Envoy,
    /// The protocol of Redis.
    Resp,
    /// Calls in JSON, `/v1`.
    V1,
}

impl Source {
    /// Returns the name of the protocol as the page shows it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Envoy => "envoy",
            Self::Resp => "resp",
            Self::V1 => "v1",
        }
    }
}

/// The settings of [`Activity`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ActivitySettings {
    /// Whether subjects are recorded and shown. Subjects can be personal data.
    pub shows_subjects: bool,
    /// The answer to requests that a store cannot decide.
    pub on_store_error: OnStoreError,
}

/// The present state of a server.
#[derive(Debug)]
pub struct Activity {
    settings: ActivitySettings,
    started: SystemTime,
    /// The number of requests, and of calls that can be refused, by outcome.
    totals: Counts,
    /// The requests and calls that were not decided or were decided without the store, by kind of
    /// error.
    errors: Errors,
    /// The rates of the limits of the files, by their keys.
    limits: Limits<Arc<StatKey>>,
    /// The rates of the policies that calls contain.
    policies: Limits<Policy>,
    refusals: Frequent<Refused>,
    near: Frequent<Near>,
    slow: SlowCalls,
    bans: Bans,
    warnings: LastWarnings,
    loads: Mutex<Loads>,
    stores: Vec<WatchedStore>,
    samples: Mutex<Samples>,
}

/// The state of the task that computes rates.
#[derive(Debug)]
struct Samples {
    last: Instant,
    widths: Widths,
    totals: History,
    until_rotation: usize,
}

impl Activity {
    /// Creates the state of a server that has made no decisions. The first sample starts at `now`.
    /// The page shows the state of `stores`.
    #[must_use]
    pub fn new(settings: ActivitySettings, stores: Vec<WatchedStore>, now: Instant) -> Self {
        Self {
            settings,
            started: SystemTime::now(),
            totals: Counts::default(),
            errors: Errors::default(),
            limits: Limits::default(),
            policies: Limits::default(),
            refusals: Frequent::default(),
            near: Frequent::default(),
            slow: SlowCalls::default(),
            bans: Bans::default(),
            warnings: LastWarnings::new(settings.shows_subjects),
            loads: Mutex::default(),
            stores,
            samples: Mutex::new(Samples {
                last: now,
                widths: Widths::default(),
                totals: History::default(),
                until_rotation: SECONDS,
            }),
        }
    }

    /// Returns this state with warnings, which the stores record.
    #[must_use]
    pub fn with_warnings(self, warnings: LastWarnings) -> Self {
        Self { warnings, ..self }
    }

    /// Computes rates and checks whether the stores answer, both once a second. This function never
    /// returns; drop the future to stop it.
    pub async fn run(&self) {
        let sample = async {
            let mut ticks = tokio::time::interval(Duration::from_secs(1));
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            // The first tick completes immediately.
            ticks.tick().await;
            loop {
                ticks.tick().await;
                self.sample(Instant::now());
            }
        };
        tokio::join!(sample, stores::probe_all(&self.stores));
    }

    /// Appends a sample to each rate: the decisions since the previous call of this function.
    /// [`Self::run`] calls this function once a second.
    pub fn sample(&self, now: Instant) {
        let samples = &mut *lock(&self.samples);
        samples.widths.push(now.saturating_duration_since(samples.last));
        samples.last = now;
        samples.totals.push(&self.totals);
        self.errors.sample();
        self.limits.sample();
        self.policies.sample();
        samples.until_rotation -= 1;
        if samples.until_rotation == 0 {
            samples.until_rotation = SECONDS;
            self.refusals.rotate();
            self.near.rotate();
            self.slow.rotate();
        }
    }

    /// Records a request or a call.
    pub(crate) fn record<'a>(&self, event: Event<impl Iterator<Item = LimitEvent<'a>>>) {
        let Event { kind, error, limits } = event;
        self.totals.count(kind);
        if let Some(error) = error {
            self.errors.count(error);
        }
        for LimitEvent { kind, limit, subject, verdict, usage } in limits {
            match limit {
                LimitRef::Key(key) => self.limits.count(key, kind),
                LimitRef::Policy(policy) => self.policies.count(policy, kind),
            }
            if kind == Kind::Refused {
                let refused = || Refused::new(limit.to_name(), self.cut(subject));
                let blocked = verdict.and_then(Blocked::new);
                self.refusals.count((limit, subject), refused, |refused| refused.blocked = blocked);
            }
            if let Some(usage) = usage.filter(|usage| usage.is_near()) {
                let at = SystemTime::now();
                let near = || Near { limit: limit.to_name(), cut: self.cut(subject), usage, at };
                self.near.count((limit, subject), near, |near| (near.usage, near.at) = (usage, at));
            }
        }
    }

    /// Records a call that took the time `took`, if it is among the slowest calls. Only in this
    /// case, this function uses `call` to create the record.
    pub(crate) fn record_slow(&self, took: Duration, call: impl FnOnce() -> SlowCall) {
        self.slow.record(took, call);
    }

    /// Records a ban with its reason. Without a reason, records the end of a ban. `verdict` is the
    /// verdict of the call.
    pub(crate) fn record_ban(
        &self,
        source: Source,
        limit: LimitName,
        subject: Subject<'_>,
        verdict: &Verdict,
        reason: Option<&str>,
    ) {
        let at = SystemTime::now();
        let end = at.checked_add(verdict.blocked_for()).unwrap_or(at);
        let end_and_reason = reason.map(|reason| (end, reason.to_owned()));
        self.bans.record(Ban { at, source, limit, subject: self.cut(subject), end_and_reason });
    }

    /// Returns the part of a subject to keep, or `None` if subjects are not shown.
    pub(crate) fn cut(&self, subject: Subject<'_>) -> Option<Cut> {
        self.settings.shows_subjects.then(|| Cut::new(subject))
    }

    /// Records the state of the limit set in the store.
    pub fn limit_set(&self, set: FollowedSet) {
        lock(&self.loads).limit_set = Some(set);
    }

    /// Records a configuration that was put in force or refused. `files` contains the names of the
    /// files or resources.
    pub(crate) fn loaded<'n>(
        &self,
        files: impl ExactSizeIterator<Item = &'n str>,
        loaded: Result<Option<Arc<Config>>, &LoadError>,
    ) {
        lock(&self.loads).record(files, loaded);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
