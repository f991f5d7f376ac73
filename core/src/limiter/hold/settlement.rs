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
    /// Creates the answer from the decision on a settlement of `charges`.
    pub(super) fn new(decision: Decision, charges: &[Charge<'_>]) -> Self {
        let is_charged = |index| decision.is_charged(index);
        let charges = settled_charges(&decision, charges, is_charged);
        Self { decision, charges }
    }

    /// Creates the answer from the decision on a charge. A limiter sends a
    /// [charge](crate::Operation::Charge) instead of a settlement if the hold was admitted without
    /// the store.
    pub(super) fn from_charge(decision: Decision, charges: &[Charge<'_>]) -> Self {
        let charges = settled_charges(&decision, charges, |_| true);
        Self { decision, charges }
    }

    /// Returns the amount that the settlement refunded for a policy. This is the held amount less
    /// the actual cost, but only the part that was still charged before the settlement. If several
    /// charges of the hold have the policy, the method returns the sum of their amounts.
    #[must_use]
    pub fn given_back(&self, policy: &str) -> u64 {
        self.charges_to(policy).map(|charge| charge.given_back).fold(0, u64::saturating_add)
    }

    /// Returns `true` if [`given_back`](Self::given_back) is less than the full difference, because
    /// the hold was out of reach in a sliding log. Its estimate then stays charged until its window
    /// ends. [`Decision::is_out_of_reach`] explains how to avoid this.
    #[must_use]
    pub fn is_out_of_reach(&self, policy: &str) -> bool {
        self.charges_to(policy).any(|charge| charge.is_out_of_reach)
    }

    /// Returns the amount that the settlement charged for a policy. This is the part of the actual
    /// cost that exceeds the held amount and was not charged before by
    /// [`settle_so_far`](crate::Limiter::settle_so_far). If the hold lapsed and was
    /// [refunded](crate::Policy::refund_lapsed), the settlement also charges the used part of the
    /// hold. If several charges of the hold have the policy, the method returns the sum of their
    /// amounts.
    #[must_use]
    pub fn charged(&self, policy: &str) -> u64 {
        self.charges_to(policy).map(|charge| charge.charged).fold(0, u64::saturating_add)
    }

    /// Returns the decision on the settlement, with a verdict for each charge of the hold. A peek
    /// of cost 0 after the settlement would return the same verdicts.
    pub fn decision(&self) -> &Decision {
        &self.decision
    }

    fn charges_to(&self, policy: &str) -> impl Iterator<Item = &SettledCharge> {
        self.charges.iter().filter(move |charge| *charge.policy == *policy)
    }
}
