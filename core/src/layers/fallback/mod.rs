//! The layer that decides when the store returns an error: it fails open, fails closed, or falls
//! back to another store.

mod empty_records;
mod fallback_call;
mod holds;
mod outage;
mod scaled_policies;
mod settings;

use fallback_call::{Fallback, FallbackCall};
use holds::Holds;
use outage::Outage;
use scaled_policies::ScaledPolicies;
pub use settings::{HasFallback, NoFallback, OnFailure};
use settings::{Setting, Settings};

use super::layered::{Layer, Layered};
use crate::store::send_all;
use crate::{Answer, Call, Decision, Error, ErrorKind, Operation, Policy, Store};

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
/// The fallback store receives the [id](crate::CallId) of a call only for holds of slots. It
/// decides every other call with an id like a call without an id. So a call that is sent again is
/// charged again.
///
/// # Holds
///
/// A failed [hold](crate::Operation::Hold) without slots is decided like an acquire, and no store
/// keeps the hold.
///
/// A failed hold that takes [slots](crate::Concurrent) of a policy that falls back becomes a hold
/// on the fallback store, with all charges that fall back. The fallback store has the node's share
/// of the slots. [`Degraded::is_held`](crate::Degraded::is_held) is then `true`. The hold stays on
/// the fallback store until it ends, also after the inner store answers again:
///
/// * An extension is sent to the inner store. If the inner store fails or does not know the hold,
///   the extension is also sent to the fallback store. If no store extends the hold, the caller
///   gets the error of the inner store. So a holder whose slots are on the inner store learns only
///   that the store is away, and works until its deadline.
/// * A settlement is sent to both stores. If only the fallback store knows the hold, and the inner
///   store answers, the inner store [charges](crate::Operation::Charge) the costs once.
/// * If a hold is sent again after an outage has begun or ended, the other store decides it like a
///   new hold. If the answer of the inner store to a hold is lost, the fallback store also decides
///   the hold. In both cases, both stores possibly have the hold. A settlement frees the slots on
///   both. An extension by one store lets the hold lapse on the other.
/// * A [place](crate::Operation::HoldInTurn) in a queue belongs to one store. A caller that waits
///   when an outage begins or ends gets a new place, at the end of the queue of the other store. It
///   leaves the queue of the fallback store when the inner store answers. Its place in a queue of
///   the inner store ends after at most five seconds.
/// * A hold on the fallback store has no [fence](crate::Decision::fences), because the fences of
///   the two stores have no common order.
///
/// If the holders stop at their deadlines, at most as many holders work as the inner store has
/// slots, plus the share of each node. Only the `FallbackStore` that has made a hold on its
/// fallback store can extend and settle it. Other processes do not know the hold.
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
/// Holders of slots work until their deadlines, and new holders are admitted in addition: a share
/// of the slots per node if the policy falls back, and all new holders if the policy fails open. No
/// store counts the holders of a policy that fails open.
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
    holds: Holds,
}

