use smallvec::SmallVec;
use tidegate_core::{Call, Charge, Charges, Decision, Error, Operation, Verdict};

/// A call in which all charges on the same key are summed into one charge, because the scripts need
/// each key once.
#[derive(Debug, Clone)]
pub(crate) struct NormalizedCall<'a> {
    pub(crate) operation: Operation,
    all: Charges<'a>,
    /// One charge per key, with the total cost that the call charges to this key. If the operation
    /// ignores check-only charges, their cost is 0.
    pub(crate) charges: SmallVec<[(Charge<'a>, u64); 1]>,
    /// For each charge of the call, the index of its key in `charges`. The list is empty if each
    /// charge of the call has its own key.
    places: SmallVec<[usize; 1]>,
}

impl<'a> NormalizedCall<'a> {
    pub(crate) fn new(call: &Call<'a>) -> Result<Self, Error> {
        call.check()?;
        let Call { mut operation, charges: all, .. } = *call;
        if matches!(operation, Operation::HoldInTurn { .. })
            && !all.iter().any(|charge| charge.policy.is_concurrent())
        {
            operation = Operation::Hold;
        }
        if let (1, Some(charge)) = (all.len(), all.get(0)) {
            let charges = SmallVec::from_buf([(charge, cost_in(operation, &charge))]);
            return Ok(Self { operation, all, charges, places: SmallVec::new() });
        }
        Ok(Self::summed(operation, all))
    }

    fn summed(operation: Operation, all: Charges<'a>) -> Self {
        let mut charges: SmallVec<[(Charge<'a>, u64); 1]> = SmallVec::new();
        let mut places = SmallVec::new();
        for charge in all.iter() {
            let cost = cost_in(operation, &charge);
            match charges.iter().position(|(other, _)| other.shares_state_with(&charge)) {
                Some(place) => {
                    charges[place].1 = charges[place].1.saturating_add(cost);
                    places.push(place);
                }
                None => {
                    places.push(charges.len());
                    charges.push((charge, cost));
                }
            }
        }
        Self { operation, all, charges, places }
    }

    pub(super) fn stores_holds(&self) -> bool {
        self.charges.iter().any(|(charge, _)| charge.policy.stores_holds())
    }

    /// Returns `true` if the operation decides the charge together with other charges of a [list of
    /// alternatives](Charge::in_list).
    pub(super) fn has_alternatives(&self, charge: &Charge<'_>) -> bool {
        let is_in_list = |other: &&(Charge<'_>, u64)| other.0.list == charge.list;
        charge.list > 0
            && self.operation.can_be_refused()
            && self.charges.iter().filter(is_in_list).nth(1).is_some()
    }

    /// Returns `true` if the verdicts of the operation have the numbers of a peek with a cost of 0.
    pub(super) fn answers_as_a_peek(&self) -> bool {
        !self.operation.can_be_refused()
    }

    pub(super) fn is_on_a_hold(&self) -> bool {
        self.operation.needs_hold()
    }

    /// Returns a copy of this call with the operation [`Operation::Settle`], with which the reply
    /// to an earlier settlement can be read.
    pub(super) fn as_settlement(&self) -> Self {
        Self { operation: Operation::Settle, ..self.clone() }
    }

    /// Returns `true` if the reply to each charge contains the amount that was refunded or
    /// recorded.
    pub(super) fn has_amounts(&self) -> bool {
        self.operation.has_amounts()
    }

    /// Splits the amount of each key among the charges of the call on this key. In the order of the
    /// call, each charge gets at most its cost. For example, if two charges of cost 3 have the same
    /// key and the amount is 4, they get 3 and 1.
    pub(super) fn split(&self, amounts: &[u64]) -> SmallVec<[u64; 4]> {
        if self.operation.is_of_hold() {
            // In an operation on a hold, each key has only one charge. Its amount can exceed its
            // cost, because a settlement can refund more than the actual cost.
            return SmallVec::from_slice(amounts);
        }
        let mut rest: SmallVec<[u64; 4]> = SmallVec::from_slice(amounts);
        let amount = |(n, charge): (usize, Charge<'_>)| {
            let place = self.places.get(n).copied().unwrap_or(n);
            rest.get_mut(place).map_or(0, |rest| {
                let amount = cost_in(self.operation, &charge).min(*rest);
                *rest -= amount;
                amount
            })
        };
        self.all.iter().enumerate().map(amount).collect()
    }

    /// Returns, for each charge of the call, the value of its key. `values` has one value for each
    /// key, in the order of `charges`.
    pub(super) fn each<T: Copy>(&self, values: &[T]) -> impl Iterator<Item = T> {
        let count = if self.places.is_empty() { values.len() } else { self.places.len() };
        (0..count).filter_map(|n| values.get(self.places.get(n).copied().unwrap_or(n)).copied())
    }

    pub(crate) fn answer(&self, verdicts: &[Verdict]) -> Decision {
        let decision = Decision::new(self.each(verdicts));
        if self.answers_as_a_peek() { decision } else { decision.with_lists_of(self.all) }
    }
}

/// Returns the cost of a charge in an operation, which is 0 if the operation ignores the charge.
fn cost_in(operation: Operation, charge: &Charge<'_>) -> u64 {
    use Operation::{Charge, Leave, Refund, Undo};
    let is_ignored = match operation {
        Leave { .. } => true,
        Refund | Undo { .. } | Charge => charge.is_check_only,
        _ => false,
    };
    if is_ignored { 0 } else { charge.cost }
}
