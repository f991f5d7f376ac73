//! The answer to a settlement.

use crate::call::Charge;
use crate::decision::Decision;

/// The answer to a settlement: the amounts that were refunded or charged for each policy, and the
/// remaining amounts.
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
    /// Creates the answer from the decision on a settlement with these charges.
    pub(super) fn new(decision: Decision, charges: &[Charge<'_>]) -> Self {
        let is_charged = |index| decision.is_charged(index);
        let charges = settled_charges(&decision, charges, is_charged);
        Self { decision, charges }
    }

    /// Creates the answer from the decision on a charge that was made instead of a settlement.
    pub(super) fn from_charge(decision: Decision, charges: &[Charge<'_>]) -> Self {
        let charges = settled_charges(&decision, charges, |_| true);
        Self { decision, charges }
    }

    /// Returns the amount that was refunded to this policy: the difference between the held amount
    /// and the actual cost, as far as it was still charged. If several charges of the hold have the
    /// policy, this is the sum.
    #[must_use]
    pub fn given_back(&self, policy: &str) -> u64 {
        self.charges_to(policy).map(|charge| charge.given_back).fold(0, u64::saturating_add)
    }

    /// Returns `true` if [`given_back`](Self::given_back) is less than the difference because the
    /// hold was out of reach in the policy's log: the log has 128 or more newer records. Then the
    /// estimate stays charged until its window ends. Give such a policy a
    /// [grain](crate::SlidingLog::grain) of at least 1/126 of its window.
    #[must_use]
    pub fn is_out_of_reach(&self, policy: &str) -> bool {
        self.charges_to(policy).any(|charge| charge.is_out_of_reach)
    }

    /// Returns the amount that was charged to this policy beyond the held amount and beyond what
    /// was already charged by [`settle_so_far`](crate::Limiter::settle_so_far). If the hold lapsed
    /// and was [refunded](crate::Policy::refund_lapsed), this includes the part of the held amount
    /// that was used. If several charges of the hold have the policy, this is the sum.
    #[must_use]
    pub fn charged(&self, policy: &str) -> u64 {
        self.charges_to(policy).map(|charge| charge.charged).fold(0, u64::saturating_add)
    }

    /// Returns the decision, with the verdicts of a peek of cost 0 after the settlement, one for
    /// each charge of the hold.
    pub fn decision(&self) -> &Decision {
        &self.decision
    }

    fn charges_to(&self, policy: &str) -> impl Iterator<Item = &SettledCharge> {
        self.charges.iter().filter(move |charge| *charge.policy == *policy)
    }
}
