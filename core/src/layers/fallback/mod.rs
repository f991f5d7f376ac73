//! Decisions when the store returns an error: fail open, fail closed, or fall back to another store.

mod empty_records;
mod failed_call;
mod outage;
mod scaled_policies;
mod settings;

use failed_call::{FailedCall, Fallback};
use outage::Outage;
use scaled_policies::ScaledPolicies;
pub use settings::{HasFallback, NoFallback, OnFailure};
use settings::{Setting, Settings};

use crate::{Answer, Call, Decision, Error, ErrorKind, Policy, Store, Timestamp};

/// A store that decides also when the inner store fails: see [`StoreExt::on_failure`](crate::StoreExt::on_failure).
///
/// # The settings
///
/// | setting | an acquire, a peek, a reservation that failed | a refund, undo, reset or block that failed |
/// |---|---|---|
/// | [open](OnFailure::open) | is decided as if the subject had taken nothing yet: it is admitted, unless its cost is above the limit | remains an error |
/// | [closed](OnFailure::closed) | is refused; `retry_after` is [a hint](OnFailure::retry_hint), and `remaining` is 0 | remains an error |
/// | [fall back](OnFailure::fall_back_to) | is decided by the other store, with [the policy's share](crate::Policy::scaled_to); reserves and takes there | is carried out on the other store as well, and remains an error (an undo is not: nothing was taken there) |
///
/// An invalid request remains an error, and so does an error of kind
/// [`Misconfigured`](crate::ErrorKind::Misconfigured), such as a wrong password, unless
/// [`also_on`](OnFailure::also_on) includes it.
///
/// A policy whose share rounds down to 0 is rejected when a [`Limiter`](crate::Limiter) is built. Without a limiter
/// it is not checked, and fails closed; so does a policy with a share of 0. A shadow never refuses, here either.
///
/// A failed call of several charges is refused as a whole if one of them fails closed. Those that fall back are one
/// call to the other store, all or none; it takes nothing if the call is refused anyway. Of a batch, only the calls
/// that failed are sent to the other store, in one batch. If the other store fails too, the error names both.
///
/// The other store does not know the ids of the store: a call with an [id](crate::CallId) that failed is decided there as
/// one without, each time that it is made.
///
/// # What it costs
///
/// The next call that the store answers is decided by the store again. Requests admitted meanwhile were not charged
/// to it, so in addition to what a policy admits there may be admitted: failing open, everything; failing closed,
/// nothing; falling back, on each node its share of what the policy admits in the same time. With shares that add up
/// to 1 this is at most the policy once more, so twice the limit in a window or, for a bucket,
/// `2 × (burst + rate × time)`. The two stores do not know of each other's states: a block or a reset is in force
/// where it was carried out.
///
/// Refund only what the store has taken: the refund for a degraded decision goes to the store if it answers again,
/// and would give back what another request took.
#[derive(Debug)]
pub struct FallbackStore<S> {
    inner: S,
    settings: Settings,
    scaled: ScaledPolicies,
    outage: Outage,
}

impl<S> FallbackStore<S> {
    pub(super) fn new<F>(inner: S, on_failure: OnFailure<F>) -> Self {
        let (scaled, outage) = (ScaledPolicies::default(), Outage::default());
        Self { inner, settings: on_failure.settings, scaled, outage }
    }

