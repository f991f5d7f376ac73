//! What a server does now: rates of each limit, the subjects refused most, slow calls, stores and the configuration.
//! The page and `tidegate-server top` show it.
//!
//! All of it is bounded:
//!
//! | | bound |
//! |---|---|
//! | limits with rates of their own | [`MAX_LIMITS`] of the files, as many of calls; those without a decision for [`SECONDS`] make place |
//! | history | [`SECONDS`] per limit |
//! | refused subjects | 512 per minute, two minutes |
//! | slow calls | 10 per minute, two minutes |
//! | a subject, a text | 160 bytes, the middle of longer ones is left out |
//!
//! A decision counts under its limit by one addition, and a refusal goes into a sketch besides. Rates are computed once a
//! second by [`Activity::run`], from the differences of counts.

mod counts;
mod errors;
mod limits;
mod loads;
mod minutes;
mod query;
mod shown;
mod sketch;
mod slow;
mod snapshot;
mod stores;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::Code;
use tidegate_core::{Decision, Error, Outcome, Policy, Verdict};
use tokio::time::MissedTickBehavior;

use crate::calls::CallRequest;
use crate::config::Config;
use crate::decide::{DecideError, Decided, StatKey, Tally};
use crate::service::{LoadError, OnStoreError};
use counts::{Counts, History, Kind, Widths};
use errors::Errors;
use limits::Limits;
use loads::Loads;
use minutes::Refusals;
pub use query::{LimitColumn, LimitsQuery};
pub(crate) use shown::Subject;
use shown::{Cut, cut_text, shown};
pub use sketch::{Estimate, Sketch};
use slow::{SlowCall, SlowCalls};
pub use stores::{WatchedStore, without_secrets};

/// The maximum number of limits with rates of their own, of the files and of calls each. Others count as one.
pub const MAX_LIMITS: usize = 1_000;

/// For how many seconds rates are remembered.
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
    /// The name on the page.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Envoy => "envoy",
            Self::Resp => "resp",
            Self::V1 => "v1",
        }
    }
}

/// What to record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ActivitySettings {
    /// Whether subjects are recorded and shown. They may be personal data.
    pub shows_subjects: bool,
    /// How requests are answered that a store cannot decide.
    pub on_store_error: OnStoreError,
}

/// What a server does now.
#[derive(Debug)]
pub struct Activity {
    settings: ActivitySettings,
    started: SystemTime,
    /// Requests and calls that can be refused.
    totals: Counts,
    /// Those that were not decided.
    errors: Errors,
    /// By their keys in the files.
    limits: Limits<Arc<StatKey>>,
    /// That calls brought along.
    policies: Limits<Policy>,
    refusals: Refusals,
    slow: SlowCalls,
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

/// A limit, by the key of the files or as a policy.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum LimitName {
    Key(Arc<StatKey>),
    Policy(Policy),
}

impl LimitName {
    fn text(&self) -> String {
        match self {
            Self::Key(key) => shown(key.name().as_bytes()),
            Self::Policy(policy) => shown(policy.to_string().as_bytes()),
        }
    }
}

impl Activity {
    /// Begins to record now, at `now`. `stores` are those that the page shows.
    #[must_use]
    pub fn new(settings: ActivitySettings, stores: Vec<WatchedStore>, now: Instant) -> Self {
        Self {
            settings,
            started: SystemTime::now(),
            totals: Counts::default(),
            errors: Errors::default(),
            limits: Limits::default(),
            policies: Limits::default(),
            refusals: Refusals::default(),
            slow: SlowCalls::default(),
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

    /// Computes rates and asks the stores whether they answer, both once a second. Never returns: drop the future to end
    /// it.
    pub async fn run(&self) {
        let sample = async {
            let mut ticks = tokio::time::interval(Duration::from_secs(1));
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            // The first tick comes at once.
            ticks.tick().await;
            loop {
                ticks.tick().await;
                self.sample(Instant::now());
            }
        };
        tokio::join!(sample, stores::probe_all(&self.stores));
    }

    /// Ends a second: what was counted since the last one becomes its rates.
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
            self.slow.rotate();
        }
    }

