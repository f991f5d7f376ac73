//! The layer that decides when the store returns an error: it fails open, fails closed, or falls
//! back to another store.

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

use super::layered::{Layer, Layered};
use crate::{Answer, Call, Decision, Error, ErrorKind, Policy, Store};

/// A store that also decides when the inner store fails: see
/// [`StoreExt::on_failure`](super::StoreExt::on_failure).
///
/// # The settings
///
/// | setting | a failed acquire, peek or reservation | a failed refund, undo, reset or block |
/// |---|---|---|
/// | [open](OnFailure::open) | is decided as if the subject had no usage: the call is admitted, unless its cost is above the limit | remains an error |
/// | [closed](OnFailure::closed) | is refused; `retry_after` is [a hint](OnFailure::retry_hint), and `remaining` is 0 | remains an error |
/// | [fall back](OnFailure::fall_back_to) | is decided and charged by the fallback store, with [the policy's share](crate::Policy::scaled_to) | is also executed on the fallback store, and remains an error (the fallback store does not execute an undo, because it has not made the charge) |
///
/// An invalid request remains an error. An error of kind
/// [`Misconfigured`](crate::ErrorKind::Misconfigured), such as a wrong password, remains an error
/// unless [`also_on`](OnFailure::also_on) includes it.
///
/// If the share of a policy rounds down to 0, no [`Limiter`](crate::Limiter) can be built with the
/// policy, unless the configuration [accepts](OnFailure::accept_no_share) it. Such a policy fails
/// closed if it is accepted, or if the application uses the store without a limiter. A shadow
/// policy never refuses, even during an outage.
///
/// If one charge of a failed call fails closed, the whole call is refused. The charges that fall
/// back are sent to the fallback store in one call. The fallback store makes either all of these
/// charges or none. If the failed call is refused because of another charge, the fallback store
/// charges nothing.
///
/// If some calls of a batch fail, only the failed calls are sent to the fallback store, in one
/// batch. If the fallback store fails too, the error describes both failures.
///
/// The fallback store does not receive the [ids](crate::CallId) of calls, and decides a call with
/// an id like a call without an id. So a call that is sent again is charged again.
///
/// # The cost of an outage
///
/// As soon as the inner store answers again, the inner store decides. The inner store does not
/// count the requests that were admitted during the outage. So the following requests are possibly
/// admitted in addition to the limit of a policy:
///
/// * If the policy fails open, all requests during the outage are admitted.
/// * If the policy fails closed, no request is admitted in addition.
/// * If the policy falls back, each node admits the node's share of the amount that the policy
///   admits in the same time. If the shares of all nodes add up to 1, the inner store and the
///   fallback stores together admit at most twice the amount of the policy. So a window admits at
///   most twice the limit, and a bucket admits at most `2 × (burst + rate × time)`.
///
/// The inner store and the fallback store do not know each other's states. A block or a reset
/// applies only to the store that has executed the call.
///
/// Refund only a charge that the inner store has made, and not a degraded decision. If the inner
/// store answers again, it gets the refund, and refunds the charge of another request.
pub type FallbackStore<S> = Layered<FallbackLayer, S>;

/// The layer of a [`FallbackStore`].
#[derive(Debug)]
pub struct FallbackLayer {
    settings: Settings,
    scaled: ScaledPolicies,
    outage: Outage,
}

impl FallbackLayer {
    pub(super) fn new<F>(on_failure: OnFailure<F>) -> Self {
        let (scaled, outage) = (ScaledPolicies::default(), Outage::default());
        Self { settings: on_failure.settings, scaled, outage }
    }

    /// Rejects a policy if its share rounds down to 0. During an outage, all requests under such a
    /// policy would be refused, and nothing would show this before the outage.
    fn check_share(&self, policy: &Policy) -> Result<(), Error> {
        let Setting::FallBack(share) = self.settings.setting(policy) else { return Ok(()) };
        if self.settings.accepts_no_share {
            return Ok(());
        }
        let (limit, min) = (policy.limit(), share.min_whole());
        match min.filter(|min| (1..*min).contains(&limit)) {
            // The share of a shadow policy is not checked, because a shadow refuses nothing.
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

    fn fallback_for(&self, inner: &impl Store, policy: &Policy) -> Result<Fallback, Error> {
        inner.supports(policy)?;
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

    fn failed_call<'a>(
        &self,
        inner: &impl Store,
        call: Call<'a>,
        error: Error,
    ) -> Result<FailedCall<'a>, Error> {
        FailedCall::new(call, error, &self.settings, |policy| self.fallback_for(inner, policy))
    }

    fn decide_failed<'a>(
        &'a self,
        inner: &impl Store,
        call: Call<'a>,
        error: Error,
    ) -> Answer<'a, Result<Decision, Error>> {
        let failed = match self.failed_call(inner, call, error) {
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

    fn complete<'a>(
        &'a self,
        inner: &impl Store,
        calls: &'a [Call<'a>],
        answers: Vec<Result<Decision, Error>>,
    ) -> Answer<'a, Vec<Result<Decision, Error>>> {
        if answers.iter().all(Result::is_ok) {
            answers
                .iter()
                .flatten()
                .take(1)
                .for_each(|decision| self.outage.record_decision(decision));
            return Answer::ready(answers);
        }
        let mut waiting = Vec::new();
        let mut all = Vec::with_capacity(answers.len());
        for (index, (call, answer)) in calls.iter().zip(answers).enumerate() {
            let answer = answer.or_else(|error| match self.failed_call(inner, *call, error)? {
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

/// Returns the answer of a fallback store that promises immediate answers. Returns `None` if the
/// fallback store breaks this promise. The caller then calls the fallback store again, and waits.
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

impl<S: Store> Layer<S> for FallbackLayer {
    const MAY_WAIT: bool = false;

    fn decide<'a>(&'a self, inner: &'a S, call: Call<'a>) -> Answer<'a, Result<Decision, Error>> {
        match inner.decide(call).into_ready() {
            Ok(Ok(decision)) => {
                self.outage.record_decision(&decision);
                Answer::ready(Ok(decision))
            }
            Ok(Err(error)) => self.decide_failed(inner, call, error),
            Err(later) => Answer::later(async move {
                match later.await {
                    Ok(decision) => {
                        self.outage.record_decision(&decision);
                        Ok(decision)
                    }
                    Err(error) => self.decide_failed(inner, call, error).await,
                }
            }),
        }
    }

    fn decide_many<'a>(
        &'a self,
        inner: &'a S,
        calls: &'a [Call<'a>],
    ) -> Answer<'a, Vec<Result<Decision, Error>>> {
        match inner.decide_many(calls).into_ready() {
            Ok(answers) => self.complete(inner, calls, answers),
            Err(later) => {
                Answer::later(async move { self.complete(inner, calls, later.await).await })
            }
        }
    }

    // The method `now` has no fallback, because the fallback store has another clock.

    fn answers_immediately(&self, inner: &S) -> bool {
        let fallback = self.settings.fallback.as_ref();
        inner.answers_immediately() && fallback.is_none_or(|store| store.answers_immediately())
    }

    fn supports(&self, inner: &S, policy: &Policy) -> Result<(), Error> {
        self.check_share(policy)?;
        self.fallback_for(inner, policy).map(drop)
    }
}
