//! The rules for valid calls.

use super::{Call, CallId, Charge, Operation};
use crate::error::{Error, ErrorKind};
use crate::policy::{Policy, Rule};
use crate::time::{MAX_EXACT, MAX_SPAN};

/// The maximum number of charges in one call.
pub const MAX_CHARGES: usize = 64;

/// The maximum length of a subject and of a tenant: 1 MiB.
pub const MAX_SUBJECT: usize = 1 << 20;

/// The maximum length of the id of a call, in bytes.
pub const MAX_ID: usize = 256;

impl Call<'_> {
    /// Checks that the call is valid, regardless of the states. Every store calls this method
    /// first.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::InvalidCall`]:
    ///
    /// * if there are no charges, or more than [`MAX_CHARGES`]
    /// * if a subject or a tenant is longer than [`MAX_SUBJECT`]
    /// * if two charges have the same state, but their policies differ, for example in the limit:
    ///   see [`Policy::shares_state_with`]
    /// * if two charges have the same state, and only one of them is
    ///   [check-only](Charge::check_only)
    /// * if the operation is [`Operation::AcquireUpTo`] or [`Operation::HoldUpTo`], and its `min`
    ///   is 0 or above the cost of a charge; the costs of check-only charges do not count
    /// * if the operation is [`Operation::AcquireUpTo`] or [`Operation::HoldUpTo`], and two charges
    ///   have the same state, or all charges are check-only
    /// * if the operation makes, settles or extends a [hold](Operation::Hold), and the call has no
    ///   id
    /// * if the operation makes, settles or extends a hold, and either two charges have the same
    ///   state or a cost is above [`MAX_EXACT`]
    /// * if the operation is a [grant](Operation::Grant), and the call has no id, two charges have
    ///   the same state, a cost is 0 or above [`MAX_EXACT`], a charge is check-only, or a policy is
    ///   not a [quota](crate::Quota)
    /// * if the [id](CallId) is empty or longer than [`MAX_ID`], or its time to live is 0 or above
    ///   [`MAX_SPAN`]
    /// * if the operation is a peek, and the call has an id
    /// * if the operation is an acquire, a charge beyond the limit, a refund, an undo or a
    ///   [`Operation::HoldUpTo`], and a charge has [slots](crate::Concurrent) with a cost above 0
    /// * if the operation is a settlement, and gives a cost above 0 for slots
    /// * if a charge is in a [list](Charge::in_list), and the operation does not accept lists, the
    ///   policy blocks or is a shadow, the charge is check-only, or another charge has the same
    ///   state
    /// * if a policy is a [fair pool](crate::FairPool), and the operation is a block or a reset, or
    ///   the charge is check-only, or another charge has the same state and another subject
    ///
    /// Returns [`ErrorKind::Unsupported`]:
    ///
    /// * if the operation is a reservation, and one of the policies is not a bucket
    /// * if a request can be routed to [any shard](crate::Shards::any) of a policy, and the call
    ///   has an id
    /// * if a request can be routed to any shard of a policy, and the operation is a reservation,
    ///   [`Operation::AcquireUpTo`] or an operation of a hold
    /// * if a request can be routed to any shard of a policy, and the charge is in a list
    pub fn check(&self) -> Result<(), Error> {
        let charges = self.charges;
        if charges.is_empty() || charges.len() > MAX_CHARGES {
            return Err(invalid(format!(
                "a call has 1 to {MAX_CHARGES} charges; this one has {}",
                charges.len()
            )));
        }
        for (index, charge) in charges.iter().enumerate() {
            for (part, bytes) in [("subject", charge.subject), ("tenant", charge.tenant)] {
                if bytes.len() > MAX_SUBJECT {
                    return Err(invalid(format!(
                        "the {part} of charge {index} has {} bytes; at most {MAX_SUBJECT} are possible",
                        bytes.len()
                    )));
                }
            }
            if matches!(self.operation, Operation::Reserve { .. })
                && !charge.policy.rule().can_reserve()
            {
                return Err(Error::new(
                    ErrorKind::Unsupported,
                    format!("`{}` is not a bucket; only buckets can reserve", charge.policy),
                ));
            }
            if charge.policy.can_use_any_shard() {
                self.check_any_shard(charge.policy)?;
            }
            self.check_slots(&charge)?;
            self.check_fair_pool(&charge)?;
            if charge.list > 0 {
                self.check_in_list(&charge)?;
            }
            if matches!(self.operation, Operation::Grant { .. }) {
                check_grant(index, &charge)?;
            }
            self.check_duplicates(index, &charge)?;
        }
        let is_of_hold = self.operation.is_of_hold();
        match self.id {
            Some(id) => check_id(id, self.operation)?,
            None if is_of_hold => return Err(hold_without_id()),
            None if matches!(self.operation, Operation::Grant { .. }) => {
                return Err(grant_without_id());
            }
            None => {}
        }
        if is_of_hold {
            self.check_costs()?;
        }
        self.operation.min_amount().map_or(Ok(()), |min| self.check_min(min))
    }

    // The state of a fair pool belongs to all members, so a call cannot block or reset one of them.
    fn check_fair_pool(&self, charge: &Charge<'_>) -> Result<(), Error> {
        if !charge.policy.is_fair_pool() {
            return Ok(());
        }
        let problem = match self.operation {
            Operation::Block { .. } | Operation::BlockAtLeast { .. } | Operation::Reset => {
                "its state belongs to all members, so no member can be blocked or reset"
            }
            _ if charge.is_check_only => "a check-only charge would have no demand",
            _ => return Ok(()),
        };
        Err(invalid(format!("`{}` is a fair pool: {problem}", charge.policy)))
    }

    /// Only a hold takes slots, because slots become free when their hold ends.
    fn check_slots(&self, charge: &Charge<'_>) -> Result<(), Error> {
        let is_settlement = matches!(self.operation, Operation::Settle | Operation::SettleSoFar);
        let problem = match self.operation {
            // A check-only charge can be settled at a cost, but a settlement takes no slots.
            _ if !charge.takes_slots() && !is_settlement => return Ok(()),
            _ if charge.cost == 0 || !charge.policy.is_concurrent() => return Ok(()),
            Operation::Acquire | Operation::AcquireUpTo { .. } | Operation::Charge => {
                "only a hold takes slots"
            }
            Operation::Refund | Operation::Undo { .. } => {
                "only the settlement of their hold frees slots"
            }
            Operation::HoldUpTo { .. } => "a hold up to a cost takes no slots",
            Operation::Settle | Operation::SettleSoFar => {
                "a settlement frees all slots, so their cost must be 0"
            }
            _ => return Ok(()),
        };
        let (name, policy) = (self.operation.name(), charge.policy);
        Err(invalid(format!("the operation {name} is not possible on `{policy}`: {problem}")))
    }

    fn check_in_list(&self, charge: &Charge<'_>) -> Result<(), Error> {
        use Operation::{AcquireUpTo, Charge, Grant, HoldInTurn, HoldUpTo, Leave, Refund, Undo};
        let (policy, name) = (charge.policy, self.operation.name());
        let problem = match self.operation {
            Charge | Refund | Undo { .. } | Grant { .. } => {
                format!("the operation {name} changes one charge, so name the one that pays")
            }
            AcquireUpTo { .. } | HoldUpTo { .. } | HoldInTurn { .. } | Leave { .. } => {
                format!("the operation {name} accepts no alternatives")
            }
            _ if policy.blocks() => "a policy that blocks cannot be an alternative".to_owned(),
            _ if policy.is_shadow() => "a shadow cannot be an alternative".to_owned(),
            _ if charge.is_check_only => {
                "a check-only charge cannot be an alternative, because it pays nothing".to_owned()
            }
            _ if policy.can_use_any_shard() => {
                let message = format!(
                    "`{policy}` is in a list of alternatives, and its requests can be routed to any \
                     shard; with `by-subject` or `whole` it can be an alternative"
                );
                return Err(Error::new(ErrorKind::Unsupported, message));
            }
            _ => return Ok(()),
        };
        Err(invalid(format!("`{policy}` is in a list of alternatives: {problem}")))
    }

    fn check_costs(&self) -> Result<(), Error> {
        match self.charges.iter().enumerate().find(|(_, charge)| charge.cost > MAX_EXACT) {
            None => Ok(()),
            Some((index, charge)) => Err(invalid(format!(
                "the cost of charge {index} of a hold is {}; it must be at most 2^52 = {MAX_EXACT}",
                charge.cost
            ))),
        }
    }

    fn check_any_shard(&self, policy: &Policy) -> Result<(), Error> {
        let problem = match self.operation {
            Operation::Reserve { .. } => {
                "reserve: a shard does not know the callers that wait at other shards"
            }
            Operation::AcquireUpTo { .. } => {
                "acquire up to a cost: a shard does not know what remains in other shards"
            }
            _ if self.operation.is_of_hold() => {
                "be held and settled: the calls for one hold may go to several shards"
            }
            _ if self.id.is_some() => {
                "be charged once under an id: a repeated call may go to another shard"
            }
            _ => return Ok(()),
        };
        let message = format!("`{policy}` cannot {problem}; with `by-subject` or `whole` it can");
        Err(Error::new(ErrorKind::Unsupported, message))
    }

    fn check_min(&self, min: u64) -> Result<(), Error> {
        let costs = self.charges.iter().filter(|charge| !charge.is_check_only);
        let Some(max) = costs.map(|charge| charge.cost).min() else {
            return Err(invalid(
                "all charges are check-only; at least one must be acquired".to_owned(),
            ));
        };
        if (1..=max).contains(&min) {
            return Ok(());
        }
        Err(invalid(format!(
            "the minimum to acquire is {min}; it must be at least 1 and at most {max}, the lowest cost"
        )))
    }

    fn check_duplicates(&self, index: usize, charge: &Charge<'_>) -> Result<(), Error> {
        let same = |other: &Charge<'_>| other.shares_state_with(charge);
        for other in self.charges.iter().take(index).filter(same) {
            let problem = if other.policy != charge.policy {
                format!(
                    "`{}` and `{}` have the same states but differ; a call may contain only one of them",
                    other.policy, charge.policy
                )
            } else if other.is_check_only != charge.is_check_only {
                format!(
                    "of two charges to one state of `{}`, one is check-only; either both or none may be",
                    charge.policy
                )
            } else if charge.policy.is_fair_pool() && other.subject != charge.subject {
                format!("a call charges two members of the fair pool `{}`", charge.policy)
            } else if other.list > 0 || charge.list > 0 {
                format!(
                    "two charges have the same state of `{}`, and one of them is in a list of \
                     alternatives; each charge of a list needs its own state",
                    charge.policy
                )
            } else if self.operation.is_of_hold()
                || self.operation.min_amount().is_some()
                || matches!(self.operation, Operation::Grant { .. })
            {
                format!(
                    "two charges have the same state of `{}`; a hold, a grant, or an acquire up to a cost, \
                     may have only one of them",
                    charge.policy
                )
            } else {
                continue;
            };
            return Err(invalid(problem));
        }
        Ok(())
    }
}

