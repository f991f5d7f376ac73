//! What settling a hold did.

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
    is_out_of_reach: bool,
}

fn settled_charges(
    decision: &Decision,
    charges: &[Charge<'_>],
    is_charged: impl Fn(usize) -> bool,
) -> Vec<SettledCharge> {
    let amounts = decision.amounts().iter().copied().chain(std::iter::repeat(0));
    let settled = charges.iter().zip(amounts).enumerate().map(|(index, (charge, amount))| {
        let (given_back, charged) = if is_charged(index) { (0, amount) } else { (amount, 0) };
        let is_out_of_reach = decision.is_out_of_reach(index);
        SettledCharge { policy: charge.policy.name().into(), given_back, charged, is_out_of_reach }
    });
    settled.collect()
}

impl Settlement {
    /// The answer to a settlement with these charges.
    pub(super) fn of(decision: Decision, charges: &[Charge<'_>]) -> Self {
        let is_charged = |index| decision.is_charged(index);
        let charges = settled_charges(&decision, charges, is_charged);
        Self { decision, charges }
    }

    /// The answer to a charge in place of a settlement.
    pub(super) fn of_charge(decision: Decision, charges: &[Charge<'_>]) -> Self {
        let charges = settled_charges(&decision, charges, |_| true);
        Self { decision, charges }
    }

    /// How much of what this policy held was given back: the difference to the actual cost, as far as it was still
    /// owed. The sum, if several charges of the hold were to the policy.
    #[must_use]
    pub fn given_back(&self, policy: &str) -> u64 {
        self.of_policy(policy).map(|it| it.given_back).fold(0, u64::saturating_add)
    }

    /// Returns `true` if [`given_back`](Self::given_back) is less than the difference because the
    /// hold was out of reach in the policy's log: the log has 128 or more newer records. Then the
    /// estimate stays charged until its window ends. Give such a policy a
    /// [grain](crate::SlidingLog::grain) of at least 1/126 of its window.
    #[must_use]
    pub fn is_out_of_reach(&self, policy: &str) -> bool {
        self.of_policy(policy).any(|charge| charge.is_out_of_reach)
    }

    /// How much was charged to this policy beyond what was held (and, if that was charged already, beyond what was
    /// spent so far); of a hold that was [given back](crate::Policy::refund_lapsed) when its time was over, also what was
    /// held and used. The sum, if several charges of the hold were to the policy.
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
