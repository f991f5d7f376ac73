//! The methods of a limiter that make and settle holds. [`Hold`] documents holds.

#[cfg(feature = "tokio")]
mod guard;
#[cfg(feature = "tokio")]
pub(super) mod guard_count;
#[cfg(feature = "tokio")]
pub(super) mod in_turn;
mod max_hold;
#[cfg(feature = "tokio")]
pub(super) mod renewal;
mod settlement;
mod ticket;
#[cfg(feature = "serde")]
mod ticket_form;

use std::time::Duration;

use smallvec::SmallVec;

#[cfg(feature = "tokio")]
pub use guard::{HoldGuard, OnDrop, settle_in_drop};
#[cfg(feature = "tokio")]
pub use guard_count::CountedGuard;
pub use settlement::Settlement;
use ticket::Sent;
pub use ticket::{Hold, Ticket};

use super::Limiter;
use super::multi::MultiRequest;
use super::operations::async_operations;
use super::request::Request;
use crate::call::{Call, CallId, Charge, Charges, Operation};
use crate::decision::{Decision, Receipt};
use crate::error::{Error, ErrorKind};
use crate::store::Store;

async_operations! {
    [Store]

    /// Makes a [hold](Hold) for `ttl`: charges the cost as an estimate, under an id, until the hold
    /// is settled.
    ///
    /// The id has 1 to 256 bytes. If the same hold is sent again under the same id, it is made only
    /// once, like all [calls with an id](CallId). On Redis Cluster, all subjects must have one
    /// tenant.
    ///
    /// A cost above the [maximum hold](crate::Policy::max_hold) of a policy is refused with
    /// [`Outcome::TooLarge`](crate::Outcome::TooLarge).
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::IdReused`] if the id belongs to another hold or call. Returns
    /// [`ErrorKind::Unsupported`] on Redis Cluster if the charges are in several slots, and for a
    /// policy whose requests can be routed to any shard. Also returns the errors of
    /// [`acquire`](Self::acquire).
    hold(request, id: &(impl AsRef<[u8]> + ?Sized), ttl: Duration) -> Hold {
        let (charges, id) = (request.charges()?, CallId::new(id, ttl));
        hold(request.limiter, charges, Operation::Hold, id).await
    }

    /// Makes a hold of the maximum amount that all policies admit, which is at least `min`. The
    /// amount is at most the cost, and at most the [maximum hold](crate::Policy::max_hold) of each
    /// policy that is not a shadow. If `min` is above such a maximum, the hold is refused as by
    /// [`hold`](Self::hold). [`Ticket::held`] returns the amount. Apart from the amount, this
    /// method is like [`hold`](Self::hold).
    ///
    /// # Errors
    ///
    /// Returns the errors of [`hold`](Self::hold).
    hold_up_to(
        request,
        min: u64,
        id: &(impl AsRef<[u8]> + ?Sized),
        ttl: Duration
    ) -> Hold {
        let (charges, id) = (request.charges()?, CallId::new(id, ttl));
        hold(request.limiter, charges, Operation::HoldUpTo { min }, id).await
    }
}

#[cfg(feature = "tokio")]
async_operations! {
    [Store + 'static]

    /// Makes a [hold](Hold) of [slots](crate::Concurrent), and waits until it is admitted. The wait
    /// is at most `max_wait`. Needs the feature `tokio`.
    ///
    /// The callers of all processes that share the store are admitted in the order in which the
    /// store received them: see [`Operation::HoldInTurn`]. A caller waits for slots and rates
    /// together, and is charged only when it is admitted. If it is not admitted within `max_wait`,
    /// or can never be admitted, the hold is a refusal. [`Decision::wait`] returns the duration of
    /// the wait.
    ///
    /// The caller sends the hold again and again. The first caller in the queue of a subject pauses
    /// for 2 to 100 ms between its calls, and other callers longer. A settlement by the same
    /// limiter wakes the first callers immediately. If the store [wakes
    /// callers](Store::until_turn), all settlements do this, and the pauses are longer.
    ///
    /// If the future is dropped, a task gives up the place of the caller, and cancels the hold if
    /// it was admitted. So do not use the id again after that. After an error, the store has
    /// possibly made the hold: send the same hold again to get it, or its slots are free after the
    /// lease. If a process dies, its places end after five seconds, or after the lease if it is
    /// shorter.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// use std::time::Duration;
    /// use tidegate_core::{HoldGuard, Limiter, OnDrop};
    /// use tidegate_memory::MemoryStore;
    ///
    /// let limiter = Limiter::new(MemoryStore::new(), ["jobs: concurrent 4 lease 30s".parse()?])?;
    /// let (hour, minute) = (Duration::from_secs(3600), Duration::from_secs(60));
    /// let hold = limiter.subject("customer 8").hold_within("job 7", hour, minute).await?;
    /// let Ok(ticket) = hold.into_ticket() else { return Ok(()) }; // not within a minute
    /// let guard = HoldGuard::new(&limiter, ticket, OnDrop::Settle)?;
    /// // At most 4 jobs of the customer work at a time.
    /// guard.settle([]).await?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::TooManyWaiters`] if the caller would have to wait and
    /// [`Limiter::max_waiters`] callers already wait. Returns [`ErrorKind::Unsupported`] without a
    /// Tokio runtime. Also returns the errors of [`hold`](Self::hold).
    hold_within(
        request,
        id: &(impl AsRef<[u8]> + ?Sized),
        ttl: Duration,
        max_wait: Duration
    ) -> Hold {
        let (charges, id) = (request.charges()?, CallId::new(id, ttl));
        let call = Call::with_charges(Operation::Hold, charges);
        if call.exceeds_max_hold(request.limiter.store()).await {
            return hold(request.limiter, charges, Operation::Hold, id).await;
        }
        in_turn::hold(request.limiter, charges, id, max_wait).await
    }
}

