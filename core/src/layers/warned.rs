//! The layer that reports the first warning of a subject in each window.

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::slice;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::layered::{Layer, Layered};
use crate::policy::Rule;
use crate::store::send_all;
use crate::time::{MAX_SPAN, micros_of};
use crate::{
    Answer, Call, Charge, Clock, Decision, Error, Operation, Policy, Store, SystemClock, Timestamp,
    TokenBucket, Verdict,
};

/// A store that reports warnings: see [`StoreExt::warned`](super::StoreExt::warned).
pub type WarnedStore<S, C = SystemClock> = Layered<WarnedLayer<C>, S>;

/// The first decision of a window that [warns](crate::Policy::warn_at) about a subject.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Warning<'a> {
    /// The policy that warns.
    pub policy: &'a Policy,
    /// The tenant of the charge, which is empty if there is none.
    pub tenant: &'a [u8],
    /// The subject of the charge.
    pub subject: &'a [u8],
    /// The verdict that warns.
    pub verdict: Verdict,
}

/// Configures the reports of warnings, for [`StoreExt::warned`](crate::StoreExt::warned).
///
/// A policy [warns](crate::Policy::warn_at) on each decision from a percentage of its limit. The
/// layer reports such a subject once per window, also if several processes share the store, and
/// also if a refund brings the usage below the percentage for some time:
///
/// | policy | a window |
/// |---|---|
/// | fixed window, quota | the window of the policy |
/// | bucket, sliding log, sliding counter | the [window](crate::Policy::window) after a report |
/// | slots | the lease after a report |
/// | credits | until a [grant](crate::limiter::Request::grant) through this layer brings the usage below the percentage |
///
/// # How it works
///
/// At a warning, the layer empties a bucket in the store, which is full again at the end of the
/// window. Only the process that empties a full bucket reports. The bucket has the tenant
/// and the subject of the warning, and a policy whose name begins with `warned-`. So a warning
/// costs one more call. The layer remembers the subject for up to a minute, and makes no such call
/// in this time.
///
/// A report is made at most once: if the caller cancels its call, or the process ends, between the
/// charge and the report, the report is lost. If the store fails, the next decision that warns
/// tries again. A peek and a [degraded](crate::Decision::degraded) decision report nothing.
#[derive(Clone)]
#[must_use = "a configuration does nothing until a store has it"]
pub struct Warnings<C = SystemClock> {
    report: Arc<dyn Fn(&Warning<'_>) + Send + Sync>,
    clock: C,
}

impl Warnings {
    /// Creates a configuration that calls `report` for each warning. The function must not block.
    pub fn new(report: impl Fn(&Warning<'_>) + Send + Sync + 'static) -> Self {
        Self { report: Arc::new(report), clock: SystemClock::new() }
    }
}

impl<C> Warnings<C> {
    /// Sets the clock that measures how long the layer remembers a subject.
    pub fn clock<D: Clock>(self, clock: D) -> Warnings<D> {
        Warnings { report: self.report, clock }
    }
}

impl<C> fmt::Debug for Warnings<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Warnings").finish_non_exhaustive()
    }
}

/// The layer of a [`WarnedStore`].
#[derive(Debug, Clone)]
pub struct WarnedLayer<C = SystemClock> {
    warnings: Warnings<C>,
    recent: Arc<Recent>,
}

const MICROSECOND: Duration = Duration::from_micros(1);

/// The maximum time for which the layer remembers that a subject was reported.
const MEMORY: Duration = Duration::from_secs(60);

/// The maximum number of remembered subjects. If there are more, the layer forgets all of them, and
/// the store decides again.
const MAX_REMEMBERED: usize = 1 << 16;

/// The subjects that were reported recently. A subject is stored as the hash of its state, together
/// with the time until which it is remembered.
#[derive(Debug, Default)]
struct Recent {
    ends: Mutex<HashMap<u64, Timestamp>>,
    hasher: RandomState,
}

impl Recent {
    fn key(&self, charge: &Charge<'_>) -> u64 {
        let state = (charge.policy.state_hash(), charge.tenant, charge.state_subject());
        self.hasher.hash_one(state)
    }

    fn ends(&self) -> MutexGuard<'_, HashMap<u64, Timestamp>> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<C: Clock> WarnedLayer<C> {
    pub(super) fn new(warnings: Warnings<C>) -> Self {
        Self { warnings, recent: Arc::default() }
    }

