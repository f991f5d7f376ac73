//! A request that can outlive the future that created the request.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use smallvec::SmallVec;

use crate::call::{Call, ChargeBuf, Charges, Operation};
use crate::decision::{Decision, Degraded, DegradedAnswer, Outcome, Verdict};
use crate::error::{Error, ErrorKind};
use crate::limiter::Limiter;
use crate::store::Store;
use crate::sync::task::Handle;
use crate::sync::time::timeout;

/// The maximum duration of a task that cleans up after a cancelled wait.
const CLEANUP_TIMEOUT: Duration = Duration::from_secs(10);

/// A request that owns its parts, so that a task can complete it.
pub(super) struct DetachedRequest<S> {
    limiter: Limiter<S>,
    charges: SmallVec<[ChargeBuf<'static>; 2]>,
    runtime: Handle,
}

impl<S: Store + 'static> DetachedRequest<S> {
    /// Copies the charges, and stores a handle of the current runtime to spawn tasks. Returns
    /// [`ErrorKind::Unsupported`] if the caller is outside of a Tokio runtime.
    pub(super) fn new(limiter: &Limiter<S>, charges: Charges<'_>) -> Result<Self, Error> {
        let Ok(runtime) = Handle::try_current() else {
            return Err(Error::new(ErrorKind::Unsupported, "waiting needs a Tokio runtime"));
        };
        Ok(Self {
            limiter: limiter.clone(),
            charges: charges.iter().map(|charge| ChargeBuf::from(charge).into_owned()).collect(),
            runtime,
        })
    }

    pub(super) fn limiter(&self) -> &Limiter<S> {
        &self.limiter
    }

    /// Returns `true` if the policies by which the store decides can reserve a place. A limit set
    /// can replace a bucket by a window.
    pub(super) async fn can_reserve(&self) -> bool {
        for charge in &self.charges {
            let adjusted = self.limiter.store().adjusted_policy(charge.as_charge()).await;
            let policy = adjusted.as_ref().unwrap_or(charge.policy());
            // The first alternative of a list would reserve a place although another one admits
            // now.
            if charge.list > 0 || !policy.rule().can_reserve() {
                return false;
            }
        }
        true
    }

    /// Sends the request to the store. The future returns the request together with the answer.
    pub(super) fn send(self, operation: Operation) -> PendingCall<S> {
        let runtime = self.runtime.clone();
        let call = Box::pin(async move {
            let call = Call::with_charges(operation, Charges::from(&self.charges[..]));
            let answer = self.limiter.store().decide(call).await;
            (self, answer)
        });
        PendingCall { call: Some(call), runtime }
    }

    /// Refunds the charges of `decision`. If the store answers immediately, this method itself
    /// sends the refund. Otherwise a task sends it.
    pub(super) fn refund(mut self, decision: &Decision) {
        // A charge that a shadow denied, or that was skipped, was not made, so it is not refunded.
        let mut outcomes = decision.verdicts().iter().map(Verdict::outcome);
        self.charges.retain(|charge| {
            charge.list = 0;
            outcomes.next() == Some(Outcome::Allowed)
        });

        let runtime = self.runtime.clone();
        let _guard = runtime.enter();
        let mut refund = Box::pin(async move {
            let call = Call::with_charges(Operation::Refund, Charges::from(&self.charges[..]));
            let answer = self.limiter.store().decide(call);
            if let Err(answer) = answer.into_ready() {
                skip_first_poll().await;
                // A destructor cannot return an error of the refund. After an error, the cost stays
                // charged, as documented.
                let _ = timeout(CLEANUP_TIMEOUT, answer).await;
            }
        });
        if refund.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
            runtime.spawn(refund);
        }
    }
}

/// Returns a future that is pending on its first poll, and ready on its second poll.
///
/// [`DetachedRequest::refund`] can run in a destructor while the runtime shuts down. A new timer
/// panics during the shutdown. So `refund` polls its future once, and the future creates its timer
/// only after this poll, in a task.
async fn skip_first_poll() {
    let mut is_first = true;
    poll_fn(|_| if std::mem::take(&mut is_first) { Poll::Pending } else { Poll::Ready(()) }).await;
}

/// A call that was sent to the store.
///
/// If this future is dropped before the answer arrives, a task completes the call and refunds the
/// charge.
pub(super) struct PendingCall<S: Store + 'static> {
    call: Option<Pin<Box<dyn Future<Output = Answered<S>> + Send>>>,
    runtime: Handle,
}

type Answered<S> = (DetachedRequest<S>, Result<Decision, Error>);

impl<S: Store> Future for PendingCall<S> {
    type Output = Answered<S>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        // During a poll, the call is taken out of its field, so that the destructor does not poll a
        // call that panicked.
        let Some(mut call) = self.call.take() else {
            return Poll::Pending;
        };
        let answered = call.as_mut().poll(context);
        if answered.is_pending() {
            self.call = Some(call);
        }
        answered
    }
}

impl<S: Store> Drop for PendingCall<S> {
    fn drop(&mut self) {
        if let Some(call) = self.call.take() {
            self.runtime.spawn(async move {
                if let Ok((request, Ok(decision))) = timeout(CLEANUP_TIMEOUT, call).await
                    && is_in_store(&decision)
                {
                    request.refund(&decision);
                }
            });
        }
    }
}

/// Returns `true` if the store itself admitted the call, so that a refund reaches the store that
/// made the charge.
///
/// A charge that a fallback store made is not refunded. The inner store possibly answers again, and
/// would then refund a charge that it never made.
pub(super) fn is_in_store(decision: &Decision) -> bool {
    decision.is_allowed() && decision.degraded().is_none()
}

/// Returns `true` if the call failed closed. The `retry_after` of such a refusal is only a hint.
pub(in crate::limiter) fn is_failed_closed(decision: &Decision) -> bool {
    let is_closed = |degraded: &Degraded| degraded.answer == DegradedAnswer::FailedClosed;
    decision.degraded().is_some_and(is_closed)
}
