//! A hold and its ticket.

use std::fmt;
use std::time::Duration;

use crate::call::{CallId, Charge, ChargeBuf, Charges};
use crate::decision::{Decision, held_of};
use crate::error::{Error, ErrorKind};
use crate::policy::MAX_NAME;
use crate::subject::ShownBytes;

/// A hold: an estimate that is charged immediately, and settled when the actual cost is known.
/// [`Request::hold`](crate::Request::hold) returns this value. It has a decision, and a [`Ticket`]
/// if the hold was admitted.
///
/// Any process can [settle](crate::Limiter::settle) the hold with its ticket.
/// [`Operation::Hold`](crate::Operation::Hold) documents how a store executes a hold. An
/// [`Estimator`](crate::Estimator) learns the amount to hold. A `HoldGuard` (feature `tokio`)
/// settles its hold when the guard is dropped.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// use std::time::Duration;
/// use tidegate_core::Limiter;
/// use tidegate_memory::MemoryStore;
///
/// let limiter = Limiter::new(
///     MemoryStore::new(),
///     ["requests: fixed-window 60/1m".parse()?, "tokens: token-bucket 10000/1m".parse()?],
/// )?;
/// // The answer may have up to 4,000 tokens, and takes at most a minute.
/// let request = limiter.by("requests", "alice").by("tokens", "alice").cost(4_000);
/// let hold = request.hold("completion 4711", Duration::from_secs(60)).await?;
/// let Ok(ticket) = hold.into_ticket() else { return Ok(()) }; // refused: 429
///
/// // The answer had 350 tokens.
/// let settlement = limiter.settle(&ticket, [("tokens", 350)]).await?;
/// assert_eq!(settlement.given_back("tokens"), 3_650);
/// // After a timeout it can be settled again: this changes nothing.
/// assert_eq!(limiter.settle(&ticket, [("tokens", 350)]).await?, settlement);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a hold that is not checked limits nothing"]
#[derive(Debug, Clone)]
pub struct Hold {
    decision: Decision,
    ticket: Option<Ticket>,
}

impl Hold {
    pub(super) fn new(
        decision: Decision,
        charges: Charges<'_>,
        id: CallId<'_>,
        sent_at: Sent,
    ) -> Self {
        let ticket = decision.is_allowed().then(|| Ticket::new(&decision, charges, id, sent_at));
        Self { decision, ticket }
    }

    /// Returns the decision, with a verdict for each charge.
    pub fn decision(&self) -> &Decision {
        &self.decision
    }

    /// Returns the ticket, if the hold was admitted.
    #[must_use]
    pub fn ticket(&self) -> Option<&Ticket> {
        self.ticket.as_ref()
    }

    /// Returns the ticket if the hold was admitted.
    ///
    /// # Errors
    ///
    /// Returns the decision if the hold was refused.
    pub fn into_ticket(self) -> Result<Ticket, Decision> {
        self.ticket.ok_or(self.decision)
    }
}

/// The data with which any process can settle a [hold](Hold). A ticket has the id of the hold, the
/// charges with their policies, and the held amounts.
///
/// With the feature `serde`, a ticket can be sent to another process. That process can settle the
/// hold over its own connection to the store. A ticket is not a secret: the store compares the
/// ticket with its own data about the hold, and refunds nothing for a forged ticket.
///
/// The serialized form of a ticket contains the version of the form, as in `{"v":1,…}`. Old
/// programs did not write the version, so a ticket without a version is read as version 1. A ticket
/// with a later version is rejected, with an error that contains this version.
#[derive(Clone, PartialEq, Eq)]
pub struct Ticket {
    pub(super) id: Vec<u8>,
    pub(super) ttl: Duration,
    /// Whether the hold was admitted without the store. The store possibly does not know such a
    /// hold.
    pub(super) is_degraded: bool,
    /// Whether a fallback store keeps the hold.
    pub(super) is_on_fallback: bool,
    pub(super) charges: Vec<TicketCharge>,
    pub(super) sent_at: Sent,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TicketCharge {
    pub(super) charge: ChargeBuf<'static>,
    pub(super) held: u64,
    pub(super) fence: Option<u64>,
}

/// The time at which this process sent the hold. It is unknown for a ticket from another process.
/// Two tickets of one hold are equal, so two values of this type are always equal.
#[derive(Clone, Copy, Default)]
pub(super) struct Sent {
    #[cfg(feature = "tokio")]
    pub(super) at: Option<tokio::time::Instant>,
}

impl Sent {
    pub(super) fn now() -> Self {
        Self {
            #[cfg(feature = "tokio")]
            at: Some(tokio::time::Instant::now()),
        }
    }
}

impl PartialEq for Sent {
    fn eq(&self, _other: &Self) -> bool {
        true
    }
}

impl Eq for Sent {}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket")
            .field("id", &ShownBytes(&self.id))
            .field("ttl", &self.ttl)
            .field("is_degraded", &self.is_degraded)
            .field("is_on_fallback", &self.is_on_fallback)
            .field("charges", &self.charges)
            .finish()
    }
}

impl Ticket {
    /// Creates the ticket of a hold that a program has sent to the store itself, without a limiter.
    /// Returns `None` if the hold was refused.
    ///
    /// The program has received the decision just now. Its [`HoldGuard`](crate::HoldGuard) renews
    /// the hold immediately, because the time at which the hold was sent is unknown.
    #[doc(hidden)]
    #[must_use]
    pub fn from_decision(
        decision: &Decision,
        charges: Charges<'_>,
        id: CallId<'_>,
    ) -> Option<Self> {
        decision.is_allowed().then(|| Self::new(decision, charges, id, Sent::default()))
    }

