//! Refunds of states that have holds. A refund does not name the charge that it refunds, so it may
//! have refunded a hold, which must not be refunded again when it is settled or lapses.

use tidegate_core::Charge;

use super::ledger::{self, Ledger, Settles};
use super::rules::Take;

/// The refunds of one state since its holds were made, as far as they are not counted yet.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Refunds {
    amount: u64,
    /// The time of the last refund.
    at: u64,
}

impl Refunds {
    fn add(&mut self, amount: u64, now: u64) {
        if amount > 0 {
            *self = Self { amount: self.amount + amount, at: now };
        }
    }

    /// Settles a hold, or lets it lapse. Later refunds reduce the amount that the hold gives back.
    /// Each of them counts once.
    pub(super) fn settle(
        &mut self,
        ledger: &mut Ledger,
        charge: &Charge<'_>,
        change: Settles,
        now: u64,
    ) -> u64 {
        match change {
            Settles::GivesBack(_, take) if self.amount > 0 && self.at >= take.at => {
                let possible = ledger::settle(&mut ledger.clone(), charge, change, now);
                let counted = possible.min(self.amount);
                self.amount -= counted;
                if possible == counted {
                    return 0;
                }
                let take = Take { cost: take.cost - counted, ..take };
                ledger::settle(ledger, charge, Settles::GivesBack(possible - counted, take), now)
            }
            change => ledger::settle(ledger, charge, change, now),
        }
    }
}

/// The refunds of one state that count for its holds, which are of two kinds.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct KeyRefunds {
    /// For holds that lapse: since there was none.
    pub(super) lapsing: Refunds,
    /// For other holds: since the first of them. A store notices only by the time that none is
    /// left.
    pub(super) others: Refunds,
    others_end_at: u64,
}

impl KeyRefunds {
    /// Returns the refunds that count for the holds of a charge.
    pub(super) fn for_holds_of(&mut self, charge: &Charge<'_>) -> &mut Refunds {
        if charge.policy.refunds_lapsed() { &mut self.lapsing } else { &mut self.others }
    }

    /// Records a hold that is known until `expires_at`.
    pub(super) fn hold(&mut self, charge: &Charge<'_>, is_alone: bool, expires_at: u64, now: u64) {
        if charge.policy.refunds_lapsed() {
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

    /// Takes note of a refund.
    pub(super) fn refund(&mut self, is_any_open: bool, amount: u64, now: u64) {
        if is_any_open {
            self.lapsing.add(amount, now);
        }
        if self.others_end_at > 0 {
            self.others.add(amount, now);
        }
    }
}
