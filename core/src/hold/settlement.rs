//! What settling a hold did.

use super::Ticket;
use crate::{Charge, Decision};

/// The answer to a settlement: what was given back and what was charged of each policy, and what is left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settlement {
    decision: Decision,
    charges: Vec<SettledCharge>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct SettledCharge {
    policy: Box<str>,
    given_back: u64,
    charged: u64,
}

impl Settlement {
    /// `costs` are those of the call, and `held` is what was held of each.
    pub(super) fn new(
        decision: Decision,
        costs: &[Charge<'_>],
        held: impl Iterator<Item = u64>,
    ) -> Self {
        let amounts = decision.amounts().iter().copied().chain(std::iter::repeat(0));
        let charges = costs.iter().zip(held).zip(amounts).map(|((charge, held), amount)| {
            let is_charge = charge.cost > held;
            SettledCharge {
                policy: charge.policy.name().into(),
                given_back: if is_charge { 0 } else { amount },
                charged: if is_charge { amount } else { 0 },
            }
        });
        let charges = charges.collect();
        Self { decision, charges }
    }

    pub(super) fn of(decision: Decision, ticket: &Ticket, costs: &[Charge<'_>]) -> Self {
        Self::new(decision, costs, ticket.charges().iter().map(|it| it.held))
    }

    /// How much of what this policy held was given back: the difference to the actual cost, as far as it was still
    /// owed. The sum, if several charges of the hold were to the policy.
    #[must_use]
    pub fn given_back(&self, policy: &str) -> u64 {
        self.of_policy(policy).map(|it| it.given_back).fold(0, u64::saturating_add)
    }

    /// How much was charged to this policy beyond what was held (and, if that was charged already, beyond what was
    /// spent so far). The sum, if several charges of the hold were to the policy.
    #[must_use]
    pub fn charged(&self, policy: &str) -> u64 {
        self.of_policy(policy).map(|it| it.charged).fold(0, u64::saturating_add)
    }

    /// The verdicts of a peek of no cost afterwards, one for each charge of the hold.
    pub fn decision(&self) -> &Decision {
        &self.decision
    }

    fn of_policy(&self, policy: &str) -> impl Iterator<Item = &SettledCharge> {
        self.charges.iter().filter(move |it| *it.policy == *policy)
    }
}