    fn new(decision: &Decision, charges: Charges<'_>, id: CallId<'_>, sent_at: Sent) -> Self {
        let held = |(index, charge): (usize, Charge<'_>)| {
            let held = held_of(decision, index, &charge).unwrap_or(0);
            let fence = decision.fences().get(index).copied().flatten();
            let policy = decision.adjusted_policy(index).unwrap_or(charge.policy);
            let charge = Charge { policy, ..charge };
            TicketCharge { charge: ChargeBuf::from(charge).into_owned(), held, fence }
        };
        Self {
            id: id.id.to_vec(),
            ttl: id.ttl,
            is_degraded: decision.degraded().is_some(),
            is_on_fallback: decision.degraded().is_some_and(|degraded| degraded.is_held),
            sent_at,
            charges: charges.iter().enumerate().map(held).collect(),
        }
    }

    /// Returns the id of the hold.
    #[must_use]
    pub fn id(&self) -> &[u8] {
        &self.id
    }

    /// Returns the time to live for which the hold was made.
    #[must_use]
    pub fn ttl(&self) -> Duration {
        self.ttl
    }

    /// Returns the held amount of each charge, with the name of the charge's policy. The held
    /// amount is the cost of the charge, or the amount that
    /// [`hold_up_to`](crate::Request::hold_up_to) acquired. It is 0 for a check-only charge.
    pub fn held(&self) -> impl Iterator<Item = (&str, u64)> {
        self.charges.iter().map(|charge| (charge.charge.policy().name(), charge.held))
    }

    /// Returns the fence of the slots that the hold took under the policy with this name: see
    /// [`Decision::fences`]. If several charges of the hold have the policy, the method returns the
    /// fence of the first. Returns `None` if the hold was admitted without the store.
    #[must_use]
    pub fn fence(&self, policy: &str) -> Option<u64> {
        let charge = self.charges.iter().find(|held| held.charge.policy().name() == policy);
        charge.and_then(|held| held.fence)
    }

    /// Returns the charges of the hold at a cost of 0.
    #[cfg(feature = "tokio")]
    pub(super) fn free(&self) -> Vec<Charge<'_>> {
        self.charges.iter().map(|held| held.charge.as_charge().cost(0)).collect()
    }

    /// Returns the charges of the hold under the policies by which the store decided last.
    #[cfg(feature = "tokio")]
    pub(super) fn charges_under<'t>(&'t self, decision: &'t Decision) -> Vec<Charge<'t>> {
        let charges = self.charges.iter().enumerate().map(|(index, held)| {
            let charge = held.charge.as_charge().cost(held.held);
            Charge { policy: decision.adjusted_policy(index).unwrap_or(charge.policy), ..charge }
        });
        charges.collect()
    }

    /// Returns `true` if no store keeps the hold: it was admitted without the store, and not by a
    /// fallback store.
    pub(super) fn is_kept_nowhere(&self) -> bool {
        self.is_degraded && !self.is_on_fallback
    }

    /// Returns `true` if the hold was admitted without the store. The store possibly does not know
    /// such a hold. In that case, a settlement [charges](crate::Operation::Charge) the costs. If a
    /// fallback store has taken slots for the hold, only the process that has made the hold can
    /// extend it and free the slots.
    #[must_use]
    pub fn is_degraded(&self) -> bool {
        self.is_degraded
    }

    pub(super) fn call_id(&self) -> CallId<'_> {
        CallId::new(&self.id, self.ttl)
    }

    /// Returns the charges of the hold at new costs. If `costs` contains a cost for the policy of a
    /// charge, the charge has this cost. If not, its cost is the result of `default`.
    pub(super) fn charges_at<'t, 'n>(
        &'t self,
        costs: impl IntoIterator<Item = (&'n str, u64)>,
        default: impl Fn(&TicketCharge) -> u64,
    ) -> Result<Vec<Charge<'t>>, Error> {
        let mut charges: Vec<Charge<'t>> = self
            .charges
            .iter()
            .map(|charge| {
                let held = charge.charge.as_charge();
                // A settlement frees all slots, so it gives no cost for them.
                held.cost(if held.policy.is_concurrent() { 0 } else { default(charge) })
            })
            .collect();
        for (name, cost) in costs {
            let mut is_known = false;
            for charge in charges.iter_mut().filter(|charge| charge.policy.name() == name) {
                (charge.cost, is_known) = (cost, true);
            }
            if !is_known {
                return Err(self.unknown_policy(name));
            }
        }
        Ok(charges)
    }

    /// Returns `charges`, which [`charges_at`](Self::charges_at) has returned, without lists of
    /// alternatives: the charges that do not pay have a cost of 0.
    pub(super) fn paid<'t>(&self, charges: Vec<Charge<'t>>) -> Vec<Charge<'t>> {
        let paid = charges.into_iter().zip(&self.charges).map(|(charge, held)| {
            let pays = charge.list == 0 || held.held > 0;
            charge.in_list(0).cost(if pays { charge.cost } else { 0 })
        });
        paid.collect()
    }

    fn unknown_policy(&self, name: &str) -> Error {
        let known: Vec<String> = self.held().map(|(name, _)| format!("`{name}`")).collect();
        let name: String = name.escape_debug().take(MAX_NAME).collect();
        let message = format!(
            "the hold \"{}\" has no charge to a policy `{name}`, but to {}",
            self.id.escape_ascii(),
            known.join(", ")
        );
        Error::new(ErrorKind::InvalidCall, message)
    }
}