fn check_id(id: CallId<'_>, operation: Operation) -> Result<(), Error> {
    let (len, ttl) = (id.id.len(), id.ttl);
    let problem = match len {
        0 => "the id of the call is empty".to_owned(),
        _ if len > MAX_ID => format!(
            "the id of the call has {len} bytes; at most {MAX_ID} are possible: use a hash of it"
        ),
        _ if ttl.is_zero() => "the id of the call has a time to live of 0".to_owned(),
        _ if ttl > MAX_SPAN => format!(
            "the id of the call has a time to live of {ttl:?}; it must be at most {MAX_SPAN:?}"
        ),
        _ if operation == Operation::Peek => {
            "a peek has an id; it changes nothing, so that there is nothing to do once".to_owned()
        }
        _ => return Ok(()),
    };
    Err(invalid(problem))
}

fn check_grant(index: usize, charge: &Charge<'_>) -> Result<(), Error> {
    let Charge { policy, cost, .. } = charge;
    if !matches!(policy.rule(), Rule::Quota(_)) {
        let message = format!("`{policy}` is not a quota, and has no credits; it has no grants");
        return Err(invalid(message));
    }
    if charge.is_check_only {
        return Err(invalid(format!("charge {index} of a grant is check-only; it grants nothing")));
    }
    if (1..=MAX_EXACT).contains(cost) {
        return Ok(());
    }
    Err(invalid(format!(
        "the amount of grant {index} is {cost}; it must be from 1 to 2^52 = {MAX_EXACT}"
    )))
}

pub(crate) fn grant_without_id() -> Error {
    invalid("a grant has no id; an id is needed so that it is made once".to_owned())
}

pub(crate) fn hold_without_id() -> Error {
    invalid("a hold has no id; an id is needed to settle it".to_owned())
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidCall, message)
}