pub(super) async fn hold<S: Store>(
    limiter: &Limiter<S>,
    charges: Charges<'_>,
    operation: Operation,
    id: CallId<'_>,
) -> Result<Hold, Error> {
    let call = Call::with_charges(operation, charges).with_id(id);
    let is_too_large = call.exceeds_max_hold(limiter.store()).await;
    if is_too_large {
        // The limiter checks the call itself, because the store receives a peek instead of this
        // call.
        call.check()?;
    }
    let mut bounded = SmallVec::<[Charge<'_>; 4]>::new();
    let charges = match operation.min_amount() {
        Some(min) => {
            for charge in charges.iter() {
                bounded.push(match is_too_large {
                    true => charge.at_most(min),
                    false => charge.within_max_hold(limiter.store()).await,
                });
            }
            Charges::from(&bounded[..])
        }
        None => charges,
    };
    let call = Call::with_charges(operation, charges).with_id(id);
    let sent_at = Sent::now();
    let decision = if is_too_large {
        let peek = Call::with_charges(Operation::Peek, charges);
        let refusal = call.max_hold_refusal(&limiter.store().decide(peek).await?);
        // A limit set can have raised the maximum since the check.
        if refusal.is_allowed() { limiter.store().decide(call).await? } else { refusal }
    } else {
        limiter.store().decide(call).await?
    };
    Ok(Hold::new(decision, charges, id, sent_at))
}

impl<S: Store> Limiter<S> {
    /// Settles a hold at the actual costs. Each cost is given with the name of its policy. The
    /// charge of a policy without a given cost is settled at the held amount.
    ///
    /// If the actual cost is below the held amount, the store refunds the difference. If the actual
    /// cost is above the held amount, the store charges the difference, even beyond the limit. See
    /// [`Operation::Settle`].
    ///
    /// Several charges of the hold can have the same policy, such as the tokens of a user and of a
    /// team. Each of these charges is settled at the cost that is given for the policy. If the
    /// costs of these charges can differ, use policies with different names.
    ///
    /// Any process can settle the hold, for twice its time to live. If the same settlement is sent
    /// again, the store returns the same answer. The settlement uses the policies of the ticket,
    /// even if the policies of this limiter were changed after the hold.
    ///
    /// During an outage, a hold can be admitted without the store. If the store does not know such
    /// a hold, the settlement [charges](Operation::Charge) the costs once, under the id of the
    /// hold.
    ///
    /// # Errors
    ///
    /// Returns one of these errors. In each case, nothing is charged or refunded:
    ///
    /// * [`ErrorKind::AlreadySettled`]: the hold was settled at other costs. The source of the
    ///   error contains these costs.
    /// * [`ErrorKind::UnknownHold`]: the hold was never made, or has expired. The costs can still
    ///   be charged, with [`charge`](Request::charge).
    /// * [`ErrorKind::IdReused`]: the ticket does not belong to the hold with this id.
    /// * [`ErrorKind::InvalidCall`]: a cost is given for a policy that the hold does not have, or a
    ///   cost is above 2^52.
    pub async fn settle<'n>(
        &self,
        ticket: &Ticket,
        costs: impl IntoIterator<Item = (&'n str, u64)>,
    ) -> Result<Settlement, Error> {
        let charges = ticket.charges_at(costs, |charge| charge.held)?;
        match self.send(Operation::Settle, ticket, &charges).await {
            // The store does not know a hold that was admitted without it, so it answers the first
            // settlement with `UnknownHold`. The charge below uses the id of the hold. So a
            // repeated settlement fails with `IdReused`, and the repeated charge then returns the
            // stored answer.
            Err(error)
                if ticket.is_degraded()
                    && matches!(error.kind(), ErrorKind::UnknownHold | ErrorKind::IdReused) =>
            {
                let charges = ticket.paid(charges);
                let decision = self.send(Operation::Charge, ticket, &charges).await?;
                Ok(Settlement::from_charge(decision, &charges))
            }
            answer => Ok(Settlement::new(answer?, &charges)),
        }
    }

    /// Reports the total costs so far, while the work continues. The store charges the part of the
    /// costs that exceeds the held amount, and refunds nothing yet. If no cost is given for a
    /// policy, or if the given cost is below an earlier total, the state of this policy does not
    /// change.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`settle`](Self::settle), with one exception: if the hold was admitted
    /// without the store and the store does not know it, the method returns no error. Nothing is
    /// then charged until the hold is settled.
    pub async fn settle_so_far<'n>(
        &self,
        ticket: &Ticket,
        costs: impl IntoIterator<Item = (&'n str, u64)>,
    ) -> Result<Settlement, Error> {
        let charges = ticket.charges_at(costs, |_| 0)?;
        let decision = self.send_or_peek(Operation::SettleSoFar, ticket, &charges).await?;
        Ok(Settlement::new(decision, &charges))
    }

    /// Settles the hold at a cost of zero. The store refunds the part of the held amounts that is
    /// still charged. Costs beyond the hold that were [charged so far](Self::settle_so_far) stay
    /// charged.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`settle`](Self::settle).
    pub async fn cancel(&self, ticket: &Ticket) -> Result<Settlement, Error> {
        let charges = ticket.charges_at([], |_| 0)?;
        let decision = self.send_or_peek(Operation::Settle, ticket, &charges).await?;
        Ok(Settlement::new(decision, &charges))
    }

    /// Prolongs the hold, so that it lapses after `ttl`, counted from now. If the hold already
    /// lapses later than that, the call changes nothing.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::HoldLapsed`] if the hold has lapsed. Returns
    /// [`ErrorKind::AlreadySettled`] if the hold was settled. Also returns the errors of
    /// [`settle`](Self::settle).
    pub async fn extend(&self, ticket: &Ticket, ttl: Duration) -> Result<(), Error> {
        let charges = ticket.charges_at([], |_| 0)?;
        let id = CallId { ttl, ..ticket.call_id() };
        let call = Call::new(Operation::Extend, &charges).with_id(id);
        match self.store().decide(call).await {
            // No store holds slots for the ticket, so there is nothing to extend.
            Err(error) if is_unknown(&error) && ticket.is_kept_nowhere() => Ok(()),
            answer => answer.map(drop),
        }
    }

    /// Charges costs in addition to a hold that cannot be settled any more. Each cost is given with
    /// the name of its policy. The charge of a policy without a given cost changes nothing.
    ///
    /// While the store remembers `id`, it makes the charge once. The id must differ from the ids of
    /// holds and of other calls.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::IdReused`] if the id belongs to another call. Returns
    /// [`ErrorKind::InvalidCall`] if a cost is given for a policy that the hold does not have, or
    /// if a cost is above 2^52. Also returns the errors of the store.
    pub async fn charge_after<'n>(
        &self,
        ticket: &Ticket,
        id: &(impl AsRef<[u8]> + ?Sized),
        costs: impl IntoIterator<Item = (&'n str, u64)>,
    ) -> Result<Receipt, Error> {
        let charges = ticket.paid(ticket.charges_at(costs, |_| 0)?);
        let call = Call::new(Operation::Charge, &charges).with_id(CallId::new(id, ticket.ttl));
        self.store().decide(call).await.map(Receipt::new)
    }

    /// Sends an operation on a hold. If the store does not know the hold because it was admitted
    /// without the store, sends a peek instead.
    async fn send_or_peek(
        &self,
        operation: Operation,
        ticket: &Ticket,
        charges: &[Charge<'_>],
    ) -> Result<Decision, Error> {
        match self.send(operation, ticket, charges).await {
            Err(error) if is_unknown(&error) && ticket.is_degraded() => {
                let free: SmallVec<[Charge<'_>; 4]> =
                    charges.iter().map(|charge| charge.cost(0)).collect();
                self.store().decide(Call::new(Operation::Peek, &free)).await
            }
            answer => answer,
        }
    }

    async fn send(
        &self,
        operation: Operation,
        ticket: &Ticket,
        charges: &[Charge<'_>],
    ) -> Result<Decision, Error> {
        let call = Call::new(operation, charges).with_id(ticket.call_id());
        let decision = self.store().decide(call).await?;
        #[cfg(feature = "tokio")]
        if operation == Operation::Settle {
            self.shared.freed_slots.notify(charges);
        }
        Ok(decision)
    }
}

fn is_unknown(error: &Error) -> bool {
    error.kind() == ErrorKind::UnknownHold
}
