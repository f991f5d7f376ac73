//! Refunds of states that have holds. A refund does not name a charge, so it possibly refunds a
//! hold. When the store later settles the hold or lets it lapse, it must not refund the same amount
//! again.

use tidegate_core::Charge;

use super::ledger::{self, Change, Ledger};
use super::rules::Take;

/// The refunds of one state that were not yet deducted from the refund of a hold.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Refunds {
    amount: u64,
    at: u64,
}

impl Refunds {
    fn add(&mut self, amount: u64, now: u64) {
        if amount > 0 {
            *self = Self { amount: self.amount + amount, at: now };
        }
    }

    /// Applies the change that a settlement or a lapse of a hold makes to a key. If the change
    /// refunds a part of the hold, this function deducts the refunds that were executed since the
    /// hold was made. It deducts each refund once.
    pub(super) fn settle(
        &mut self,
        ledger: &mut Ledger,
        charge: &Charge<'_>,
        change: Change,
        now: u64,
    ) -> u64 {
        match change {
            Change::Refund(_, take) if self.amount > 0 && self.at >= take.at => {
                let possible = ledger::settle(&mut ledger.clone(), charge, change, now);
                let deducted = possible.min(self.amount);
                self.amount -= deducted;
                if possible == deducted {
                    return 0;
                }
                let take = Take { cost: take.cost - deducted, ..take };
                ledger::settle(ledger, charge, Change::Refund(possible - deducted, take), now)
            }
            change => ledger::settle(ledger, charge, change, now),
        }
    }
}

/// The refunds of one state that must be deducted when one of its holds is refunded. Holds under
/// policies whose states store their holds have their own sum.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct KeyRefunds {
    /// The refunds that were executed while a hold that the state stores was open.
    /// The sum starts at 0 when such a hold is made and the state records no other hold.
    pub(super) lapsing: Refunds,
    /// The refunds since the first hold that the state does not store was made. For such
    /// holds, a store records only the time at which all of them will have expired.
    pub(super) others: Refunds,
    others_end_at: u64,
}

impl KeyRefunds {
    /// Returns the refunds that are deducted when a hold on the state of `charge` is refunded.
    pub(super) fn for_holds_of(&mut self, charge: &Charge<'_>) -> &mut Refunds {
        if charge.policy.stores_holds() { &mut self.lapsing } else { &mut self.others }
    }

    /// Records a hold that expires at `expires_at`. `is_alone` is `true` if the state records no
    /// other hold.
    pub(super) fn hold(&mut self, charge: &Charge<'_>, is_alone: bool, expires_at: u64, now: u64) {
        if charge.policy.stores_holds() {
            if is_alone {
                self.lapsing = Refunds::default();
            }
            return;
        }
        if self.others_end_at <= now {
            (self.others, self.others_end_at) = (Refunds::default(), 0);
        }
        if self.others_end_at < expires_at {
            self.others_end_at = expires_at + (expires_at - now) / 2;
        }
    }

    /// Records a refund. `is_any_open` is `true` if a hold that the state stores is open.
    pub(super) fn refund(&mut self, is_any_open: bool, amount: u64, now: u64) {
        if is_any_open {
            self.lapsing.add(amount, now);
        }
        if self.others_end_at > 0 {
            self.others.add(amount, now);
        }
    }
}
