use std::borrow::Cow;
use std::time::Duration;

use crate::observe::activity::Subject;
use bytes::Bytes;
use smallvec::SmallVec;
use tidegate_core::no_semver::check_ban;
use tidegate_core::{
    Call, CallId, Charge, Decision, Error, ErrorKind, Operation, Outcome, Policy, Store, Ticket,
    Verdict,
};

/// A charge of a [`CallRequest`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChargeRequest {
    /// The policy.
    pub policy: Policy,
    /// The tenant; empty for none.
    pub tenant: Bytes,
    /// The subject; any bytes.
    pub subject: Bytes,
    /// The cost.
    pub cost: u64,
    /// Whether the store only checks that the policy would admit the charge, and does not make it:
    /// see [`Charge::check_only`].
    pub is_check_only: bool,
    /// Whether the charge is an alternative to the charge before it: see [`Charge::in_list`].
    pub is_alternative: bool,
}

impl ChargeRequest {
    /// Creates a charge of cost 1 without a tenant.
    #[must_use]
    pub fn new(policy: Policy, subject: Bytes) -> Self {
        let tenant = Bytes::new();
        Self { policy, tenant, subject, cost: 1, is_check_only: false, is_alternative: false }
    }

    fn as_charge(&self) -> Charge<'_> {
        let charge = Charge::new(&self.policy, &*self.subject);
        let charge = charge.tenant(&*self.tenant).cost(self.cost);
        if self.is_check_only { charge.check_only() } else { charge }
    }
}

/// A call of a client. It owns its charges and its id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallRequest {
    operation: Operation,
    charges: SmallVec<[ChargeRequest; 1]>,
    id: Option<(Bytes, Duration)>,
    /// Whether the call is a hold that exceeds the maximum hold of a policy: see
    /// [`Self::bounded_by`]. In this case, the store receives a peek instead of the hold.
    is_too_large: bool,
    is_bound: bool,
    /// The reason of a ban.
    reason: Option<Box<str>>,
}

impl CallRequest {
    /// Creates a call without an id.
    #[must_use]
    pub fn new(operation: Operation, charges: impl IntoIterator<Item = ChargeRequest>) -> Self {
        let charges = charges.into_iter().collect();
        Self { operation, charges, id: None, is_too_large: false, is_bound: false, reason: None }
    }

    pub(super) fn is_hold(&self) -> bool {
        use Operation::{Hold, HoldInTurn, HoldUpTo};
        matches!(self.operation, Hold | HoldUpTo { .. } | HoldInTurn { .. })
    }

