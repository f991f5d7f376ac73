//! A request that outlives the future that made it.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use smallvec::SmallVec;

use crate::sync::task::Handle;
use crate::sync::time::timeout;
use crate::{
    Call, ChargeBuf, Charges, Decision, DegradedAnswer, Error, ErrorKind, Limiter, Operation,
    Outcome, Store, Verdict,
};

/// The time after which a task that cleans up after a cancelled wait gives up.
const CLEANUP_TIMEOUT: Duration = Duration::from_secs(10);

/// A request that owns what it needs, so that a task can complete it.
pub(super) struct DetachedRequest<S> {
    limiter: Limiter<S>,
    charges: SmallVec<[ChargeBuf<'static>; 2]>,
    runtime: Handle,
}

impl<S: Store + 'static> DetachedRequest<S> {
    /// Copies the charges, and keeps the current runtime for tasks.
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

    /// Whether all policies can reserve.
    pub(super) fn can_reserve(&self) -> bool {
        self.charges.iter().all(|charge| charge.policy().rule().can_reserve())
    }

    /// Sends the call to the store. The output returns the request beside the answer.
    pub(super) fn send(self, operation: Operation) -> PendingCall<S> {
        let runtime = self.runtime.clone();
        let call = Box::pin(async move {
            let call = Call::with_charges(operation, Charges::from(&self.charges[..]));
            let answer = self.limiter.store().decide(call).await;
            (self, answer)
        });
        PendingCall { call: Some(call), runtime }
    }

    /// Refunds what `decision` took: in place if the store answers without waiting, else in a task.
    pub(super) fn refund(mut self, decision: &Decision) {
        // A shadow policy that denied was not charged.
        let mut outcomes = decision.verdicts().iter().map(Verdict::outcome);
        self.charges.retain(|_| outcomes.next() == Some(Outcome::Allowed));

        let runtime = self.runtime.clone();
        let _guard = runtime.enter();
        let mut refund = Box::pin(async move {
            let call = Call::with_charges(Operation::Refund, Charges::from(&self.charges[..]));
            let answer = self.limiter.store().decide(call);
            if let Err(answer) = answer.into_ready() {
                skip_first_poll().await;
                // No caller is left to return an error to: the charge stays, as documented.
                let _ = timeout(CLEANUP_TIMEOUT, answer).await;
            }
        });
        if refund.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
            runtime.spawn(refund);
        }
    }
}

/// Pending on the first poll, which happens in a destructor: there, the timer that follows would panic if
/// the runtime is shutting down.
async fn skip_first_poll() {
    let mut is_first = true;
    poll_fn(|_| if std::mem::take(&mut is_first) { Poll::Pending } else { Poll::Ready(()) }).await;
}

/// A call in flight.
///
/// If it is dropped before the answer arrives, a task completes it, and refunds what it took.
pub(super) struct PendingCall<S: Store + 'static> {
    call: Option<Pin<Box<dyn Future<Output = Answered<S>> + Send>>>,
    runtime: Handle,
}

type Answered<S> = (DetachedRequest<S>, Result<Decision, Error>);

impl<S: Store> Future for PendingCall<S> {
    type Output = Answered<S>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        // Taken out while it is polled, so that the destructor does not poll a call that panicked.
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

/// Whether the store itself took the charge, so that a refund belongs there.
///
/// A charge of a fallback is not refunded: by then the store may be back, and would give away what it never
/// took.
pub(super) fn is_in_store(decision: &Decision) -> bool {
    decision.is_allowed() && decision.degraded().is_none()
}

/// Whether the call failed closed, so that the refusal does not say when to retry.
pub(super) fn is_failed_closed(decision: &Decision) -> bool {
    let closed = |degraded: &crate::Degraded| degraded.answer == DegradedAnswer::FailedClosed;
    decision.degraded().is_some_and(closed)
}