    /// Returns the follow-up calls of answers.
    fn follow_ups<'a>(
        &self,
        calls: &[Call<'a>],
        answers: &[Result<Decision, Error>],
    ) -> Vec<FollowUp<'a>> {
        let mut follow_ups = vec![];
        for (call, answer) in calls.iter().zip(answers) {
            let Ok(decision) = answer else { continue };
            if decision.degraded().is_some() || call.operation == Operation::Peek {
                continue;
            }
            let is_grant = matches!(call.operation, Operation::Grant { .. });
            for (charge, verdict) in call.charges.iter().zip(decision.verdicts()) {
                let ends = is_grant && !verdict.warns() && charge.policy.is_credits();
                if ends || verdict.warns() && !self.remembers(&charge) {
                    follow_ups.extend(FollowUp::new(charge, *verdict, ends));
                }
            }
        }
        follow_ups
    }

    /// Sends the follow-up calls, and reports the new warnings.
    async fn follow_up(
        &self,
        inner: &impl Store,
        calls: &[Call<'_>],
        answers: &[Result<Decision, Error>],
    ) {
        let follow_ups = self.follow_ups(calls, answers);
        let charges: Vec<[Charge<'_>; 1]> = follow_ups.iter().map(FollowUp::charge).collect();
        let pairs = follow_ups.iter().zip(&charges);
        let calls: Vec<Call<'_>> =
            pairs.map(|(of, charge)| Call::new(of.operation(), charge)).collect();
        let answers = send_all(inner, &calls).await;
        for (of, answer) in follow_ups.iter().zip(answers) {
            let Ok(decision) = answer else { continue };
            if decision.degraded().is_some() {
                continue;
            }
            // A denial ends when the bucket is full again.
            let wait = decision.retry_after().filter(|wait| !wait.is_zero()).unwrap_or(of.span);
            self.remember(&of.charge, if of.ends { Duration::ZERO } else { wait });
            if of.ends {
                continue;
            }
            if decision.is_allowed() {
                let Charge { policy, tenant, subject, .. } = of.charge;
                #[cfg(feature = "metrics")]
                crate::telemetry::count_warning();
                (self.warnings.report)(&Warning { policy, tenant, subject, verdict: of.verdict });
            }
        }
    }

    /// Returns `true` if the subject was reported recently.
    fn remembers(&self, charge: &Charge<'_>) -> bool {
        let key = self.recent.key(charge);
        let now = self.warnings.clock.now();
        let end = self.recent.ends().get(&key).copied();
        // If the clock has stepped back, the end is too far ahead.
        end.is_some_and(|end| now < end && end <= now.saturating_add(MEMORY))
    }

    fn remember(&self, charge: &Charge<'_>, span: Duration) {
        let end = self.warnings.clock.now().saturating_add(span.min(MEMORY));
        let key = self.recent.key(charge);
        let mut ends = self.recent.ends();
        if ends.len() >= MAX_REMEMBERED {
            ends.clear();
        }
        ends.insert(key, end);
    }
}

/// A call after a decision: it begins or ends the time in which a subject is not reported again.
struct FollowUp<'a> {
    charge: Charge<'a>,
    verdict: Verdict,
    ends: bool,
    /// The time until the end of the window.
    span: Duration,
    /// The policy of the bucket. It gets a token per microsecond, and is empty for the span.
    bucket: Policy,
}

impl<'a> FollowUp<'a> {
    /// Returns `None` if the policy of the bucket is invalid, which cannot occur.
    fn new(charge: Charge<'a>, verdict: Verdict, ends: bool) -> Option<Self> {
        let span = match charge.policy.rule() {
            _ if charge.policy.is_credits() => MAX_SPAN,
            Rule::FixedWindow(_) | Rule::Quota(_) => verdict.reset_after(),
            _ => charge.policy.window(),
        };
        let span = span.clamp(MICROSECOND, MAX_SPAN);
        let name = format!("warned-{:016x}", charge.policy.state_hash());
        // The rate must not depend on the span. At another rate, the bucket would be full at
        // another time.
        let bucket = TokenBucket::new(1, MICROSECOND).burst(micros_of(span));
        let bucket = Policy::new(&name, bucket).ok()?;
        Some(Self { charge, verdict, ends, span, bucket })
    }

    fn charge(&self) -> [Charge<'_>; 1] {
        let Charge { tenant, .. } = self.charge;
        let charge = Charge::new(&self.bucket, self.charge.state_subject()).tenant(tenant);
        [charge.cost(self.bucket.limit())]
    }

    fn operation(&self) -> Operation {
        if self.ends { Operation::Reset } else { Operation::Acquire }
    }
}

/// Returns `true` if a policy of the call warns.
fn may_warn(call: &Call<'_>) -> bool {
    call.charges.any_policy(|policy| policy.warn_percent().is_some())
}

impl<S: Store, C: Clock> Layer<S> for WarnedLayer<C> {
    const MAY_WAIT: bool = false;

    fn decide<'a>(&'a self, inner: &'a S, call: Call<'a>) -> Answer<'a, Result<Decision, Error>> {
        if !may_warn(&call) {
            return inner.decide(call);
        }
        let answer = match inner.decide(call).into_ready() {
            Ok(answer) if self.follow_ups(&[call], slice::from_ref(&answer)).is_empty() => {
                return Answer::ready(answer);
            }
            Ok(answer) => Answer::ready(answer),
            Err(later) => later,
        };
        Answer::from_future(inner.answers_immediately(), async move {
            let answer = answer.await;
            self.follow_up(inner, &[call], slice::from_ref(&answer)).await;
            answer
        })
    }

    fn decide_many<'a>(
        &'a self,
        inner: &'a S,
        calls: &'a [Call<'a>],
    ) -> Answer<'a, Vec<Result<Decision, Error>>> {
        if !calls.iter().any(may_warn) {
            return inner.decide_many(calls);
        }
        Answer::later(async move {
            let answers = inner.decide_many(calls).await;
            self.follow_up(inner, calls, &answers).await;
            answers
        })
    }
}