    /// Checks the maximum holds of the policies by which the store decides the call, and lowers the
    /// costs of a hold up to its costs to them.
    pub(super) async fn bounded_by(&self, store: &dyn Store) -> Cow<'_, Self> {
        match self.operation {
            _ if self.is_hold() && self.exceeds_max_hold(store).await => {
                let mut request = Self { is_too_large: true, ..self.clone() };
                if let Operation::HoldUpTo { min } = self.operation {
                    request
                        .charges
                        .iter_mut()
                        .for_each(|charge| charge.cost = charge.cost.min(min));
                }
                Cow::Owned(request)
            }
            Operation::HoldUpTo { .. } => {
                let mut request = self.clone();
                for charge in &mut request.charges {
                    charge.cost = charge.as_charge().within_max_hold(store).await.cost;
                }
                Cow::Owned(request)
            }
            _ => Cow::Borrowed(self),
        }
    }

    async fn exceeds_max_hold(&self, store: &dyn Store) -> bool {
        self.with_operation(self.operation, &self.charges()).exceeds_max_hold(store).await
    }

    /// Sets the id of the call. The store executes a call with this id once: see [`CallId`].
    #[must_use]
    pub fn with_id(self, id: Bytes, ttl: Duration) -> Self {
        Self { id: Some((id, ttl)), ..self }
    }

    /// Turns the call into a ban with this reason. The operation must be
    /// [`Operation::BlockAtLeast`].
    pub(super) fn with_reason(self, reason: String) -> Self {
        Self { reason: Some(reason.into()), ..self }
    }

    /// Returns the reason if the call is a ban.
    pub(super) fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }

    /// Binds the hold to the connection of the client: when the connection closes, the server
    /// settles the hold.
    pub(super) fn bound(self) -> Self {
        Self { is_bound: true, ..self }
    }

    pub(super) fn is_bound(&self) -> bool {
        self.is_bound
    }

    /// Returns the key of the call's hold: the slot key of its first charge, and its id.
    pub(super) fn hold_key(&self) -> Option<(Vec<u8>, Bytes)> {
        let charges = self.charges();
        let (first, (id, _)) = (charges.first()?, self.id.as_ref()?);
        Some((first.slot_key().to_vec(), id.clone()))
    }

    /// Returns the ticket of the hold that the call has made.
    pub(super) fn ticket(&self, decision: &Decision) -> Option<Ticket> {
        let charges = self.charges();
        let call = self.with_operation(self.operation, &charges);
        Ticket::from_decision(decision, call.charges, call.id?)
    }

    /// Returns the operation.
    #[must_use]
    pub fn operation(&self) -> Operation {
        self.operation
    }

    /// Checks a ban, and a hold that exceeds the maximum hold of a policy. The store cannot check
    /// them, because it does not receive the reason, and receives a peek instead of the hold. The
    /// store checks every other call.
    pub(super) fn check(&self) -> Result<(), Error> {
        if let (Operation::BlockAtLeast { span }, Some(reason)) = (self.operation, self.reason()) {
            check_ban(span, reason)?;
        }
        if self.is_too_large { self.validate() } else { Ok(()) }
    }

    /// Checks the call in the same way as a store does before it decides.
    ///
    /// # Errors
    ///
    /// Returns an error if the call is not valid. The check does not read any state.
    pub(crate) fn validate(&self) -> Result<(), Error> {
        let charges = self.charges();
        self.with_operation(self.operation, &charges).check()
    }

    pub(super) fn charges(&self) -> SmallVec<[Charge<'_>; 1]> {
        let mut charges: SmallVec<[Charge<'_>; 1]> = SmallVec::new();
        let mut lists = 0_u8;
        for request in &self.charges {
            let mut charge = request.as_charge();
            if let Some(before) = charges.last_mut().filter(|_| request.is_alternative) {
                if before.list == 0 {
                    // A valid call has at most 64 charges.
                    lists = lists.saturating_add(1);
                    before.list = lists;
                }
                charge.list = before.list;
            }
            charges.push(charge);
        }
        charges
    }

    pub(super) fn call<'c>(&'c self, charges: &'c [Charge<'c>]) -> Call<'c> {
        match self.is_too_large {
            true => Call::new(Operation::Peek, charges),
            false => self.with_operation(self.operation, charges),
        }
    }

    /// Returns `true` if the store receives a peek instead of a hold that is too large.
    pub(super) fn is_too_large(&self) -> bool {
        self.is_too_large
    }

    /// Returns the call that the client has sent, also if it is too large.
    pub(super) fn call_as_sent<'c>(&'c self, charges: &'c [Charge<'c>]) -> Call<'c> {
        self.with_operation(self.operation, charges)
    }

    fn with_operation<'c>(&'c self, operation: Operation, charges: &'c [Charge<'c>]) -> Call<'c> {
        let call = Call::new(operation, charges);
        match &self.id {
            Some((id, ttl)) => call.with_id(CallId::new(id, *ttl)),
            None => call,
        }
    }

    /// Returns the decision for the client. If the store received a peek instead of a hold that is
    /// too large, the decision is a refusal.
    pub(super) fn decided(&self, decision: Decision) -> Decision {
        match self.is_too_large {
            true => {
                self.with_operation(self.operation, &self.charges()).max_hold_refusal(&decision)
            }
            false => decision,
        }
    }

    /// Returns the amount that the call charged or refunded for each charge, in the order of the
    /// charges.
    pub fn amounts(&self, decision: &Decision) -> impl Iterator<Item = u64> {
        let taken = |(charge, verdict): (&ChargeRequest, &Verdict)| {
            let is_taken = decision.is_allowed()
                && !charge.is_check_only
                && self.operation.without_hold() == Operation::Acquire
                && verdict.outcome() == Outcome::Allowed;
            if is_taken { charge.cost } else { 0 }
        };
        let taken = self.charges.iter().zip(decision.verdicts()).map(taken);
        let amounts = decision.amounts().iter().copied().map(Some).chain(std::iter::repeat(None));
        taken.zip(amounts).map(|(taken, amount)| amount.unwrap_or(taken))
    }

    /// Returns the policies, in the order of the charges.
    pub fn policies(&self) -> impl Iterator<Item = &Policy> {
        self.charges.iter().map(|charge| &charge.policy)
    }

    /// Returns the subjects, in the order of the charges.
    pub(crate) fn subjects(&self) -> impl Iterator<Item = Subject<'_>> {
        self.charges
            .iter()
            .map(|charge| Subject { tenant: &charge.tenant, subject: &charge.subject })
    }

    /// Returns `true` if a policy can refuse the call: see [`Operation::can_be_refused`].
    #[must_use]
    pub fn can_refuse(&self) -> bool {
        self.operation.can_be_refused()
    }

    /// Returns `true` if the call was executed. For a peek, returns `true` if an acquire of its
    /// charges would be admitted.
    #[must_use]
    pub fn is_admitted(&self, decision: &Decision) -> bool {
        !self.can_refuse() || decision.is_allowed()
    }
}

pub(super) fn unanswered() -> Error {
    Error::new(ErrorKind::Protocol, "the store has not answered each call of a batch")
}
