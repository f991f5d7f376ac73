//! A request that outlives the future of who made it.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use smallvec::SmallVec;
use tokio::runtime::Handle;
use tokio::time::timeout;

use crate::{
    Call, Charge, Decision, DegradedAnswer, Error, ErrorKind, Limiter, Operation, Outcome, Policy,
    Store, Verdict,
};

/// How long a task that cleans up after a cancelled wait may take, if the store never answers.
const PATIENCE: Duration = Duration::from_secs(10);

/// A request with all that it needs to be carried on in a task.
pub(super) struct Order<S> {
    limiter: Limiter<S>,
    charges: SmallVec<[OwnedCharge; 2]>,
    runtime: Handle,
}

struct OwnedCharge {
    policy: Policy,
    tenant: Bytes,
    subject: Bytes,
    cost: u64,
}

/// Most subjects need no allocation.
type Bytes = SmallVec<[u8; 32]>;

impl<S: Store + 'static> Order<S> {
    /// The charges, for the runtime that it is made in.
    pub(super) fn new<'c>(
        limiter: &Limiter<S>,
        charges: impl Iterator<Item = Charge<'c>>,
    ) -> Result<Self, Error> {
        let Ok(runtime) = Handle::try_current() else {
            return Err(Error::new(ErrorKind::Unsupported, "waiting needs a Tokio runtime"));
        };
        let owned = |charge: Charge<'_>| OwnedCharge {
            policy: charge.policy.clone(),
            tenant: Bytes::from_slice(charge.tenant),
            subject: Bytes::from_slice(charge.subject),
            cost: charge.cost,
        };
        Ok(Self { limiter: limiter.clone(), charges: charges.map(owned).collect(), runtime })
    }

    pub(super) fn limiter(&self) -> &Limiter<S> {
        &self.limiter
    }

    /// Whether places can be booked with all policies.
    pub(super) fn can_reserve(&self) -> bool {
        self.charges.iter().all(|charge| charge.policy.rule().can_reserve())
    }

    /// Asks the store. Gives the order back with the answer.
    pub(super) fn ask(self, operation: Operation) -> Asking<S> {
        let runtime = self.runtime.clone();
        let call = Box::pin(async move {
            let answer = {
                let charges = borrowed(&self.charges);
                self.limiter.store().decide(Call::new(operation, &charges)).await
            };
            (self, answer)
        });
        Asking { call: Some(call), runtime }
    }

    /// Gives back what `decision` says was taken: at once if the store answers at once, else in a task.
    pub(super) fn give_back(mut self, decision: &Decision) {
        // A shadow that would have refused was not charged.
        let mut outcomes = decision.verdicts().iter().map(Verdict::outcome);
        self.charges.retain(|_| outcomes.next() == Some(Outcome::Allowed));

        let runtime = self.runtime.clone();
        let _within = runtime.enter();
        let mut refund = Box::pin(async move {
            let charges = borrowed(&self.charges);
            let answer = self.limiter.store().decide(Call::new(Operation::Refund, &charges));
            if let Err(answer) = answer.into_ready() {
                in_a_task().await;
                // Nobody is left who could be told of a failure: the charge stays, as documented.
                let _ = timeout(PATIENCE, answer).await;
            }
        });
        if refund.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
            runtime.spawn(refund);
        }
    }
}

fn borrowed(charges: &[OwnedCharge]) -> SmallVec<[Charge<'_>; 2]> {
    let charges = charges.iter().map(|charge| {
        let OwnedCharge { policy, tenant, subject, cost } = charge;
        Charge { policy, tenant, subject, cost: *cost }
    });
    charges.collect()
}

/// Pending when polled for the first time: what follows is not for a destructor, where a timer would
/// panic if the runtime is just shut down.
async fn in_a_task() {
    let mut is_in_destructor = true;
    poll_fn(
        |_| {
            if std::mem::take(&mut is_in_destructor) { Poll::Pending } else { Poll::Ready(()) }
        },
    )
    .await;
}

/// A call on its way to the store and back.
///
/// Dropped before the answer is there, it is carried to its end in a task; and if it turns out that
/// the store has taken the charge, that is given back.
pub(super) struct Asking<S: Store + 'static> {
    call: Option<Pin<Box<dyn Future<Output = Asked<S>> + Send>>>,
    runtime: Handle,
}

type Asked<S> = (Order<S>, Result<Decision, Error>);

impl<S: Store> Future for Asking<S> {
    type Output = Asked<S>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        // Out of here while it is polled: a call that panics is not to be polled again by the destructor.
        let Some(mut call) = self.call.take() else {
            return Poll::Pending;
        };
        let asked = call.as_mut().poll(context);
        if asked.is_pending() {
            self.call = Some(call);
        }
        asked
    }
}

impl<S: Store> Drop for Asking<S> {
    fn drop(&mut self) {
        if let Some(call) = self.call.take() {
            self.runtime.spawn(async move {
                if let Ok((order, Ok(decision))) = timeout(PATIENCE, call).await
                    && is_in_store(&decision)
                {
                    order.give_back(&decision);
                }
            });
        }
    }
}

/// Whether it was the store that took the charge, so that it may be given back there.
///
/// What another one took in its stead is not: by now the store may be back, and it would give away
/// what it never had.
pub(super) fn is_in_store(decision: &Decision) -> bool {
    decision.is_allowed() && decision.degraded().is_none()
}

/// Whether nobody has decided, so that the refusal tells nothing about when to ask again.
pub(super) fn is_failed_closed(decision: &Decision) -> bool {
    let closed = |degraded: &crate::Degraded| degraded.answer == DegradedAnswer::FailedClosed;
    decision.degraded().is_some_and(closed)
}
