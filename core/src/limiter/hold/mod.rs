//! Making and settling holds by a limiter.

#[cfg(feature = "tokio")]
mod guard;
#[cfg(feature = "tokio")]
pub(super) mod guard_count;
mod settlement;
mod ticket;
#[cfg(feature = "serde")]
mod ticket_form;

use std::time::Duration;

use smallvec::SmallVec;

#[cfg(feature = "tokio")]
pub use guard::{HoldGuard, OnDrop};
pub use settlement::Settlement;
pub use ticket::{Hold, Ticket};

use crate::limiter::{MultiRequest, Request};
use crate::{Call, CallId, Charge, Decision, Error, ErrorKind, Limiter, Operation, Store, Verdict};

type Charges<'a> = SmallVec<[Charge<'a>; 4]>;

impl<S: Store> Request<'_, S> {
    /// Takes the cost as an estimate, which is settled later: a [hold](crate::hold), for `ttl` under the id, 1 to 256
    /// bytes. The same hold under the same id is made once, as [calls with an id](CallId) are.
    ///
    /// A cost above the [maximum hold](crate::Policy::max_hold) of a policy is refused
    /// ([`Outcome::TooLarge`](crate::Outcome::TooLarge)).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::IdReused`] if the id is that of another hold or call;
    /// [`ErrorKind::Unsupported`] on Redis Cluster if the charges are of several slots, and for a policy whose requests
    /// may go to any shard; and those of an [acquire](Self::acquire).
    pub async fn hold(
        self,
        id: &(impl AsRef<[u8]> + ?Sized),
        ttl: Duration,
    ) -> Result<Hold, Error> {
        let charges: Charges<'_> = self.charges().collect();
        hold(self.limiter, charges, Operation::Hold, CallId::new(id, ttl)).await
    }

    /// The same, of as much as there is: at most the cost and the [maximum hold](crate::Policy::max_hold) of each policy,
    /// and at least `min`. [`Ticket::held`] has the amount.
    ///
    /// # Errors
    ///
    /// As [`hold`](Self::hold).
    pub async fn hold_up_to(
        self,
        min: u64,
        id: &(impl AsRef<[u8]> + ?Sized),
        ttl: Duration,
    ) -> Result<Hold, Error> {
        let charges: Charges<'_> = self.charges().collect();
        hold(self.limiter, charges, Operation::HoldUpTo { min }, CallId::new(id, ttl)).await
    }
}

impl<S: Store> MultiRequest<'_, S> {
    /// Takes the costs as an estimate, which is settled later: see [`Request::hold`]. On Redis Cluster, all subjects must
    /// be of one tenant.
    ///
    /// # Errors
    ///
    /// As [`Request::hold`] and [`acquire`](Self::acquire).
    pub async fn hold(
        &self,
        id: &(impl AsRef<[u8]> + ?Sized),
        ttl: Duration,
    ) -> Result<Hold, Error> {
        self.check()?;
        let charges: Charges<'_> = self.charges().collect();
        hold(self.limiter, charges, Operation::Hold, CallId::new(id, ttl)).await
    }

    /// The same, of as much as there is: see [`Request::hold_up_to`].
    ///
    /// # Errors
    ///
    /// As [`hold`](Self::hold).
    pub async fn hold_up_to(
        &self,
        min: u64,
        id: &(impl AsRef<[u8]> + ?Sized),
        ttl: Duration,
    ) -> Result<Hold, Error> {
        self.check()?;
        let charges: Charges<'_> = self.charges().collect();
        hold(self.limiter, charges, Operation::HoldUpTo { min }, CallId::new(id, ttl)).await
    }
}

async fn hold<S: Store>(
    limiter: &Limiter<S>,
    mut charges: Charges<'_>,
    operation: Operation,
    id: CallId<'_>,
) -> Result<Hold, Error> {
    let is_too_large = |charge: &Charge<'_>| {
        !charge.is_check_only && charge.policy.max_hold().is_some_and(|max| charge.cost > max)
    };
    if operation.min_amount().is_some() {
        for charge in charges.iter_mut().filter(|it| is_too_large(it)) {
            charge.cost = charge.policy.max_hold().unwrap_or(charge.cost);
        }
    } else if charges.iter().any(|it| is_too_large(it) && !it.policy.is_shadow()) {
        // The call is checked as the hold would be.
        Call::new(operation, &charges).with_id(id).check()?;
        let peek = limiter.store().decide(Call::new(Operation::Peek, &charges)).await?;
        let verdict = |(charge, verdict): (&Charge<'_>, &Verdict)| {
            if is_too_large(charge) { verdict.too_large() } else { *verdict }
        };
        let decision = Decision::new(charges.iter().zip(peek.verdicts()).map(verdict));
        let decision = match peek.degraded() {
            Some(degraded) => decision.degraded_by(degraded.clone()),
            None => decision,
        };
        return Ok(Hold::new(decision, charges.iter().copied(), id));
    }
    let decision = limiter.store().decide(Call::new(operation, &charges).with_id(id)).await?;
    Ok(Hold::new(decision, charges.into_iter(), id))
}

