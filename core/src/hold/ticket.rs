//! What a caller has of a hold.

use std::fmt;
use std::time::Duration;

use crate::decision::held_of;
use crate::owned_charge::OwnedCharge;
use crate::subject::ShownBytes;
use crate::{CallId, Charge, Decision, Error, ErrorKind};

/// The answer to a hold: a decision, and a ticket if it is admitted.
#[must_use = "a hold that is not checked limits nothing"]
#[derive(Debug, Clone)]
pub struct Hold {
    decision: Decision,
    ticket: Option<Ticket>,
}

impl Hold {
    /// `charges` are those that were sent, with the costs that were asked for.
    pub(super) fn new<'c>(
        decision: Decision,
        charges: impl Iterator<Item = Charge<'c>>,
        id: CallId<'_>,
    ) -> Self {
        let ticket = decision.is_allowed().then(|| Ticket::new(&decision, charges, id));
        Self { decision, ticket }
    }

    /// The decision, with a verdict for each charge.
    pub fn decision(&self) -> &Decision {
        &self.decision
    }

    /// The ticket, if the hold is admitted.
    #[must_use]
    pub fn ticket(&self) -> Option<&Ticket> {
        self.ticket.as_ref()
    }

    /// The ticket of a hold that is admitted.
    ///
    /// # Errors
    ///
    /// The decision, if the hold is refused.
    pub fn into_ticket(self) -> Result<Ticket, Decision> {
        self.ticket.ok_or(self.decision)
    }
}

/// What it takes to settle a [hold](super): its id, its charges with their policies, and what they hold.
///
/// With the feature `serde` it can be sent to another process, which may settle the hold on its own connection to the
/// store. It needs no secrecy: the store compares it with what it knows of the hold, so that one that was made up gives
/// nothing back.
#[derive(Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Ticket {
    id: Vec<u8>,
    ttl: Duration,
    /// Whether the store was not reached, so that it may not know the hold.
    is_degraded: bool,
    charges: Vec<TicketCharge>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(super) struct TicketCharge {
    pub(super) charge: OwnedCharge,
    /// What is held.
    pub(super) held: u64,
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket")
            .field("id", &ShownBytes(&self.id))
            .field("ttl", &self.ttl)
            .field("is_degraded", &self.is_degraded)
            .field("charges", &self.charges)
            .finish()
    }
}

impl Ticket {
    fn new<'c>(
        decision: &Decision,
        charges: impl Iterator<Item = Charge<'c>>,
        id: CallId<'_>,
    ) -> Self {
        let held = |(index, charge): (usize, Charge<'_>)| {
            let held = held_of(decision, index, &charge).unwrap_or(0);
            TicketCharge { charge: OwnedCharge::new(&charge), held }
        };
        Self {
            id: id.id.to_vec(),
            ttl: id.ttl,
            is_degraded: decision.degraded().is_some(),
            charges: charges.enumerate().map(held).collect(),
        }
    }

    /// The id.
    #[must_use]
    pub fn id(&self) -> &[u8] {
        &self.id
    }

    /// For how long the hold was made.
    #[must_use]
    pub fn ttl(&self) -> Duration {
        self.ttl
    }

    /// What each policy holds, by its name: the cost, or the amount of [`hold_up_to`]; 0 of a check-only charge.
    ///
    /// [`hold_up_to`]: crate::limiter::MultiRequest::hold_up_to
    pub fn held(&self) -> impl Iterator<Item = (&str, u64)> {
        self.charges.iter().map(|it| (it.charge.policy().name(), it.held))
    }

    /// Whether the decision was made without the store. The store may not know the hold then, and what was used is
    /// [charged](crate::Operation::Charge) when it is settled.
    #[must_use]
    pub fn is_degraded(&self) -> bool {
        self.is_degraded
    }

    pub(super) fn call_id(&self) -> CallId<'_> {
        CallId::new(&self.id, self.ttl)
    }

    #[cfg(feature = "tokio")]
    pub(super) fn charges(&self) -> &[TicketCharge] {
        &self.charges
    }

    /// The charges at these costs by policy, and at `other` for policies without one.
    pub(super) fn charges_at<'t, 'n>(
        &'t self,
        costs: impl IntoIterator<Item = (&'n str, u64)>,
        other: impl Fn(&TicketCharge) -> u64,
    ) -> Result<Vec<Charge<'t>>, Error> {
        let mut charges: Vec<Charge<'t>> =
            self.charges.iter().map(|it| it.charge.as_charge().cost(other(it))).collect();
        for (name, cost) in costs {
            let mut is_known = false;
            for charge in charges.iter_mut().filter(|it| it.policy.name() == name) {
                (charge.cost, is_known) = (cost, true);
            }
            if !is_known {
                return Err(self.no_such_policy(name));
            }
        }
        Ok(charges)
    }

    fn no_such_policy(&self, name: &str) -> Error {
        let known: Vec<String> = self.held().map(|(name, _)| format!("`{name}`")).collect();
        let name: String = name.escape_debug().take(crate::policy::MAX_NAME).collect();
        let message = format!(
            "the hold \"{}\" has no charge to a policy `{name}`, but to {}",
            self.id.escape_ascii(),
            known.join(", ")
        );
        Error::new(ErrorKind::InvalidCall, message)
    }
}