    /// Records a request of Envoy's service. `limits` returns the limits of a request that was not
    /// decided, with their subjects.
    pub(crate) fn request(
        &self,
        decided: &Result<Decided, DecideError>,
        is_shadow: bool,
        took: Duration,
        limits: impl FnOnce() -> Vec<(Arc<StatKey>, Vec<u8>)>,
    ) {
        let outcome = match decided {
            Ok(decided) => {
                for tally in &decided.tallies {
                    let kind = match (tally.over > 0, is_shadow || tally.shadow > 0) {
                        (false, _) => Kind::Admitted,
                        (true, false) => Kind::Refused,
                        (true, true) => Kind::Shadow,
                    };
                    self.limits.count(&tally.limit_key, kind);
                    if kind == Kind::Refused {
                        let subject = Subject { tenant: &[], subject: &tally.subject };
                        let name = || LimitName::Key(Arc::clone(&tally.limit_key));
                        self.refused(&tally.limit_key, subject, name);
                    }
                }
                match decided.response.overall_code() {
                    Code::OverLimit => Kind::Refused,
                    Code::Ok | Code::Unknown => Kind::Admitted,
                }
            }
            Err(error) => {
                self.errors.count(match error {
                    DecideError::Store(error) => error.kind().as_str(),
                    DecideError::Request(_) => "invalid-call",
                });
                Kind::Failed
            }
        };
        self.totals.count(outcome);
        self.slow.record(took, || {
            let limits = match decided {
                Ok(Decided { tallies, .. }) => {
                    let mut limits: Vec<_> = tallies.iter().collect();
                    limits.sort_by_key(|tally| tally.over == 0);
                    let limit =
                        |tally: &Tally| (Arc::clone(&tally.limit_key), tally.subject.clone());
                    limits.into_iter().map(limit).collect()
                }
                Err(_) => limits(),
            };
            let (limit, subject) = limits.first().cloned().unzip();
            let subject = subject.as_deref().map(|subject| Subject { tenant: &[], subject });
            SlowCall {
                took,
                at: SystemTime::now(),
                source: Source::Envoy,
                calls: 1,
                limit: limit.map(LimitName::Key),
                other_limits: limits.len().saturating_sub(1),
                outcome: match decided {
                    Err(DecideError::Store(error)) => error.kind().as_str(),
                    Err(DecideError::Request(_)) => "invalid-call",
                    Ok(_) => outcome.as_str(),
                },
                subject: subject.and_then(|it| self.cut(it)),
            }
        });
    }

    /// Records calls that were decided together.
    pub(crate) fn calls<'r>(
        &self,
        source: Source,
        calls: impl Iterator<Item = (&'r CallRequest, &'r Result<Decision, Error>)>,
        took: Duration,
    ) {
        let mut count = 0;
        let mut first = None;
        for (request, answer) in calls {
            count += 1;
            let outcome = match answer {
                Err(error) => {
                    self.errors.count(error.kind().as_str());
                    Kind::Failed
                }
                Ok(decision) => {
                    if let Some(degraded) = decision.degraded() {
                        self.errors.count(degraded.reason.as_str());
                    }
                    if request.operation().is_acquire() {
                        self.verdicts(request, decision);
                    }
                    match request.operation().is_acquire() && decision.is_denied() {
                        true => Kind::Refused,
                        false => Kind::Admitted,
                    }
                }
            };
            self.totals.count(outcome);
            let outcome = match answer {
                Err(error) => error.kind().as_str(),
                Ok(_) => outcome.as_str(),
            };
            first.get_or_insert((request, answer, outcome));
        }
        let Some((request, answer, outcome)) = first else { return };
        self.slow.record(took, || {
            let verdicts = answer.as_ref().map(Decision::verdicts).unwrap_or_default();
            let refuses =
                |verdict: &Verdict| verdict.outcome() != Outcome::Allowed && !verdict.is_shadow();
            let place = verdicts.iter().position(refuses).unwrap_or(0);
            let subject = request.subjects().nth(place);
            SlowCall {
                took,
                at: SystemTime::now(),
                source,
                calls: count,
                limit: request.policies().nth(place).cloned().map(LimitName::Policy),
                other_limits: request.policies().count().saturating_sub(1),
                outcome,
                subject: subject.and_then(|it| self.cut(it)),
            }
        });
    }

    fn verdicts(&self, request: &CallRequest, decision: &Decision) {
        let charges = request.policies().zip(request.subjects());
        for ((policy, subject), verdict) in charges.zip(decision.verdicts()) {
            let kind = match (verdict.outcome(), verdict.is_shadow()) {
                (Outcome::Allowed, _) => Kind::Admitted,
                (_, false) => Kind::Refused,
                (_, true) => Kind::Shadow,
            };
            self.policies.count(policy, kind);
            if kind == Kind::Refused {
                self.refused(policy, subject, || LimitName::Policy(policy.clone()));
            }
        }
    }

    fn refused(
        &self,
        limit: &impl std::hash::Hash,
        subject: Subject<'_>,
        name: impl FnOnce() -> LimitName,
    ) {
        self.refusals.count((limit, subject), || (name(), self.cut(subject)));
    }

    /// What is kept of a subject, if any is.
    fn cut(&self, subject: Subject<'_>) -> Option<Cut> {
        self.settings.shows_subjects.then(|| Cut::new(subject))
    }

    /// Records a configuration that was put in force, or was not. `files` are the names of files or resources.
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