impl<S: Store> Limiter<S> {
    /// Settles a hold at what was actually used, by the names of its policies; a policy that is not named is settled at
    /// what it holds. What is held too much is given back, and what is missing is charged, beyond the limit if need be:
    /// see [`Operation::Settle`].
    ///
    /// Several charges of the hold to one policy, such as to a user's and to a team's tokens, are each settled at the cost
    /// that is given for its name. Give policies names of their own if their costs may differ.
    ///
    /// It works from any process, and for twice the hold's time to live. Settled again at the same costs, it is answered
    /// as the first time. The policies are those of the ticket, also if this limiter has changed ones since.
    ///
    /// A hold that was admitted without the store, in an outage, is [charged](Operation::Charge) under its id, once, if
    /// the store does not know it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::AlreadySettled`] if it was settled at other costs, which the error's source contains;
    /// [`ErrorKind::UnknownHold`] if it was never made, or has expired: what was used can still be charged, with
    /// [`charge`](crate::limiter::MultiRequest::charge);
    /// [`ErrorKind::IdReused`] if the ticket is not of the hold with this id;
    /// [`ErrorKind::InvalidCall`] for a name that the hold does not have, and a cost above 2^52. Nothing is charged or
    /// given back with any of these.
    pub async fn settle<'n>(
        &self,
        ticket: &Ticket,
        costs: impl IntoIterator<Item = (&'n str, u64)>,
    ) -> Result<Settlement, Error> {
        let charges = ticket.charges_at(costs, |it| it.held)?;
        match self.send(Operation::Settle, ticket, &charges).await {
            // The second one after a charge under the id, to which the store answers again.
            Err(error)
                if ticket.is_degraded()
                    && (is_unknown(&error) || error.kind() == ErrorKind::IdReused) =>
            {
                let decision = self.send(Operation::Charge, ticket, &charges).await?;
                Ok(Settlement::of_charge(decision, &charges))
            }
            answer => Ok(Settlement::of(answer?, &charges)),
        }
    }

    /// Reports what was used so far, in total, while the work goes on: what exceeds the hold is charged at once, and
    /// nothing is given back yet. A policy that is not named, or whose total is lower than an earlier one, stays as it is.
    ///
    /// # Errors
    ///
    /// As [`settle`](Self::settle). Of a hold that was admitted without the store, and that the store does not know, nothing
    /// is charged until it is settled.
    pub async fn settle_so_far<'n>(
        &self,
        ticket: &Ticket,
        costs: impl IntoIterator<Item = (&'n str, u64)>,
    ) -> Result<Settlement, Error> {
        let charges = ticket.charges_at(costs, |_| 0)?;
        let decision = self.send_known(Operation::SettleSoFar, ticket, &charges).await?;
        Ok(Settlement::of(decision, &charges))
    }

    /// Gives back all that is held, as far as it is still owed: settles the hold at nothing. What was charged beyond it
    /// [so far](Self::settle_so_far) stays charged.
    ///
    /// # Errors
    ///
    /// As [`settle`](Self::settle).
    pub async fn cancel(&self, ticket: &Ticket) -> Result<Settlement, Error> {
        let charges = ticket.charges_at([], |_| 0)?;
        let decision = self.send_known(Operation::Settle, ticket, &charges).await?;
        Ok(Settlement::of(decision, &charges))
    }

    /// Lets a hold be needed for `ttl` from now on; never shorter than before.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::HoldLapsed`] if its time is over, [`ErrorKind::AlreadySettled`] if it is settled, and those of
    /// [`settle`](Self::settle).
    pub async fn extend(&self, ticket: &Ticket, ttl: Duration) -> Result<(), Error> {
        let charges = ticket.charges_at([], |_| 0)?;
        let id = CallId { ttl, ..ticket.call_id() };
        let call = Call::new(Operation::Extend, &charges).with_id(id);
        match self.store().decide(call).await {
            Err(error) if is_unknown(&error) && ticket.is_degraded() => Ok(()),
            answer => answer.map(drop),
        }
    }

    /// Of a hold that the store does not know as it was admitted without the store, a peek.
    async fn send_known(
        &self,
        operation: Operation,
        ticket: &Ticket,
        charges: &[Charge<'_>],
    ) -> Result<Decision, Error> {
        match self.send(operation, ticket, charges).await {
            Err(error) if is_unknown(&error) && ticket.is_degraded() => {
                let free: Charges<'_> = charges.iter().map(|charge| charge.cost(0)).collect();
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
        self.store().decide(Call::new(operation, charges).with_id(ticket.call_id())).await
    }
}

fn is_unknown(error: &Error) -> bool {
    error.kind() == ErrorKind::UnknownHold
}
