use smallvec::SmallVec;
use tidegate_core::{Call, Charge, Charges, Decision, Error, Operation, Verdict};

/// A call with one charge per key, as scripts take it.
#[derive(Debug)]
pub(crate) struct NormalizedCall<'a> {
    pub(crate) operation: Operation,
    /// The charges, one per key, each with the sum of its costs.
    pub(crate) charges: SmallVec<[(Charge<'a>, u64); 1]>,
    /// For each charge of the call its place in `charges`; empty if they are the same.
    places: SmallVec<[usize; 1]>,
}

impl<'a> NormalizedCall<'a> {
    pub(crate) fn new(call: &Call<'a>) -> Result<Self, Error> {
        call.check()?;
        let Call { operation, charges, .. } = *call;
        if let (1, Some(charge)) = (charges.len(), charges.get(0)) {
            let charges = SmallVec::from_buf([(charge, charge.cost)]);
            return Ok(Self { operation, charges, places: SmallVec::new() });
        }
        Ok(Self::summed(operation, charges))
    }

    fn summed(operation: Operation, all: Charges<'a>) -> Self {
        let mut charges: SmallVec<[(Charge<'a>, u64); 1]> = SmallVec::new();
        let mut places = SmallVec::new();
        for charge in all.iter() {
            match charges.iter().position(|(other, _)| other.shares_state_with(&charge)) {
                Some(place) => {
                    charges[place].1 = charges[place].1.saturating_add(charge.cost);
                    places.push(place);
                }
                None => {
                    places.push(charges.len());
                    charges.push((charge, charge.cost));
                }
            }
        }
        Self { operation, charges, places }
    }

    /// Whether the verdicts are those of a peek of no cost afterwards.
    pub(super) fn answers_as_a_peek(&self) -> bool {
        use Operation::{Block, BlockAtLeast, Refund, Reset, Undo};
        matches!(self.operation, Refund | Undo { .. } | Reset | Block { .. } | BlockAtLeast { .. })
    }

    /// Maps values of `charges` to the charges of the call.
    pub(super) fn each<T: Copy>(&self, values: &[T]) -> impl Iterator<Item = T> {
        let count = if self.places.is_empty() { values.len() } else { self.places.len() };
        (0..count).filter_map(|n| values.get(self.places.get(n).copied().unwrap_or(n)).copied())
    }

    /// The decision, from one verdict for each of `charges`.
    pub(crate) fn answer(&self, verdicts: &[Verdict]) -> Decision {
        Decision::new(self.each(verdicts))
    }
}