    /// The inner store.
    #[must_use]
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// Unwraps the inner store.
    #[must_use]
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S: Store> FallbackStore<S> {
    /// Rejects a policy whose share rounds down to 0: all its requests would be refused in an outage, and nothing
    /// would show that before.
    fn check_share(&self, policy: &Policy) -> Result<(), Error> {
        let Setting::FallBack(share) = self.settings.setting(policy) else { return Ok(()) };
        let (limit, min) = (policy.limit(), share.min_whole());
        match min.filter(|min| (1..*min).contains(&limit)) {
            // A shadow refuses nothing.
            Some(min) if !policy.is_shadow() => {
                let message = format!(
                    "the share {share} of `{policy}` rounds down to 0, so that falling back would \
                     refuse every request: it needs a limit of at least {min}, a larger share \
                     (`fall_back_for`), or another setting (`open_for`, `closed_for`)"
                );
                Err(Error::new(ErrorKind::Unsupported, message))
            }
            _ => Ok(()),
        }
    }

    /// The fallback for the charges of this policy.
    fn fallback_of(&self, policy: &Policy) -> Result<Fallback, Error> {
        self.inner.supports(policy)?;
        let (share, fallback) = match (self.settings.setting(policy), &self.settings.fallback) {
            (Setting::Open, _) => return Ok(Fallback::Open),
            (Setting::FallBack(share), Some(fallback)) => (share, fallback),
            (Setting::Closed | Setting::FallBack(_), _) => return Ok(Fallback::Closed),
        };
        match self.scaled.scaled(policy, share)? {
            None => Ok(Fallback::Closed),
            Some(scaled) => fallback.supports(&scaled).map(|()| Fallback::FallBack(scaled)),
        }
    }

    fn failed<'a>(&self, call: Call<'a>, error: Error) -> Result<FailedCall<'a>, Error> {
        FailedCall::new(call, error, &self.settings, |policy| self.fallback_of(policy))
    }

    /// Decides on a call for which the store returned an error.
    fn decide_failed<'a>(
        &'a self,
        call: Call<'a>,
        error: Error,
    ) -> Answer<'a, Result<Decision, Error>> {
        let failed = match self.failed(call, error) {
            Ok(failed) => failed,
            Err(error) => return Answer::ready(Err(error)),
        };
        match &self.settings.fallback {
            Some(fallback) if !failed.charges().is_empty() => {
                if fallback.answers_immediately()
                    && let Some(answer) = decide_now(fallback, &failed)
                {
                    return Answer::ready(failed.answer(Some(answer), &self.outage));
                }
                Answer::later(async move {
                    let answer = {
                        let charges = failed.charges();
                        fallback.decide(Call::new(failed.operation(), &charges)).await
                    };
                    failed.answer(Some(answer), &self.outage)
                })
            }
            _ => Answer::ready(failed.answer(None, &self.outage)),
        }
    }

    /// Decides on the calls of a batch for which the store returned an error.
    fn complete<'a>(
        &'a self,
        calls: &'a [Call<'a>],
        answers: Vec<Result<Decision, Error>>,
    ) -> Answer<'a, Vec<Result<Decision, Error>>> {
        if answers.iter().all(Result::is_ok) {
            answers.iter().flatten().take(1).for_each(|decision| self.outage.decided(decision));
            return Answer::ready(answers);
        }
        let mut waiting = Vec::new();
        let mut all = Vec::with_capacity(answers.len());
        for (index, (call, answer)) in calls.iter().zip(answers).enumerate() {
            let answer = answer.or_else(|error| match self.failed(*call, error)? {
                failed if failed.charges().is_empty() => failed.answer(None, &self.outage),
                failed => {
                    waiting.push((index, failed));
                    Err(Error::new(
                        ErrorKind::Protocol,
                        "the fallback store returned fewer answers than there were calls",
                    ))
                }
            });
            all.push(answer);
        }
        match &self.settings.fallback {
            Some(fallback) if !waiting.is_empty() => Answer::later(async move {
                let answers = decide_by_fallback(fallback, &waiting).await;
                for ((index, failed), answer) in waiting.into_iter().zip(answers) {
                    if let Some(slot) = all.get_mut(index) {
                        *slot = failed.answer(Some(answer), &self.outage);
                    }
                }
                all
            }),
            _ => Answer::ready(all),
        }
    }
}

/// The answer of a fallback store that promises an immediate one. `None` if it breaks that promise: it is then called
/// again.
fn decide_now(fallback: &dyn Store, failed: &FailedCall<'_>) -> Option<Result<Decision, Error>> {
    let charges = failed.charges();
    fallback.decide(Call::new(failed.operation(), &charges)).into_ready().ok()
}

async fn decide_by_fallback(
    fallback: &dyn Store,
    failed: &[(usize, FailedCall<'_>)],
) -> Vec<Result<Decision, Error>> {
    let charges: Vec<_> = failed.iter().map(|(_, failed)| failed.charges()).collect();
    let calls = failed.iter().zip(&charges);
    let calls: Vec<_> =
        calls.map(|((_, failed), charges)| Call::new(failed.operation(), charges)).collect();
    fallback.decide_many(&calls).await
}

impl<S: Store> Store for FallbackStore<S> {
    fn decide<'a>(&'a self, call: Call<'a>) -> Answer<'a, Result<Decision, Error>> {
        match self.inner.decide(call).into_ready() {
            Ok(Ok(decision)) => {
                self.outage.decided(&decision);
                Answer::ready(Ok(decision))
            }
            Ok(Err(error)) => self.decide_failed(call, error),
            Err(later) => Answer::later(async move {
                match later.await {
                    Ok(decision) => {
                        self.outage.decided(&decision);
                        Ok(decision)
                    }
                    Err(error) => self.decide_failed(call, error).await,
                }
            }),
        }
    }

    fn decide_many<'a>(
        &'a self,
        calls: &'a [Call<'a>],
    ) -> Answer<'a, Vec<Result<Decision, Error>>> {
        match self.inner.decide_many(calls).into_ready() {
            Ok(answers) => self.complete(calls, answers),
            Err(later) => Answer::later(async move { self.complete(calls, later.await).await }),
        }
    }

    // There is no fallback for the time: the fallback store has another clock.
    fn now(&self) -> Answer<'_, Result<Timestamp, Error>> {
        self.inner.now()
    }

    fn ready(&self) -> Answer<'_, Result<(), Error>> {
        self.inner.ready()
    }

    fn answers_immediately(&self) -> bool {
        let fallback = self.settings.fallback.as_ref();
        self.inner.answers_immediately() && fallback.is_none_or(|it| it.answers_immediately())
    }

    fn batch_group(&self, call: &Call<'_>) -> Option<u64> {
        self.inner.batch_group(call)
    }

    fn supports(&self, policy: &Policy) -> Result<(), Error> {
        self.check_share(policy)?;
        self.fallback_of(policy).map(drop)
    }
}
