//! The charges of a call. They are stored in one of three forms.

use std::fmt;

use super::charge::{Charge, ChargeBuf};
use crate::policy::Policy;

/// The charges of a call. They keep the order in which the caller gave them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Charges<'a>(Repr<'a>);

// The three forms are variants of two nested enums, so that one comparison recognizes `PerPolicy`,
// the form that the memory store decides fastest.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Repr<'a> {
    /// Several charges that have the same tenant, subject and cost, and different policies. The
    /// first charge is stored by value, so that a call with one charge needs no slice of charges.
    PerPolicy {
        first: Charge<'a>,
        others: &'a [Policy],
    },
    List(List<'a>),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum List<'a> {
    Slice(&'a [Charge<'a>]),
    /// Two or more charges. A single charge is stored as `PerPolicy`, because the memory store
    /// decides that form fastest.
    Buffers(&'a [ChargeBuf<'a>]),
}

impl fmt::Debug for Charges<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<'a> From<&'a [Charge<'a>]> for Charges<'a> {
    #[inline]
    fn from(charges: &'a [Charge<'a>]) -> Self {
        Self(Repr::List(List::Slice(charges)))
    }
}

impl<'a> From<&'a [ChargeBuf<'a>]> for Charges<'a> {
    #[inline]
    fn from(charges: &'a [ChargeBuf<'a>]) -> Self {
        match charges {
            [charge] => Self::per_policy(charge.as_charge(), &[]),
            charges => Self(Repr::List(List::Buffers(charges))),
        }
    }
}

impl<'a> Charges<'a> {
    /// Creates charges that differ only in their policies: `first`, and a copy of `first` for each
    /// policy in `others`.
    #[must_use]
    #[inline(always)]
    pub fn per_policy(first: Charge<'a>, others: &'a [Policy]) -> Self {
        Self(Repr::PerPolicy { first, others })
    }

    /// Returns the first charge and the policies of the other charges, if this value has a single
    /// charge or was created by [`per_policy`](Self::per_policy). Returns `None` for a list of
    /// several charges.
    #[doc(hidden)]
    #[must_use]
    #[inline(always)]
    pub fn as_per_policy(&self) -> Option<(&Charge<'a>, &'a [Policy])> {
        match &self.0 {
            Repr::PerPolicy { first, others } => Some((first, others)),
            Repr::List(List::Slice([charge])) => Some((charge, &[])),
            Repr::List(_) => None,
        }
    }

    /// Returns the total cost of all charges that have the same state as `charge`. A store decides
    /// these charges together.
    pub(crate) fn total_cost_for(&self, charge: &Charge<'_>) -> u64 {
        let same = self.iter().filter(|other| other.shares_state_with(charge));
        same.fold(0, |sum: u64, charge| sum.saturating_add(charge.cost))
    }

    pub(crate) fn any_check_only(&self) -> bool {
        match &self.0 {
            Repr::List(List::Slice(charges)) => charges.iter().any(|charge| charge.is_check_only),
            Repr::PerPolicy { first, .. } => first.is_check_only,
            Repr::List(List::Buffers(charges)) => charges.iter().any(|charge| charge.is_check_only),
        }
    }

    /// Returns `true` if a charge is in a [list of alternatives](Charge::in_list).
    #[doc(hidden)]
    #[must_use]
    pub fn has_lists(&self) -> bool {
        match &self.0 {
            Repr::List(List::Slice(charges)) => charges.iter().any(|charge| charge.list > 0),
            Repr::PerPolicy { first, .. } => first.list > 0,
            Repr::List(List::Buffers(charges)) => charges.iter().any(|charge| charge.list > 0),
        }
    }

    /// Returns, for each list of alternatives, the indices of its charges in the order of the call.
    pub(crate) fn lists(&self) -> impl Iterator<Item = impl Iterator<Item = usize> + Clone> {
        let charges = *self;
        let is_first = move |(index, charge): &(usize, Charge<'_>)| {
            charge.list > 0 && !charges.iter().take(*index).any(|other| other.list == charge.list)
        };
        charges.iter().enumerate().filter(is_first).map(move |(_, first)| {
            let indices = 0..charges.len();
            indices.filter(move |&index| {
                charges.get(index).is_some_and(|charge| charge.list == first.list)
            })
        })
    }

    pub(crate) fn any_policy(&self, matches: impl Fn(&Policy) -> bool) -> bool {
        match &self.0 {
            Repr::List(List::Slice(charges)) => charges.iter().any(|charge| matches(charge.policy)),
            Repr::PerPolicy { first, others } => {
                matches(first.policy) || others.iter().any(matches)
            }
            Repr::List(List::Buffers(charges)) => {
                charges.iter().any(|charge| matches(charge.policy()))
            }
        }
    }

    /// Returns the number of charges.
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        match &self.0 {
            Repr::List(List::Slice(charges)) => charges.len(),
            Repr::PerPolicy { others, .. } => 1 + others.len(),
            Repr::List(List::Buffers(charges)) => charges.len(),
        }
    }

    /// Returns `true` if there are no charges.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the charge at `index`.
    #[must_use]
    #[inline]
    pub fn get(&self, index: usize) -> Option<Charge<'a>> {
        match self.0 {
            Repr::PerPolicy { first, others } => match index.checked_sub(1) {
                None => Some(first),
                Some(index) => others.get(index).map(|policy| Charge { policy, ..first }),
            },
            Repr::List(list) => list.get(index),
        }
    }

    /// Returns an iterator over the charges, in the order of the call.
    pub fn iter(&self) -> impl Iterator<Item = Charge<'a>> + use<'a> {
        let charges = *self;
        (0..charges.len()).filter_map(move |index| charges.get(index))
    }
}

impl<'a> List<'a> {
    // This method is not inlined, so that [`Charges::get`] has only a few instructions for charges
    // from [`Charges::per_policy`].
    #[inline(never)]
    fn get(&self, index: usize) -> Option<Charge<'a>> {
        match self {
            Self::Slice(charges) => charges.get(index).copied(),
            Self::Buffers(charges) => charges.get(index).map(ChargeBuf::as_charge),
        }
    }
}