impl FallbackLayer {
    pub(super) fn new<F>(on_failure: OnFailure<F>) -> Self {
        let (scaled, outage) = (ScaledPolicies::default(), Outage::default());
        Self { settings: on_failure.settings, scaled, outage, holds: Holds::default() }
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

    fn is_any_hold_known(&self) -> bool {
        !self.holds.time_left(&*self.settings.clock).is_zero()
    }

    /// Returns `true` if both stores must execute the call.
    fn is_for_both(&self, call: &Call<'_>) -> bool {
        match call.operation {
            Operation::Settle | Operation::SettleSoFar => self.is_any_hold_known(),
            operation => holds::leaves_fallback(operation),
        }
    }

    /// Returns the call that the fallback store must execute after the inner store has answered
    /// `call`. Returns the final answer if there is no such call.
    fn call_on_fallback<'a>(
        &self,
        inner: &impl Store,
        call: Call<'a>,
        answer: Result<Decision, Error>,
    ) -> Result<FallbackCall<'a>, Result<Decision, Error>> {
        if answer.is_ok() && !self.is_for_both(&call) {
            return Err(answer);
        }
        let is_any_hold_known = call.operation.needs_hold() && self.is_any_hold_known();
        let fallback = |policy: &Policy| self.fallback_for(inner, policy);
        let call = FallbackCall::new(call, answer, &self.settings, is_any_hold_known, fallback)?;
        if call.charges().is_empty() {
            return Err(call.answer(None, &self.outage));
        }
        if let Some(life) = call.life_of_new_hold() {
            self.holds.add(life, &*self.settings.clock);
        }
        Ok(call)
    }

    /// Completes the answer of the inner store to a call, with the fallback store if necessary.
    fn complete<'a>(
        &'a self,
        inner: &'a impl Store,
        call: Call<'a>,
        answer: Result<Decision, Error>,
    ) -> Answer<'a, Result<Decision, Error>> {
        let call = match self.call_on_fallback(inner, call, answer) {
            Ok(call) => call,
            Err(answer) => return Answer::ready(answer),
        };
        let Some(fallback) = &self.settings.fallback else {
            return Answer::ready(call.answer(None, &self.outage));
        };
        if fallback.answers_immediately()
            && let Some(answer) = decide_now(fallback, &call)
        {
            return self.complete_with(inner, call, answer);
        }
        Answer::later(async move {
            let answer = {
                let charges = call.charges();
                fallback.decide(call.as_call(&charges)).await
            };
            self.complete_with(inner, call, answer).await
        })
    }

    /// Completes the answer to a call with the answer of the fallback store.
    fn complete_with<'a>(
        &'a self,
        inner: &'a impl Store,
        call: FallbackCall<'a>,
        answer: Result<Decision, Error>,
    ) -> Answer<'a, Result<Decision, Error>> {
        if let (Ok(_), Some(life)) = (&answer, call.life_of_extended_hold()) {
            self.holds.add(life, &*self.settings.clock);
        }
        match call.charge_after(&answer, || self.holds.time_left(&*self.settings.clock)) {
            Some(charge) => inner.decide(charge).map(|answer| answer.map(holds::settled_by_charge)),
            None => Answer::ready(call.answer(Some(answer), &self.outage)),
        }
    }

    fn complete_many<'a>(
        &'a self,
        inner: &'a impl Store,
        calls: &'a [Call<'a>],
        answers: Vec<Result<Decision, Error>>,
    ) -> Answer<'a, Vec<Result<Decision, Error>>> {
        if answers.iter().all(Result::is_ok) {
            answers
                .iter()
                .flatten()
                .take(1)
                .for_each(|decision| self.outage.record_decision(decision));
            if !calls.iter().any(|call| self.is_for_both(call)) {
                return Answer::ready(answers);
            }
        }
        let calls: Vec<Result<FallbackCall<'_>, _>> = calls
            .iter()
            .zip(answers)
            .map(|(call, answer)| self.call_on_fallback(inner, *call, answer))
            .collect();
        match &self.settings.fallback {
            Some(fallback) if calls.iter().any(Result::is_ok) => Answer::later(async move {
                let mut answers = decide_by_fallback(fallback, &calls).await.into_iter();
                let mut all = Vec::with_capacity(calls.len());
                for call in calls {
                    all.push(match call {
                        Ok(call) => {
                            let answer = answers.next().unwrap_or_else(|| Err(too_few_answers()));
                            self.complete_with(inner, call, answer).await
                        }
                        Err(answer) => answer,
                    });
                }
                all
            }),
            _ => Answer::ready(calls.into_iter().filter_map(Result::err).collect()),
        }
    }
}

/// Returns the answer of a fallback store that promises immediate answers. Returns `None` if the
/// fallback store breaks this promise. The caller then calls the fallback store again, and waits.
fn decide_now(fallback: &dyn Store, call: &FallbackCall<'_>) -> Option<Result<Decision, Error>> {
    let charges = call.charges();
    fallback.decide(call.as_call(&charges)).into_ready().ok()
}

async fn decide_by_fallback<T>(
    fallback: &dyn Store,
    calls: &[Result<FallbackCall<'_>, T>],
) -> Vec<Result<Decision, Error>> {
    let calls = || calls.iter().flatten();
    let charges: Vec<_> = calls().map(FallbackCall::charges).collect();
    let calls: Vec<_> =
        calls().zip(&charges).map(|(call, charges)| call.as_call(charges)).collect();
    send_all(fallback, &calls).await
}

fn too_few_answers() -> Error {
    let message = "the fallback store returned fewer answers than there were calls";
    Error::new(ErrorKind::Protocol, message)
}

impl<S: Store> Layer<S> for FallbackLayer {
    const MAY_WAIT: bool = false;

    fn decide<'a>(&'a self, inner: &'a S, call: Call<'a>) -> Answer<'a, Result<Decision, Error>> {
        let complete = move |answer: Result<Decision, Error>| {
            if let Ok(decision) = &answer {
                self.outage.record_decision(decision);
                if !self.is_for_both(&call) {
                    return Answer::ready(answer);
                }
            }
            self.complete(inner, call, answer)
        };
        match inner.decide(call).into_ready() {
            Ok(answer) => complete(answer),
            Err(later) => Answer::later(async move { complete(later.await).await }),
        }
    }

    fn decide_many<'a>(
        &'a self,
        inner: &'a S,
        calls: &'a [Call<'a>],
    ) -> Answer<'a, Vec<Result<Decision, Error>>> {
        match inner.decide_many(calls).into_ready() {
            Ok(answers) => self.complete_many(inner, calls, answers),
            Err(later) => {
                Answer::later(async move { self.complete_many(inner, calls, later.await).await })
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
